"""Where workers' letters wait until the driver reads them; an actor on the driver's machine."""

from __future__ import annotations

from typing import Literal, final

from fopng.lab.cluster.errands import Letter


@final
class Mailbox:
    """One letter an errand: later ones are joined to it. If it is lost nothing is but news, since results go another way."""

    def __init__(self) -> None:
        self._letters: dict[str, Letter] = {}
        self._stopping = False

    def post(self, letter: Letter) -> Literal["go on", "stop"]:
        """Leave a letter, and learn whether to stop."""
        earlier = self._letters.get(letter.errand)
        self._letters[letter.errand] = letter if earlier is None else letter.after(earlier)
        return "stop" if self._stopping else "go on"

    def collect(self) -> list[Letter]:
        """Take all letters."""
        letters, self._letters = list(self._letters.values()), {}
        return letters

    def stop(self) -> None:
        """Have everybody who writes from now on told to stop."""
        self._stopping = True
