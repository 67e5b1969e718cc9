"""Beyond one machine and one process: what it costs.

    python bench/scale.py ray [--seconds 60] [--waves 4]     the overhead of Ray a wave, against the same waves without it
    python bench/scale.py ranks [--processes 1 2 4]          one run over several processes: memory and time of a process

What they measure is told in bench/cluster.py and bench/ranks.py.
"""

import argparse

import torch

from cluster import on_ray, report
from ranks import ranks


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    ray = commands.add_parser("ray", help="the overhead of Ray a wave")
    ray.add_argument("--seconds", type=float, default=60.0)
    ray.add_argument("--waves", type=int, default=4)
    several = commands.add_parser("ranks", help="memory and time of a process against their number")
    several.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    arguments = parser.parse_args()
    if arguments.command == "ranks":
        ranks(arguments.processes)
        return
    torch.set_num_threads(1)
    words = f"ray --seconds {arguments.seconds:g} --waves {arguments.waves}"
    report("ray", words, on_ray(arguments.seconds, arguments.waves))


if __name__ == "__main__":
    main()
