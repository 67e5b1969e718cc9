"""Files that survive a kill: atomic writes, locks, checkpoints."""
