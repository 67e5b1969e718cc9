"""Getting hold of Ray: the cluster at an address, or this machine as one that nobody else can reach."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from fopng.core.extras import from_extra
from fopng.lab.cluster.dispatch import ClusterError
from fopng.lab.cluster.rays import RayCluster
from fopng.lab.cluster.shipping import code_for_workers, collect_goods
from fopng.lab.runs.config import RunConfig

LOCAL = "local"

CONNECT_SECONDS = 10.0

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Nothing is reported to anybody, and nothing printed when this process has ended its work."""

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Despite its name: with 0, all of Ray on this machine listens on the loopback address alone, on every system."""


def connect(
    address: str | None, configs: Sequence[RunConfig], *, out: Path, data_dir: Path | None = None
) -> RayCluster:
    """The cluster that will do these runs; a connection that this process has already is used.

    Args:
        address: of the cluster, as Ray understands it; RAY_ADDRESS when None, and this machine alone without either.
        configs: the runs, whose code and data the workers get.
        out: the folder of the runs.
        data_dir: where to look for datasets first.
    """
    where = address or os.environ.get("RAY_ADDRESS") or LOCAL
    ray = import_ray(QUIET | (LOOPBACK if where == LOCAL else {}))
    if not ray.is_initialized():
        _check_somebody_is_there(where)
        with _handlers_kept():
            try:
                ray.init(
                    address=where,
                    include_dashboard=False if where == LOCAL else None,
                    runtime_env=code_for_workers(configs, out),
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                raise ClusterError(_explained(where, error)) from error
    return RayCluster(ray, collect_goods(configs, data_dir, ray.put))


def import_ray(environment: Mapping[str, str]) -> ModuleType:
    """Ray, with settings that it reads while it is imported; what the user has set stays."""
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    with from_extra("ray"):
        import ray
    return ray


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
    """Ray takes SIGTERM for itself; whoever handled it before goes on to."""
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
