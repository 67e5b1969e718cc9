"""Sweeps: grids of settings, tried on a held-out part, the best of them measured on test with fresh seeds."""

from fopng.sweep.choosing import Rule, respond

__all__ = ["Rule", "respond"]
