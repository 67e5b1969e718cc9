"""For every test: one thread, and no deadline, which on a busy machine fails what is right."""

import hypothesis
import torch

from isolation import session_cache, shared_cache  # noqa: F401

hypothesis.settings.register_profile("fopng", deadline=None)
hypothesis.settings.load_profile("fopng")
torch.set_num_threads(1)
