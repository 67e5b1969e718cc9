"""Connect to Ray: the cluster at an address, or a Ray of this machine that nobody else can reach."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import fopng
from fopng.core.extras import from_extra
from fopng.lab.schedule.errors import ClusterError
from fopng.lab.storage import atomic

LOCAL = "local"

CONNECT_SECONDS = 10.0

SEEN_SECONDS = 10.0
"""How long a file may take to appear on another machine."""

CHECK_SECONDS = 60.0
"""How long a machine may take to say whether it sees the folder of the runs."""

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Nothing is reported to anybody, and nothing printed when this process has ended its work."""

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Despite its name: with 0, all of Ray on this machine listens on the loopback address alone, on every system."""

PASSED_ON = ("FOPNG_CACHE", "FOPNG_DATA")
"""Variables of the driver that workers get, so that a cache in a shared folder serves all machines."""

MARKER = ".store-id"
"""A file in the folder of the runs; a machine that reads the driver's text in it sees the same folder."""


def connect(address: str | None) -> ModuleType:
    """Ray, connected to the cluster at this address; RAY_ADDRESS when None, and this machine alone without either."""
    where = address or os.environ.get("RAY_ADDRESS") or LOCAL
    ray = import_ray(QUIET | (LOOPBACK if where == LOCAL else {}))
    if ray.is_initialized():
        return ray
    _check_somebody_is_there(where)
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    brought = {} if where == LOCAL else {"py_modules": [str(Path(fopng.__file__).parent)], "env_vars": passed}
    with _handlers_kept():
        try:
            ray.init(
                address=where,
                include_dashboard=False if where == LOCAL else None,
                runtime_env=brought,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise ClusterError(_explained(where, error)) from error
    return ray


def import_ray(environment: Mapping[str, str]) -> ModuleType:
    """Ray, with settings that it reads while it is imported; what the user has set stays."""
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    with from_extra("ray"):
        import ray
    return ray


def mark(root: Path) -> str:
    """The text of the marker in this folder, written if there is none."""
    with atomic.as_write_error(root):
        root.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        return (root / MARKER).read_text()
    atomic.write_text(root / MARKER, uuid.uuid4().hex)
    return (root / MARKER).read_text()


def check_shared(root: Path, text: str) -> None:
    """Raise unless this machine sees the folder of the runs that has this marker."""
    end = time.monotonic() + SEEN_SECONDS
    while time.monotonic() < end:
        with suppress(OSError):
            if (root / MARKER).read_text() == text:
                return
        time.sleep(0.2)
    raise ClusterError(
        f"Expected the folder of the runs, {root}, on every machine of the cluster, got none on {socket.gethostname()}. "
        "Give a folder that all of them share with --out."
    )


def check_shared_everywhere(ray: ModuleType, root: Path, text: str) -> None:
    """Have every machine that does runs look for the folder of the runs."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Strategy

    look = ray.remote(check_shared)
    tasks = [
        look.options(num_cpus=0, max_retries=0, scheduling_strategy=Strategy(node["NodeID"], soft=False)).remote(
            root, text
        )
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU")
    ]
    for task in tasks:
        try:
            ray.get(task, timeout=CHECK_SECONDS)
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(str(error.cause)) from error
        except ray.exceptions.RayError:
            continue  # the machine is gone, or too busy to tell; its tasks look again


def _check_somebody_is_there(where: str) -> None:
    """Ray itself would wait for minutes, and hear no signal meanwhile."""
    host, _, port = where.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterError(_explained(where, error)) from error


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; whoever handled it before continues to."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _explained(where: str, error: Exception) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if where == LOCAL:
        return f"Expected Ray to start on this machine, got: {first}"
    return (
        f"Expected a Ray cluster at {where}, got: {first.rstrip('.')}. Start one with: ray start --head; "
        "then give --address HOST:PORT on one of its machines."
    )
