"""Experience Replay with a reservoir (Chaudhry et al., 2019)."""

from typing import Annotated, ClassVar, final

from fopng.core.vector import Vector
from fopng.memory.replay_samples import Rehearser
from fopng.optim.method import About, Step
from fopng.optim.replay_base import Replay, ReplayExtent, ReplayRunning, ReplayState
from fopng.optim.settings import AT_LEAST_0, COUNT, settings
from fopng.optim.task import Task


@final
@settings
class ER(Replay):
    """Experience Replay: SGD on the new task and on some kept samples of the old ones. Keeps data.

    `v = eta (g + strength g_old)`, with `g_old` the gradient on samples of old tasks, drawn anew each step.
    """

    about: ClassVar[About] = About("er", "Experience Replay", 2019, "Chaudhry et al.", "samples", True)
    strength_is_weight: ClassVar[bool] = True

    capacity: Annotated[
        int,
        COUNT,
        "the most samples kept in all, each sample of the old tasks as likely to be among them (a reservoir).",
    ] = 1000
    replay_samples: Annotated[int, COUNT, "how many of them are rehearsed in a step."] = 10
    strength: Annotated[float, AT_LEAST_0, "the weight of their mean loss, that of the new samples being 1."] = 1.0

    def extent(self, tasks: int, samples: int) -> ReplayExtent:
        return ReplayExtent(self.capacity + min(samples, self.capacity), max(self.replay_samples, tasks), 2)

    def recall(
        self, state: ReplayState, running: ReplayRunning, rehearser: Rehearser
    ) -> tuple[Vector | None, ReplayRunning]:
        return self.rehearsed(state, running, rehearser, self.replay_samples)

    def gradient(self, g: Vector, step: Step[ReplayState, ReplayRunning]) -> Vector:
        return g if step.rehearsed is None else g + step.rehearsed * self.strength

    def end_task(self, state: ReplayState, running: ReplayRunning, task: Task) -> tuple[ReplayState, ReplayRunning]:
        state, running = self.kept(state, running, task.sampling, self.capacity, apart=False)
        return ReplayState(state.samples.limited(self.capacity)), running
