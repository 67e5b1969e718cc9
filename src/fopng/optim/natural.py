"""What methods share whose step has its length in the new task's Fisher."""

from dataclasses import dataclass, field
from typing import ClassVar, get_args

from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Labels
from fopng.curvature.kinds import Estimate, FisherKind, FisherName, fisher_kind
from fopng.curvature.metric import Metric
from fopng.memory.projection import trust_region_step
from fopng.optim.method import Method, TaskData
from fopng.optim.ranges import ABOVE_0, COUNT, COUNT_OR_ALL, choose


@dataclass(kw_only=True)
class FisherMetric(Method):
    """Mixed into methods whose step has its length in the new task's Fisher.

    Args:
        metric: how that Fisher is approximated.
        fisher_rank: how many of its directions are kept, where it is of low rank plus diagonal.
        damping: lambda, added to the Fisher before it is inverted.
        labels: which labels the Fisher uses.
        fisher_samples: how many samples it is estimated on, drawn anew each time; None for all.
    """

    metric: FisherName
    fisher_rank: int
    damping: float | Tensor
    labels: Labels
    fisher_samples: int | None

    needs_fisher: ClassVar[bool] = True
    own_start: ClassVar[bool] = False
    scalar_rate: ClassVar[bool] = True

    _metric: Metric | None = field(default=None, init=False, repr=False)

    def check(self) -> None:
        ABOVE_0.check(self, "damping")
        super().check()
        choose("metric", self.metric, get_args(FisherName))
        COUNT.check(self, "fisher_rank")
        choose("labels", self.labels, get_args(Labels))
        COUNT_OR_ALL.check(self, "fisher_samples")

    def refresh(self, task: TaskData) -> None:
        self.keep_fisher("new", self.estimate(task))
        self.forget_derived()

    def end_task(self, task: TaskData) -> None:
        super().end_task(task)
        self._drop_fisher("new")

    def attach(self, layout: ParamLayout) -> None:
        old: ParamLayout | None = getattr(self, "layout", None)
        for which in ("new", "old"):
            fisher = self.kept_fisher(which)
            if fisher is not None and old is not None and old != layout:
                grown = self.kind.carried(fisher.matrices, layout, old)
                self.matrices |= {f"{which} {key}": matrix for key, matrix in grown.items()}
        super().attach(layout)

    @property
    def variant(self) -> str:
        return f"metric={self.metric!r}" + (f", fisher_rank={self.fisher_rank}" if self.metric == "low-rank" else "")

    @property
    def kind(self) -> FisherKind:
        """How Fishers are approximated."""
        return fisher_kind(self.metric, self.fisher_rank)

    def matrix_numbers(self) -> int:
        return self.kind.numbers(self.layout)

    def estimate(self, task: TaskData) -> Estimate:
        """The Fisher of the task at hand."""
        return self.kind.estimate(task, self.labels, self.fisher_samples)

    def keep_fisher(self, which: str, fisher: Estimate) -> None:
        """Make a Fisher part of the state: `new` or `old`."""
        self._drop_fisher(which)
        self.vectors[f"fisher_{which}"] = fisher.vector
        self.matrices |= {f"{which} {key}": matrix for key, matrix in fisher.matrices.items()}

    def kept_fisher(self, which: str) -> Estimate | None:
        """A Fisher that is part of the state; None where there is none."""
        vector = self.vectors.get(f"fisher_{which}")
        own = {k.removeprefix(f"{which} "): m for k, m in self.matrices.items() if k.startswith(f"{which} ")}
        return None if vector is None else Estimate(vector, own)

    def _drop_fisher(self, which: str) -> None:
        self.vectors.pop(f"fisher_{which}", None)
        self.matrices = {key: m for key, m in self.matrices.items() if not key.startswith(f"{which} ")}

    def forget_derived(self) -> None:
        self._metric = None
        super().forget_derived()

    def natural_step(self, g: Tensor, lr: float | Tensor) -> Tensor:
        """The step of Fisher length `lr` along `F_new^-1 g`."""
        step = trust_region_step(self.step_metric(), g, radius=lr.squeeze(-1) if isinstance(lr, Tensor) else lr)
        # a metric that is not diagonal would move parameters that take no part along with their neighbours
        return step if self.metric == "diagonal" or self.active is None else step * self.active_mask(g)

    def step_metric(self) -> Metric:
        if self._metric is None:
            fisher = self.kept_fisher("new")
            assert fisher is not None
            self._metric = self.kind.metric(self.layout, fisher, self.damping)
        return self._metric
