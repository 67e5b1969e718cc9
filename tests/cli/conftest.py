from isolation import _one_thread, empty_machine, session_cache, shared_cache  # noqa: F401
