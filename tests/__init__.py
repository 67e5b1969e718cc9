"""A package, so that no other of this name (avalanche-lib installs one) stands in its place in child processes."""
