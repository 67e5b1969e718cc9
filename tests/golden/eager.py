"""Every optimizer through its public life cycle, in float64: three tasks of three steps, and where the weights are then.

Nothing of fopng is used here but its optimizers, its likelihoods and `PredictTask`.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import fopng
from golden.worlds import WORLDS, World

TOLERANCE = 1e-12
"""A last bit becomes 1e-13 at the most (`record.py --sensitivity`)."""

ILL_CONDITIONED = 3e-11
"""A low-rank or full Fisher of twelve samples is nothing but its damping in most directions: a last bit becomes 3e-12."""


@dataclass(frozen=True)
class Case:
    """One optimizer on one world.

    Args:
        method: the optimizer's name in fopng.
        world: a name in `WORLDS`.
        settings: what the optimizer is made with beside the model and the learning rate.
        first: a torch optimizer for the first task, made of the parameters.
        slow: the last parameter has a learning rate of its own, an eighth of the others'; both are powers of two, for rates that
            differ between parameters pass through float32.
    """

    method: str
    world: str = "mlp"
    settings: dict[str, Any] = field(default_factory=dict)
    first: Any = None
    slow: bool = False
    lr: float = 0.05

    @property
    def name(self) -> str:
        told = [f"{key}={value}" for key, value in self.settings.items()]
        first = [] if self.first is None else [f"first_task={self.first.__name__}"]
        slow = ["slow last parameter"] if self.slow else []
        return ", ".join([self.method, self.world, *told, *first, *slow])

    @property
    def tolerance(self) -> float:
        """How far a weight may be off, relatively and absolutely."""
        return ILL_CONDITIONED if self.settings.get("metric") in ("low-rank", "full") else TOLERANCE


FIVE_METRICS = ("diagonal", "kfac", "ekfac", "low-rank", "full")
STORING = {"gradients_per_task": 3}
FEW = {"fisher_samples": 8}
KRONECKER = {"tolerance": None, "rehearse": 0.0, "strength": 1.0}

# what each method is made with where nothing else is asked for: sizes that fit so few samples
SMALL: dict[str, dict[str, Any]] = {
    "SGD": {},
    "Adam": {},
    "EWC": {"strength": 10.0},
    "OnlineEWC": {"strength": 10.0},
    "SI": {"strength": 0.5, "damping": 0.1},
    "MAS": {},
    "LwF": {"distilled_samples": 8, "replay_samples": 3},
    "ER": {"capacity": 7, "replay_samples": 3},
    "GEM": {"samples_per_task": 5},
    "AGEM": {"samples_per_task": 5, "replay_samples": 3},
    "GPM": {"threshold": 0.7},
    "SGP": {"threshold": 0.7},
    "FNG": {},
    "OGD": STORING,
    "ONG": STORING,
    "NaturalOGD": STORING,
    "FOPNG": STORING,
    "FOPNGPreFisher": STORING,
    "KroneckerFOPNG": KRONECKER,
    "NCL": {"strength": 10.0},
}
FISHER = ("FNG", "ONG", "NaturalOGD", "FOPNG", "FOPNGPreFisher")
PROJECTED = ("OGD", "ONG", "NaturalOGD", "FOPNG", "FOPNGPreFisher")
FORMS = ("FOPNG", "FOPNGPreFisher")
DRAWING = ("EWC", "OnlineEWC", *FISHER)
SOFT = ("KroneckerFOPNG", "NCL")
# these refuse a model that grows
FIXED = SOFT


def case(method: str, world: str = "mlp", *, first: Any = None, slow: bool = False, **settings: Any) -> Case:
    return Case(method, world, {**SMALL[method], **settings}, first, slow, lr=1 / 16 if slow else 0.05)


def _cases() -> list[Case]:
    found = [case(method, world) for world in ("mlp", "heads", "conv", "text") for method in SMALL]
    found += [case(method, "growing") for method in SMALL if method not in FIXED]
    found += [case(method, "tokens") for method in ("EWC", "FOPNG", "OGD", "MAS", "GPM", "LwF", *SOFT)]
    found += [case(method, "tied") for method in ("EWC", "FOPNG", "MAS", *SOFT)]
    found += [case("FOPNG", "tokens", metric="kfac"), case("FOPNG", "text", metric="ekfac")]
    found += [case(method, "dropout") for method in ("FOPNG", "LwF", "ER", "GEM")]
    found += [case(method, slow=True) for method in ("SGD", "EWC", "GPM", *SOFT)]
    found += [case(method, world) for world in ("regression", "yes_or_no") for method in ("FOPNG", "LwF", *SOFT)]
    found += [case(method, momentum=0.9) for method in SMALL if method != "Adam"]
    found += [
        case(method, world, metric=metric, fisher_rank=4)
        for method in FISHER
        for metric in FIVE_METRICS[1:]
        for world in (("mlp", "conv") if method == "FOPNG" else ("mlp",))
    ]
    found += [case(method, labels=labels, **FEW) for method in DRAWING for labels in ("sampled", "expected")]
    found += [case("FOPNG", metric="kfac", labels=labels) for labels in ("sampled", "expected")]
    found += [case(method, projection="orthogonal") for method in FORMS]
    found += [case("FOPNG", projection="orthogonal", metric=metric, fisher_rank=4) for metric in FIVE_METRICS[1:]]
    found += [
        case("FOPNGPreFisher", prefisher=prefisher, metric=metric)
        for prefisher in ("empirical", "metric")
        for metric in ("diagonal", "kfac")
    ]
    for when_full in ("thin", "compress"):
        found += [case(method, max_directions=4, when_full=when_full) for method in PROJECTED]
    found.append(case("FOPNG", max_directions=4, when_full="compress", kept_energy=0.9, projection="orthogonal"))
    found.append(case("FOPNGPreFisher", max_directions=4, when_full="compress", prefisher="empirical"))
    found += [case("FOPNG", score=score) for score in ("average", "log-likelihood")]
    found.append(case("FOPNG", fisher_weight=0.2, gram_damping=0.1, damping=0.01))
    found += [case(method, first_task="own") for method in (*FISHER, "OGD")]
    found += [case(method, first=torch.optim.Adam) for method in ("FOPNG", "EWC", "KroneckerFOPNG")]
    found.append(case("NCL", metric="diagonal"))
    found += [case(method, rank=2) for method in SOFT]
    found += [case(method, signals=signals, **FEW) for method in SOFT for signals in ("observed", "expected", "normal")]
    found.append(case("KroneckerFOPNG", strength=30.0))
    found += [case(method, threshold_growth=0.1, input_samples=7) for method in ("GPM", "SGP")]
    found += [case("SGP", importance_scale=1.0), case("GPM", threshold=0.95), case("LwF", temperature=1.0)]
    found += [case("ER", strength=0.5), case("GEM", replay_samples=2, margin=0.0), case("OnlineEWC", decay=0.5)]
    return found


CASES = {each.name: each for each in _cases()}


def optimizer_for(which: Case, world: World) -> fopng.ContinualOptimizer:
    settings = dict(which.settings)
    if which.slow:
        *_, last = world.model.parameters()
        settings["groups"] = [{"params": [last], "lr": which.lr / 8}]
    if which.first is not None:
        settings["first_task"] = which.first(world.model.parameters(), 0.01)
    if world.predict is not None:
        settings["predict"] = world.predict
    if world.likelihood is not None:
        settings["likelihood"] = world.likelihood
    generator = torch.Generator().manual_seed(5)
    return getattr(fopng, which.method)(world.model, which.lr, generator=generator, **settings)


def weights(which: Case) -> Tensor:
    """The parameters before the last `end_task`, and after it: `[2, p]`."""
    with warnings.catch_warnings():
        # where the memory is small on purpose
        warnings.simplefilter("ignore", fopng.MemoryFull)
        return _weights(which)


def _weights(which: Case) -> Tensor:
    torch.manual_seed(0)
    world = WORLDS[which.world]()
    optimizer = optimizer_for(which, world)
    for number, batches in enumerate(world.tasks):
        if number:
            world.between_tasks(optimizer)
        optimizer.begin_task(number)
        optimizer.refresh(batches)
        for batch in batches:
            optimizer.zero_grad()
            world.loss_of(batch).backward()
            optimizer.step()
        before = world.parameters()
        optimizer.end_task(batches)
    return torch.stack([before, world.parameters()])
