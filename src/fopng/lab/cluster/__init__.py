"""Waves of runs on a cluster: Ray does the distributing, the store stays where the command is."""

from fopng.lab.cluster.connecting import connect
from fopng.lab.cluster.dispatch import ClusterError, Dispatcher, Failed, Tally

__all__ = ["ClusterError", "Dispatcher", "Failed", "Tally", "connect"]
