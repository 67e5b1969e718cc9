"""Learning without Forgetting (Li and Hoiem, 2016)."""

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.memory.replay_draws import TaskSamples
from fopng.memory.replay_samples import Block, Rehearser
from fopng.optim.method import TaskData, beside
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import ABOVE_0, AT_LEAST_0, COUNT, COUNT_OR_ALL
from fopng.optim.rehearsal import total_gradient
from fopng.optim.replay_base import Rehearsal, RehearsingMethod


@final
@dataclass(kw_only=True)
class LwFMethod(RehearsingMethod):
    """`v = eta (g + strength sum_h g_h)`, `g_h` the gradient of `-mean_n E_y log p(y | outputs_n / T)` over `y ~ p(.|a_n / T)`.

    Eq. 2 and 3. `a_n` is what the old model's head h answered to sample n of the *new* task, before anything was learnt of it.

    Args:
        strength: lambda_o, the weight of each old head.
        temperature: T.
        distilled_samples: how many samples of the new task the old model is asked about; None for all.
        replay_samples: how many of them are answered again in a step, over all heads.
    """

    strength: float | Tensor
    temperature: float | Tensor
    distilled_samples: int | None
    replay_samples: int

    @property
    def missing(self) -> str | None:
        return "the old model's answers to the new task" if self.kept.learnt and not self.kept.blocks else None

    def check(self) -> None:
        super().check()
        AT_LEAST_0.check(self, "strength")
        ABOVE_0.check(self, "temperature")
        COUNT_OR_ALL.check(self, "distilled_samples")
        COUNT.check(self, "replay_samples")

    def extent(self, tasks: int, samples: int) -> Rehearsal:
        return Rehearsal(min(samples, self.distilled_samples or samples), max(self.replay_samples, tasks), 2)

    def refresh(self, task: TaskData) -> None:
        if self.missing is not None:
            blocks = self._answered(task.sampling)
            self.kept.add(blocks, together=False)
            self.kept.seed(task.sampling, blocks[0].ranks.device)

    def _answered(self, sampling: TaskSamples) -> list[Block]:
        """The new samples as each old head answers them now; heads that answer alike are one."""
        blocks: list[Block] = []
        for sampled in sampling.draw(self.distilled_samples):
            found: list[Block] = []
            for number, task in enumerate(self.kept.learnt):
                asked = replace(sampled, batch=sampling.as_task(sampled.batch, task.name))
                answers = sampling.answers(asked.batch)
                if not any(sampling.alike([answers, block.answers]) for block in found if block.answers is not None):
                    found.append(Block.of(asked, number, answers))
            blocks += found
        return blocks

    def rehearse(self, rehearser: Rehearser) -> None:
        drawn = [replace(each, temperature=self.temperature) for each in self.kept.draw(self.replay_samples)]
        self._old = total_gradient(rehearser, drawn)

    def gradient(self, g: Tensor, theta: Tensor | None) -> Tensor:
        heads = len({block.task for block in self.kept.blocks})
        return g if self._old is None else g + beside(self.strength) * heads * self._old

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return lr * g

    def end_task(self, task: TaskData) -> None:
        self.kept.learnt.append(task.sampling.learnt())
        self.kept.blocks.clear()


@final
class LwF(ContinualOptimizer):
    """Learning without Forgetting: SGD on the new task, and what the old model answered to its samples answered again.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        strength: lambda_o, the weight of the old answers of each head, that of the new targets being 1.
        temperature: T, by which answers are divided before they are compared: above 1, small probabilities count for more.
        distilled_samples: how many samples of the new task the old model is asked about; None for all.
        replay_samples: how many of those are answered again in a step, over all old heads.
        momentum: how much of the running sum of gradients is kept each step, before it is projected.
        first_task: the optimizer that steps until the first `end_task`; None for the method itself, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
            For a model with a head a task, a `fopng.PredictTask`: old heads are asked about new samples.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters with a learning rate of their own, `[{"params": ..., "lr": ...}]`.
        generator: draws samples and labels; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        strength: float = 1.0,
        temperature: float = 2.0,
        distilled_samples: int | None = 2000,
        replay_samples: int = 10,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = LwFMethod(
            momentum=momentum,
            strength=strength,
            temperature=temperature,
            distilled_samples=distilled_samples,
            replay_samples=replay_samples,
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
