"""`python -m fopng` and the script `fopng`: the command line, or what to install for it."""

import sys

from fopng.core.extras import LibraryMissing, from_extra


def main() -> None:
    """Run the command line. Without its libraries, say which extra brings them and exit with 2."""
    try:
        with from_extra("lab", "the command"):
            from fopng.cli import main as command
    except LibraryMissing as missing:
        print(f"fopng: {missing}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    command()


if __name__ == "__main__":
    main()
