"""Written by `tools/stubs.py`."""

from typing import Literal

import torch
from torch import nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.memory.probe import ProbeKind
from fopng.optim.first_task import FirstTask
from fopng.optim.groups import Groups
from fopng.optim.optimizer import ContinualOptimizer

class SGD(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class Adam(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-08,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class EWC(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        strength: float = 100.0,
        labels: Literal["observed", "sampled", "expected"] = "observed",
        fisher_samples: int | None = None,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class FNG(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        metric: Literal["diagonal", "kfac", "ekfac", "low-rank", "full"] = "diagonal",
        fisher_rank: int = 16,
        damping: float = 0.001,
        labels: Literal["observed", "sampled", "expected"] = "observed",
        fisher_samples: int | None = None,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class OGD(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        gram_damping: float | None = None,
        gradients_per_task: int = 80,
        max_directions: int | None = None,
        when_full: Literal["thin", "compress"] = "thin",
        kept_energy: float = 1.0,
        score: Literal["ground-truth", "average", "log-likelihood"] = "ground-truth",
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class FOPNG(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        metric: Literal["diagonal", "kfac", "ekfac", "low-rank", "full"] = "diagonal",
        fisher_rank: int = 16,
        damping: float = 0.001,
        labels: Literal["observed", "sampled", "expected"] = "observed",
        fisher_samples: int | None = None,
        gram_damping: float | None = None,
        gradients_per_task: int = 80,
        max_directions: int | None = None,
        when_full: Literal["thin", "compress"] = "thin",
        kept_energy: float = 1.0,
        score: Literal["ground-truth", "average", "log-likelihood"] = "ground-truth",
        projection: Literal["printed", "orthogonal"] = "printed",
        fisher_weight: float = 0.5,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class FOPNGPreFisher(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        metric: Literal["diagonal", "kfac", "ekfac", "low-rank", "full"] = "diagonal",
        fisher_rank: int = 16,
        damping: float = 0.001,
        labels: Literal["observed", "sampled", "expected"] = "observed",
        fisher_samples: int | None = None,
        gram_damping: float | None = None,
        gradients_per_task: int = 80,
        max_directions: int | None = None,
        when_full: Literal["thin", "compress"] = "thin",
        kept_energy: float = 1.0,
        score: Literal["ground-truth", "average", "log-likelihood"] = "ground-truth",
        projection: Literal["printed", "orthogonal"] = "printed",
        prefisher: Literal["diagonal", "empirical", "metric"] = "diagonal",
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class ONG(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        metric: Literal["diagonal", "kfac", "ekfac", "low-rank", "full"] = "diagonal",
        fisher_rank: int = 16,
        damping: float = 0.001,
        labels: Literal["observed", "sampled", "expected"] = "observed",
        fisher_samples: int | None = None,
        gram_damping: float | None = None,
        gradients_per_task: int = 80,
        max_directions: int | None = None,
        when_full: Literal["thin", "compress"] = "thin",
        kept_energy: float = 1.0,
        score: Literal["ground-truth", "average", "log-likelihood"] = "ground-truth",
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class NaturalOGD(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        metric: Literal["diagonal", "kfac", "ekfac", "low-rank", "full"] = "diagonal",
        fisher_rank: int = 16,
        damping: float = 0.001,
        labels: Literal["observed", "sampled", "expected"] = "observed",
        fisher_samples: int | None = None,
        gram_damping: float | None = None,
        gradients_per_task: int = 80,
        max_directions: int | None = None,
        when_full: Literal["thin", "compress"] = "thin",
        kept_energy: float = 1.0,
        score: Literal["ground-truth", "average", "log-likelihood"] = "ground-truth",
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class SI(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        strength: float = 1.0,
        damping: float = 0.001,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class MAS(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        strength: float = 1.0,
        sensitivity_samples: int | None = None,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class LwF(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        strength: float = 1.0,
        temperature: float = 2.0,
        distilled_samples: int | None = 2000,
        replay_samples: int = 10,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class ER(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        capacity: int = 1000,
        replay_samples: int = 10,
        strength: float = 1.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class GEM(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        samples_per_task: int = 256,
        replay_samples: int | None = None,
        margin: float = 0.5,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class AGEM(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        samples_per_task: int = 256,
        replay_samples: int = 256,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class OnlineEWC(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        strength: float = 100.0,
        labels: Literal["observed", "sampled", "expected"] = "observed",
        fisher_samples: int | None = None,
        decay: float = 0.95,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class KroneckerFOPNG(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.1,
        *,
        momentum: float = 0.0,
        tolerance: float | None = 0.1,
        rehearse: float = 3.0,
        strength: float = 10.0,
        signals: Literal["normal", "observed", "sampled", "expected"] = "sampled",
        fisher_samples: int | None = 2000,
        rank: int | None = 128,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class NCL(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.05,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        strength: float = 10000.0,
        signals: Literal["normal", "observed", "sampled", "expected"] = "sampled",
        fisher_samples: int | None = 2000,
        rank: int | None = 128,
        metric: Literal["kfac", "diagonal"] = "kfac",
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class GPM(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        input_samples: int | None = 300,
        threshold: float = 0.95,
        threshold_growth: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

class SGP(ContinualOptimizer):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        momentum: float = 0.0,
        tolerance: float | None = None,
        rehearse: float = 0.0,
        input_samples: int | None = 300,
        threshold: float = 0.95,
        threshold_growth: float = 0.0,
        importance_scale: float = 10.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None: ...

ALL_OPTIMIZERS: dict[str, type[ContinualOptimizer]]
