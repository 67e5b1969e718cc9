"""Several processes that share one run."""
