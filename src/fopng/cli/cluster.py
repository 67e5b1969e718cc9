"""Doing the runs of a command on a cluster, and the live view of it."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from fopng.cli.options import Device
from fopng.cli.progress import WithBars
from fopng.cli.stopping import StopSignals

if TYPE_CHECKING:
    import torch

    from fopng.cli.work import Means
    from fopng.lab.cluster import Tally
    from fopng.lab.cluster.errands import Cluster
    from fopng.lab.runs.config import RunConfig
    from fopng.lab.runs.result import RunResult

LINE_SECONDS = 10.0


def do_on_cluster(
    configs: Sequence[RunConfig], means: Means, console: Console, tell: Callable[[str], None], signals: StopSignals
) -> list[RunResult]:
    """The results of these runs, done by workers that Ray finds; runs that fail do not stop the others."""
    from fopng.cli.work import raise_for, workshop
    from fopng.lab.cluster import Dispatcher, connect
    from fopng.lab.cluster.errands import BROUGHT_HOME

    if elsewhere := [name for name in means.trackers if name not in BROUGHT_HOME]:
        raise ValueError(f"Expected --track {', '.join(BROUGHT_HOME)} with --engine ray, got {', '.join(elsewhere)}.")
    shop = workshop(dataclasses.replace(means, device=Device.CPU), tell, signals)
    missing = configs if means.again else shop.unfinished(configs)
    if not missing:
        return shop.do(configs)
    # What Ray prints is no result.
    with redirect_stdout(sys.stderr), ClusterView(console) as view:
        cluster = connect(means.address, missing, out=means.out, data_dir=means.data_dir)
        shop = dataclasses.replace(shop, device=device_of(cluster, means.device, tell))
        dispatcher = Dispatcher(shop, cluster, threads=means.threads or 1, show=view)
        results = dispatcher.do(configs, again=means.again)
    if not means.keep_going:
        raise_for([failed.config for failed in dispatcher.failed])
    return results


def device_of(cluster: Cluster, asked: Device, tell: Callable[[str], None]) -> torch.device:
    """What the workers do their runs on: their GPUs, if the cluster has any."""
    import torch

    gpus = cluster.largest().gpus > 0
    if asked is Device.MPS:
        raise ValueError("Expected --device auto, cpu or cuda with --engine ray, got mps.")
    if asked is Device.CUDA and not gpus:
        tell("No machine of the cluster has a GPU now; the runs wait for one that has.")
    return torch.device("cuda" if asked is Device.CUDA or (asked is Device.AUTO and gpus) else "cpu")


@final
class ClusterView(WithBars):
    """Waves done, running, waiting and failed, runs a minute and the time left, on stderr."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._started, self._said, self._line = clock(), clock(), ""
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            expand=True,
        )
        self._bar = self._bars.add_task("Starting")

    def __call__(self, tally: Tally) -> None:
        """Show how things stand: at once on a terminal, in a log every few seconds and at the end."""
        if self._console.is_terminal:
            words = self.words(tally)
            self._bars.update(self._bar, total=tally.runs, completed=tally.progress, description=words)
            return
        over = tally.running + tally.waiting == 0
        if over or self._clock() - self._said >= LINE_SECONDS:
            words, self._said = self.words(tally), self._clock()
            if words != self._line:
                self._console.print(words, markup=False, soft_wrap=True)
            self._line = words

    def words(self, tally: Tally) -> str:
        """The line that is shown."""
        from fopng.lab.engine.observers.progress import duration

        waves = f"waves: {tally.done} done, {tally.running} running, {tally.waiting} waiting, {tally.failed} failed"
        passed = max(self._clock() - self._started, 1e-9)
        left = duration((tally.runs - tally.progress) * passed / tally.progress) if tally.progress else "unknown time"
        return (
            f"{waves}; runs: {tally.runs_done}/{tally.runs}, {60 * tally.runs_done / passed:.1f} a minute, {left} left"
        )
