"""Learning without Forgetting (Li and Hoiem, 2016)."""

from dataclasses import replace
from typing import Annotated, ClassVar, final

from fopng.core.vector import Vector
from fopng.memory.replay_draws import TaskSamples
from fopng.memory.replay_samples import Rehearser, SampleBlock, SampleMemory
from fopng.optim.method import About, Needs, Step
from fopng.optim.replay_base import Replay, ReplayExtent, ReplayRunning, ReplayState, seeded, total_gradient
from fopng.optim.settings import ABOVE_0, AT_LEAST_0, COUNT, COUNT_OR_ALL, settings
from fopng.optim.task import Task


@final
@settings
class LwF(Replay):
    """Learning without Forgetting: SGD on the new task, and what the old model answered to its samples answered again.

    `v = eta (g + strength sum_h g_h)`, `g_h` the gradient of `-mean_n E_y log p(y | outputs_n / T)` over `y ~ p(.|a_n / T)` (eq. 2
    and 3). `a_n` is what the old model's head h answered to sample n of the *new* task, before anything was learnt of it. A model
    with a head for each task needs a `fopng.PredictTask`: old heads are asked about new samples.
    """

    about: ClassVar[About] = About("lwf", "Learning without Forgetting", 2016, "Li, Hoiem", "nothing but the model")
    strength_is_weight: ClassVar[bool] = True

    strength: Annotated[
        float, AT_LEAST_0, "lambda_o, the weight of the old answers of each head, that of the new targets being 1."
    ] = 1.0
    temperature: Annotated[
        float,
        ABOVE_0,
        "T, by which answers are divided before they are compared: above 1, small probabilities count for more.",
    ] = 2.0
    distilled_samples: Annotated[
        int | None, COUNT_OR_ALL, "how many samples of the new task the old model is asked about; None for all."
    ] = 2000
    replay_samples: Annotated[int, COUNT, "how many of those are answered again in a step, over all old heads."] = 10

    @property
    def needs(self) -> Needs:
        return Needs("the old model's answers to the new task", samples=True)

    def extent(self, tasks: int, samples: int) -> ReplayExtent:
        return ReplayExtent(min(samples, self.distilled_samples or samples), max(self.replay_samples, tasks), 2)

    def missing(self, state: ReplayState) -> bool:
        return bool(state.samples.learnt) and not state.samples.blocks

    def refresh(self, state: ReplayState, running: ReplayRunning, task: Task) -> tuple[ReplayState, ReplayRunning]:
        if not self.missing(state):
            return state, running
        blocks = self._answered(state.samples, task.sampling)
        running = seeded(running, task.sampling, blocks[0].ranks.device)
        return replace(state, samples=state.samples.added(blocks, together=False)), running

    def _answered(self, samples: SampleMemory, sampling: TaskSamples) -> list[SampleBlock]:
        """The new samples as each old head answers them now; heads that answer alike are one."""
        blocks: list[SampleBlock] = []
        for sampled in sampling.draw(self.distilled_samples):
            found: list[SampleBlock] = []
            for number, task in enumerate(samples.learnt):
                asked = replace(sampled, batch=sampling.as_task(sampled.batch, task.name))
                answers = sampling.answers(asked.batch)
                if not any(sampling.alike([answers, block.answers]) for block in found if block.answers is not None):
                    found.append(SampleBlock.of(asked, number, answers))
            blocks += found
        return blocks

    def recall(
        self, state: ReplayState, running: ReplayRunning, rehearser: Rehearser
    ) -> tuple[Vector | None, ReplayRunning]:
        drawn, counters = state.samples.draw(running.counters, self.replay_samples)
        found = total_gradient(rehearser, [replace(each, temperature=self.temperature) for each in drawn])
        return found, replace(running, counters=counters)

    def gradient(self, g: Vector, step: Step[ReplayState, ReplayRunning]) -> Vector:
        heads = len({block.task for block in step.state.samples.blocks})
        return g if step.rehearsed is None else g + step.rehearsed * (self.strength * heads)

    def end_task(self, state: ReplayState, running: ReplayRunning, task: Task) -> tuple[ReplayState, ReplayRunning]:
        learnt = (*state.samples.learnt, task.sampling.learnt())
        return replace(state, samples=SampleMemory((), learnt)), running
