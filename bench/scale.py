"""Beyond one process: `python bench/scale.py ranks [--processes 1 2 4]`, one run over several processes (bench/ranks.py)."""

import argparse

from ranks import ranks


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    own = commands.add_parser("ranks", help="memory and time of a process against their number")
    own.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    arguments = parser.parse_args()
    ranks(arguments.processes)


if __name__ == "__main__":
    main()
