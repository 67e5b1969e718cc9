"""Doing runs: which are missing, which are done together, and by whom: this process, several processes, or a Ray cluster."""
