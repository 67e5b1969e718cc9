"""What the processes of a fleet do: the same life as one process alone, each with its shard of every batch."""

import os
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import fopng
from flat import flat
from fopng.core.batch import map_tensors, sample_count
from fopng.core.tree import from_plain, to_plain
from fopng.curvature.estimate import diagonal_fisher, layer_moments, sample_gradients
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gradients import GradientMemory
from fopng.optim.registry import METHODS
from fopng.parallel.collectives import Communicator, TorchCommunicator

TASKS = 3
DEVICE = torch.device(os.environ.get("FOPNG_FLEET_DEVICE", "cpu"))
"""Where the processes of a fleet compute."""


class Heads(nn.Module):
    """A trunk and a head a task, chosen by the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(4, 3) for _ in range(TASKS)])
        self.trunk = nn.Linear(5, 4)

    def forward(self, x: Tensor, task: int) -> Tensor:
        found: Tensor = self.heads[task](self.trunk(x).tanh())
        return found


class ByTask(fopng.PredictTask):
    """Batches `(x, y, task)`."""

    def __call__(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return model(batch[0], batch[2]), batch[1]

    def task_of(self, batch: Any) -> int:
        return int(batch[2])

    def as_task(self, batch: Any, task: Any) -> Any:
        return batch[0], batch[1], task


def trunk() -> nn.Module:
    """Convolution, normalisation and two linear layers: dense and factored gradients."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 5)),
        nn.Conv1d(1, 2, 3),
        nn.Flatten(),
        nn.LayerNorm(6),
        nn.Linear(6, 4),
        nn.Tanh(),
        nn.Linear(4, 3),
    )


@dataclass(frozen=True)
class Case:
    """A method with settings."""

    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    heads: bool = False

    @property
    def label(self) -> str:
        told = [f"{name}={value}" for name, value in self.settings.items()]
        return " ".join([self.method, *told, *(["heads"] if self.heads else [])])


PROJECTED = ("ogd", "ong", "natural-ogd", "fopng", "fopng-prefisher")
FIXED = {"tolerance": None, "rehearse": 0.0, "strength": 30.0}
SMALL = {
    **{name: {"gradients_per_task": 5} for name in PROJECTED},
    "er": {"capacity": 9, "replay_samples": 5},
    "a-gem": {"samples_per_task": 6, "replay_samples": 5},
    "gem": {"samples_per_task": 6, "replay_samples": 5},
    "lwf": {"replay_samples": 5, "distilled_samples": 11},
    "fopng-k": FIXED,
}
EVERY = [Case(name, SMALL.get(name, {})) for name in METHODS if name != "joint"]
FEW = {"gradients_per_task": 5}
FULL = {**FEW, "max_directions": 7}
MORE = [
    Case("fopng", {**FULL, "labels": "sampled"}),
    Case("fopng-prefisher", {**FULL, "when_full": "compress"}),
    Case("natural-ogd", {**FEW, "metric": "kfac", "labels": "sampled", "fisher_samples": 9}, True),
    Case("fopng", {"gradients_per_task": 2, "labels": "expected", "momentum": 0.5}),
    Case("fopng-prefisher", {**FEW, "prefisher": "metric", "metric": "kfac"}),
    Case("ewc", {"labels": "sampled", "fisher_samples": 9}),
    Case("gem", {"samples_per_task": 6}, True),
    Case("lwf", {"replay_samples": 5}, True),
]
"""For many processes."""
EVEN_MORE = [
    *(Case(case.method, case.settings, True) for case in EVERY),
    *(Case(name, {**FULL, "when_full": "compress"}) for name in PROJECTED[:-1]),
    *(Case("fopng", {**FEW, "metric": kind}) for kind in ("kfac", "ekfac", "full")),
    *(Case("fopng-prefisher", {**FEW, "prefisher": kind}) for kind in ("empirical", "metric")),
    Case("fopng", {**FEW, "metric": "low-rank", "fisher_rank": 20, "labels": "sampled"}),
    Case("fopng", {**FEW, "projection": "orthogonal", "metric": "ekfac", "labels": "sampled"}, True),
    Case("fng", {"labels": "sampled", "fisher_samples": 9}),
    Case("fopng-k", {**FIXED, "fisher_samples": 7, "signals": "normal"}),
    Case("ncl", {"fisher_samples": 7, "metric": "diagonal"}),
    Case("gpm", {"input_samples": 7}),
    Case("mas", {"sensitivity_samples": 7}),
]
"""For two."""


def cases(count: int) -> list[Case]:
    """What so many processes live through."""
    return {1: EVERY, 2: EVERY + MORE + EVEN_MORE, 4: EVERY + MORE}[count]


def data(case: Case) -> list[list[Any]]:
    """Tasks of two batches of eight samples."""
    torch.manual_seed(1)
    tasks = []
    for task in range(TASKS):
        pairs = [(torch.randn(8, 5, dtype=torch.float64) + task, torch.randint(3, (8,))) for _ in range(2)]
        tasks.append([(*pair, task) if case.heads else pair for pair in pairs])
    return tasks


def shard(batch: Any, number: int, count: int) -> Any:
    """Every W-th sample, as a sampler deals them out."""
    return tuple(part[number::count] if isinstance(part, Tensor) else part for part in batch)


class Life:
    """One run: alone, or one process of several."""

    def __init__(self, case: Case, *, alone: bool = False) -> None:
        torch.manual_seed(7)
        bare = (Heads() if case.heads else trunk()).double().to(DEVICE)
        self.case, self.model = case, bare
        self.number, self.count = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
        if not alone:
            # whatever the processes draw on their own must not matter
            torch.manual_seed(100 + self.number)
            self.model = DistributedDataParallel(bare, find_unused_parameters=case.heads)
        settings = {"predict": ByTask()} if case.heads else {}
        generator = torch.Generator().manual_seed(5 + self.number)
        self.optimizer = METHODS[case.method].optimizer(
            self.model, lr=0.05, generator=generator, **settings, **case.settings
        )
        shards = [[shard(batch, self.number, self.count) for batch in task] for task in data(case)]
        self.tasks = map_tensors(lambda tensor: tensor.to(DEVICE), shards)

    def answer(self, batch: Any) -> Tensor:
        found: Tensor = self.model(batch[0], batch[2]) if self.case.heads else self.model(batch[0])
        return found

    def learn(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        F.cross_entropy(self.answer(batch), batch[1]).backward()
        self.optimizer.step()

    removed: Tensor | None = None

    def task(self, number: int, *, skip: int = 0) -> None:
        """Live through a task, from a step on."""
        if not skip:
            self.optimizer.begin_task(number)
            self.optimizer.refresh(self.tasks[number])
        for batch in self.tasks[number][skip:]:
            self.learn(batch)
        self.removed = self.optimizer.removed_fraction()
        self.optimizer.end_task(self.tasks[number])

    def by_hand(self, number: int) -> None:
        """Live through a task with gradients that are averaged here."""
        self.optimizer.begin_task(number)
        self.optimizer.refresh(self.tasks[number])
        for batch in self.tasks[number]:
            self.optimizer.zero_grad()
            F.cross_entropy(self.answer(batch), batch[1]).backward()
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= self.count
            self.optimizer.step()
        self.optimizer.end_task(self.tasks[number])

    def parameters(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.optimizer.model.parameters()]).cpu()


def live(case: Case, *, alone: bool = False) -> dict[str, Any]:
    """A whole life: the parameters after each task, and what is known in the end."""
    life, trace = Life(case, alone=alone), []
    for task in range(TASKS):
        life.task(task)
        trace.append(life.parameters())
    state = life.optimizer.pipeline.state
    memory, samples = state.memory, getattr(state, "samples", None)
    return {
        "parameters": torch.stack(trace),
        "removed": life.removed,
        "generator": life.optimizer.generator.get_state(),
        "bytes": life.optimizer.pipeline.nbytes,
        "held": 0 if memory is None else memory.count,
        "samples": 0 if samples is None else sum(sample_count(block.batch) for block in samples.blocks),
        "state": life.optimizer.state_dict()["fopng"]["state"],
    }


def every_method() -> dict[str, Any]:
    """Every case."""
    warnings.simplefilter("ignore")
    return {case.label: live(case) for case in cases(dist.get_world_size())}


RESUMED = [
    *EVERY,
    *(Case(name, SMALL[name], True) for name in ("fopng", "er", "gem", "lwf")),
    Case("fopng-prefisher", {**FULL, "when_full": "compress"}),
]


def stopped(case: Case, *, alone: bool = False) -> dict[str, Any]:
    """The state in the middle of the last task."""
    life = Life(case, alone=alone)
    for task in range(TASKS - 1):
        life.task(task)
    life.optimizer.begin_task(TASKS - 1)
    life.optimizer.refresh(life.tasks[TASKS - 1])
    life.learn(life.tasks[TASKS - 1][0])
    return {"optimizer": life.optimizer.state_dict(), "model": life.optimizer.model.state_dict()}


def resumed(case: Case, saved: dict[str, Any], *, alone: bool = False) -> Tensor:
    """The parameters at the end of a life that was stopped."""
    life = Life(case, alone=alone)
    life.optimizer.model.load_state_dict(saved["model"])
    life.optimizer.load_state_dict(saved["optimizer"])
    life.task(TASKS - 1, skip=1)
    return life.parameters()


def stop() -> dict[str, Any]:
    """Every state."""
    warnings.simplefilter("ignore")
    return {case.label: stopped(case) for case in RESUMED}


def resume() -> dict[str, Tensor]:
    """Go on from the states that others left."""
    warnings.simplefilter("ignore")
    saved = torch.load(Path(os.environ["FOPNG_FLEET"]).parent / "saved.pt", weights_only=True)
    return {case.label: resumed(case, saved[case.label]) for case in RESUMED}


def lose_one() -> dict[str, Any]:
    """One process dies in the middle of a task; what the others meet, and how long it takes them."""
    life = Life(Case("fopng", FEW))
    life.task(0)
    life.optimizer.begin_task(1)
    life.optimizer.refresh(life.tasks[1])
    if life.number == 1:
        os._exit(0)
    start = time.monotonic()
    try:
        for batch in life.tasks[1] * 50:
            life.learn(batch)
    except Exception as failure:
        return {"seconds": time.monotonic() - start, "error": repr(type(failure).__mro__)}
    return {"seconds": time.monotonic() - start, "error": "none"}


def lack_samples() -> dict[str, Any]:
    """One process has no samples of a task; in another task, its gradients are not finite."""
    told: dict[str, Any] = {}
    life = Life(Case("ogd", FEW))
    life.optimizer.begin_task(0)
    try:
        life.optimizer.end_task([] if life.number else life.tasks[0])
    except ValueError as failure:
        told["nothing"] = str(failure)
    broken = [(batch[0] * (float("nan") if life.number else 1.0), batch[1]) for batch in life.tasks[0]]
    try:
        life.optimizer.end_task(broken)
    except FloatingPointError as failure:
        told["broken"] = str(failure)
    life.task(0)
    memory = life.optimizer.pipeline.state.memory
    assert memory is not None
    return {**told, "stored": dense(memory, life.optimizer.source)}


def dense(memory: GradientMemory, source: PerSampleGradients) -> Tensor:
    """`G^T [m, p]`."""
    return flat(memory.rows(), source.layout.shapes)


def share_by_hand() -> dict[str, Any]:
    """A model that something else wraps, or nothing at all."""
    case, told = Case("fopng", FEW), {}
    wrapped = Life(case)
    bare = METHODS[case.method].optimizer(wrapped.optimizer.model, lr=0.05, **FEW)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bare.begin_task(0)
    told["warning"] = str(caught[0].message)
    life = Life(case)
    life.model = life.optimizer.model
    generator = torch.Generator().manual_seed(5 + life.number)
    life.optimizer = METHODS[case.method].optimizer(life.model, lr=0.05, generator=generator, **FEW)
    life.optimizer.share()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for task in range(2):
            wrapped.task(task)
            life.by_hand(task)
    told["warned again"] = " ".join(str(each.message) for each in caught if each.category is fopng.NotShared)
    try:
        life.optimizer.share()
    except RuntimeError as failure:
        told["too late"] = str(failure)
    return {**told, "parameters": life.parameters(), "expected": wrapped.parameters()}


def uneven_steps() -> dict[str, Any]:
    """A task in which one process has more batches than the others, then one in which all have as many."""
    life = Life(Case("fopng-k", FIXED))
    assert isinstance(life.model, DistributedDataParallel)
    for task in range(2):
        life.optimizer.begin_task(task)
        with life.model.join():
            for batch in life.tasks[task] * (3 if task == life.number == 0 else 1):
                life.learn(batch)
        life.optimizer.end_task(life.tasks[task])
    return {"steps": life.optimizer.steps, "parameters": life.parameters()}


def estimates(batches: list[Any], communicator: Communicator) -> dict[str, Tensor]:
    """What is estimated of a model on data of which this process has a part."""
    torch.manual_seed(3)
    source = PerSampleGradients(trunk().double())
    stream = LoaderStream(batches, torch.Generator().manual_seed(4), communicator)
    moments = layer_moments(source, stream, samples=5)
    memory = GradientMemory()
    for _ in range(2):
        memory = memory.appended(*sample_gradients(source, stream, 5))
    return {
        "saved": dense(from_plain(to_plain(memory)), source),
        "fisher": flat(diagonal_fisher(source, stream, labels="sampled"), source.layout.shapes),
        "signals": moments.layers["6.weight", "6.bias"].signals,
        "stored": dense(memory, source),
        "gram": memory.gram(None),
    }


def uneven() -> dict[str, Tensor]:
    """Shards of five samples and of three; more processes than stored gradients have rows."""
    x, y = data(EVERY[0])[0][0]
    order = sorted((row, process) for process, n in enumerate((5, 3)) for row in range(n))
    own = [k for k, (_, process) in enumerate(order) if process == dist.get_rank()]
    return estimates([(x[own[:2]], y[own[:2]]), (x[own[2:]], y[own[2:]])], TorchCommunicator(None, torch.device("cpu")))
