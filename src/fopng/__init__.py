"""Optimizers for continual learning, and the laboratory that compares them."""

__version__ = "0.1.0"
