"""Runs in Weights & Biases."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self, final

from fopng.lab.engine.observers.events import RunEnded, RunStarted
from fopng.lab.engine.observers.tracker import Tracked, Tracker


@final
class WandB(Tracker):
    """Write offline, into `wandb/` of a run's folder, for `wandb sync`; WANDB_MODE=online sends it at once.

    Args:
        folder: of this run alone.
        key: names this run, there too: what is synced of a run that was interrupted joins.
        every: one step in so many is measured.
    """

    package: ClassVar[str] = "wandb"

    def __init__(self, folder: Path, *, key: str, every: int) -> None:
        super().__init__(every=every)
        self._folder, self._key = folder, key

    @classmethod
    def of(cls, tracked: Tracked) -> Self:
        return cls(tracked.run, key=tracked.key, every=tracked.every)

    def start(self, event: RunStarted) -> None:
        import wandb

        online = os.environ.get("WANDB_MODE") == "online"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "fopng",
            group=" ".join(str(event.facts[name]) for name in ("benchmark", "method") if name in event.facts) or None,
            id=self._key,
            name=event.label,
            config=dict(event.facts),
            # a process of its own writes there, perhaps in another folder
            dir=self._folder.resolve(),
            mode=None if "WANDB_MODE" in os.environ else "offline",
            resume="allow" if online else None,
            # several runs may be under way in one process, side by side
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", save_code=False),
        )
        # its own steps must never go back, and those of a run that goes on from a checkpoint do
        self._run.define_metric("*", step_metric="steps")

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        self._run.log({"steps": step, **scalars})

    def end(self, event: RunEnded) -> None:
        self._run.summary["outcome"] = event.outcome
        self._run.finish(exit_code=0 if event.outcome in ("finished", "diverged") else 1)
