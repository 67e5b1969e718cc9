"""Beyond one machine: waves of runs on a cluster, one run over several processes."""
