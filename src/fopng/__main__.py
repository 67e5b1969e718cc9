"""`python -m fopng` and the script `fopng`: the command line, or what to install for it."""

import signal
import sys
from types import FrameType

from fopng.core.extras import LibraryMissing, from_extra


def main() -> None:
    """Run the command line. Without its libraries, say which extra brings them and exit with 2."""
    # From the first moment, a polite kill is told and obeyed as Ctrl-C is.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with from_extra("lab", "the command"):
            from fopng.cli import main as command
    except LibraryMissing as missing:
        sys.exit(_say(str(missing), 2))
    except KeyboardInterrupt as interrupt:
        sys.exit(_say("Stopped.", 128 + (interrupt.args or (signal.SIGINT,))[0]))
    command()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def _say(message: str, code: int) -> int:
    print(f"fopng: {message}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    main()
