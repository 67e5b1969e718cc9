"""Downloading one file over HTTP: resumed where it stopped, and given its name only when it is whole."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeAlias

from fopng.lab.data.errors import DataError

Report: TypeAlias = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are here, and the bytes in all where the server tells."""

BLOCK = 1 << 16
ATTEMPTS = 5
LARGEST = 1 << 29  # no dataset here comes near half a gigabyte; a server that never ends must not fill a disk


class _CutOffError(Exception):
    """The connection ended, or stood still, before the file did."""


def silent(file: str, done: int, total: int | None) -> None:
    """A report that goes nowhere."""


def download(url: str, target: Path, *, report: Report = silent, timeout: float = 30.0) -> None:
    """Bring `url` to `target`; a connection that is cut is taken up again where it stopped."""
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(ATTEMPTS):
        before = _size(part)
        try:
            _receive(url, part, target.name, report, timeout)
            break
        except _CutOffError as error:
            stuck = _size(part) <= before
            if stuck or attempt == ATTEMPTS - 1:
                raise DataError(f"{url}: {error}. Run the command again: it goes on from there.") from error
    os.replace(part, target)


def _receive(url: str, part: Path, name: str, report: Report, timeout: float) -> None:
    start = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "fopng", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            start = _resumed_at(response, start)
            with part.open("ab" if start else "wb") as stream:
                _copy(response, stream, start, name, report)
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # longer than the file itself: it is another one's
            _receive(url, part, name, report, timeout)
            return
        raise DataError(f"{url}: HTTP {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        cause = error.reason
        raise DataError(f"{url}: {(cause.strerror if isinstance(cause, OSError) else None) or cause}") from error
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise _CutOffError(f"the connection ended early ({error or type(error).__name__})") from error


def _resumed_at(response: http.client.HTTPResponse, start: int) -> int:
    """Where the body begins in the file: a server is free to ignore the range and send everything."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0
    given = response.headers.get("Content-Range", "")
    if not given.startswith(f"bytes {start}-"):
        raise DataError(f"{response.url}: Expected the bytes from {start} on, got {given!r}.")
    return start


def _copy(response: http.client.HTTPResponse, stream: IO[bytes], start: int, name: str, report: Report) -> None:
    length = response.headers.get("Content-Length")
    total = start + int(length) if length and length.isdigit() else None
    done = start
    report(name, done, total)
    while block := response.read(BLOCK):
        stream.write(block)
        done += len(block)
        report(name, done, total)
        if done > LARGEST:
            raise DataError(f"{response.url}: Expected at most {LARGEST:,} bytes, got more.")
    stream.flush()
    os.fsync(stream.fileno())
    if total is not None and done < total:
        raise _CutOffError(f"got {done:,} of {total:,} bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
