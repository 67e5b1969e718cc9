"""Every method equals the dense formula of the paper, parameter by parameter after every step."""

from collections.abc import Collection
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor, nn

import fopng
import zoo
from flat import named
from fopng.curvature.fishers import DiagonalFisher
from methods.dense import Dense
from methods.worlds import PROJECTED, World, flat, make, multi_head, run, single_head, step_of

WORLDS = {"single-head": single_head, "multi-head": multi_head}
VARIANTS = {
    "projection": [
        {"projection": "orthogonal"},
        {"gram_damping": 1e-2},
        {"projection": "orthogonal", "gram_damping": 0.3},
    ],
    "fisher": [
        {"labels": "sampled"},
        {"labels": "expected"},
        {"fisher_samples": 5},
        {"fisher_samples": 5, "labels": "sampled"},
    ],
    "memory": [{"score": "average"}, {"score": "log-likelihood"}, {"gradients_per_task": 50}],
    "metric": [
        {"metric": "kfac"},
        {"metric": "kfac", "labels": "sampled", "fisher_samples": 5, "damping": 0.1},
        {"metric": "kfac", "labels": "expected"},
        {"metric": "low-rank", "fisher_rank": 3},
        {"metric": "low-rank", "fisher_rank": 2, "labels": "sampled", "fisher_samples": 5, "damping": 0.1},
        {"metric": "low-rank", "labels": "expected"},
        {"metric": "full"},
        {"metric": "full", "labels": "sampled", "fisher_samples": 5, "damping": 0.1},
    ],
    "moments": [
        {"signals": "observed", "strength": 3.0},
        {"signals": "normal", "fisher_samples": 5},
        {"signals": "expected", "strength": 3.0},
        {"fisher_samples": 5},
    ],
    "common": [{}, {"momentum": 0.7}, {"first_task": "own"}],
}
ACCEPTS = {
    "SGD": ("common",),
    "Adam": ("common",),
    "EWC": ("common", "fisher"),
    "OnlineEWC": ("common", "fisher"),
    "GPM": ("common",),
    "SGP": ("common",),
    "FNG": ("common", "fisher", "metric"),
    "OGD": ("common", "memory"),
    "ONG": ("common", "fisher", "memory", "metric"),
    "NaturalOGD": ("common", "fisher", "memory", "metric"),
    "FOPNG": ("projection", "fisher", "memory", "common", "metric"),
    "FOPNGPreFisher": ("projection", "fisher", "memory", "common", "metric"),
    "KroneckerFOPNG": ("common", "moments"),
    "NCL": ("common", "moments"),
}
OWN = {
    "KroneckerFOPNG": [{"strength": 3.0}, {"strength": 10.0, "signals": "expected"}],
    "NCL": [
        {"metric": "diagonal"},
        {"metric": "diagonal", "signals": "expected", "strength": 3.0},
    ],
    "EWC": [{"strength": 3.0}],
    "OnlineEWC": [{"strength": 3.0, "decay": 0.3}],
    "GPM": [
        {"threshold": 0.5},
        {"threshold": 0.6, "threshold_growth": 0.1},
        {"input_samples": 3},
        {"input_samples": None},
    ],
    "SGP": [{"threshold": 0.7, "importance_scale": 0.0}, {"threshold_growth": 0.02, "importance_scale": 3.0}],
    "OGD": [{"gram_damping": 0.2}],
    "ONG": [{"gram_damping": 0.2}],
    "NaturalOGD": [{"gram_damping": 0.2}, {"damping": 0.1}],
    "FNG": [{"damping": 0.1}],
    "FOPNG": [{"fisher_weight": 0.2}, {"damping": 0.1}, {"metric": "kfac", "projection": "orthogonal"}],
    "FOPNGPreFisher": [
        {"prefisher": "metric", "metric": "kfac"},
        {"prefisher": "metric", "metric": "full", "projection": "orthogonal"},
        {"prefisher": "metric", "metric": "low-rank", "fisher_rank": 3},
        {"prefisher": "metric"},
        {"prefisher": "empirical", "metric": "kfac"},
        {"prefisher": "empirical"},
        {"prefisher": "empirical", "projection": "orthogonal", "gram_damping": 1e-2},
    ],
}


def name_case(value: object) -> str:
    return value if isinstance(value, str) else "-".join(map(str, value.values())) or "defaults"


CASES = [
    (name, settings)
    for name in ACCEPTS
    for settings in [*(s for group in ACCEPTS[name] for s in VARIANTS[group]), *OWN.get(name, [])]
]


def single_head_twin() -> World:
    """The same world again."""
    torch.manual_seed(0)
    return single_head()


def assert_same(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).norm() <= 1e-10 * expected.norm()


def assert_follows(
    name: str, world: World, settings: dict, epochs: int = 2, without: Collection[int] = ()
) -> tuple[fopng.ContinualOptimizer, Dense]:
    """Walk the optimizer and its dense twin side by side, and see that both move; some parameters only in the first task."""
    twin, start = world.twin(), flat(world.model)
    optimizer = make(name, world, generator=torch.Generator().manual_seed(7), **settings)
    if name in PROJECTED:
        settings = {"gradients_per_task": 4, **settings}
    dense = Dense(name, twin.model, 0.05, world.ask, torch.Generator().manual_seed(7), **settings)
    for task, loader in enumerate(world.loaders):
        world.enter(task), twin.enter(task), optimizer.begin_task(task)
        for _ in range(epochs):
            optimizer.refresh(loader)
            dense.refresh(world.whole(task))
            for batch in loader:
                optimizer.zero_grad()
                world.loss(batch).backward()
                for k in without if task else ():
                    list(world.model.parameters())[k].grad = None
                optimizer.step()
                dense.step(twin.loss(batch), without if task else ())
                assert_same(flat(world.model), flat(twin.model))
        optimizer.end_task(loader)
        dense.end_task(world.whole(task))
    assert (flat(world.model) - start).norm() > 1e-3
    return optimizer, dense


@pytest.mark.parametrize("heads", WORLDS)
@pytest.mark.parametrize(("name", "settings"), CASES, ids=name_case)
def test_every_step_is_the_formula(name, settings, heads):
    assert_follows(name, WORLDS[heads](), settings)


THINNED = [*((name, {}) for name in PROJECTED), ("FOPNGPreFisher", {"prefisher": "empirical"})]


@pytest.mark.parametrize("heads", WORLDS)
@pytest.mark.parametrize(("name", "settings"), THINNED, ids=name_case)
@pytest.mark.filterwarnings("ignore::fopng.MemoryFull")
def test_a_thinned_memory_is_the_formula_on_what_is_left(name, settings, heads):
    assert_follows(name, WORLDS[heads](), {"max_directions": 5, **settings})


@pytest.mark.parametrize("heads", WORLDS)
@pytest.mark.parametrize(
    "limit", [{"max_directions": 5}, {"max_directions": 3}, {"max_directions": 6, "kept_energy": 0.8}]
)
@pytest.mark.parametrize(("name", "settings"), THINNED, ids=name_case)
def test_a_compressed_memory_is_the_formula_on_the_leading_directions(name, settings, limit, heads):
    """From the second task on, and with three directions from the first on, before the method has taken a step."""
    optimizer, dense = assert_follows(name, WORLDS[heads](), {"when_full": "compress", **limit, **settings})
    told = optimizer.diagnose()
    assert told.directions == limit["max_directions"]
    assert 1e-3 < told.compression_error < 1
    torch.testing.assert_close(float(told.compression_error), dense.lost[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", PROJECTED)
def test_a_memory_that_is_not_full_is_not_compressed(name):
    one, other = single_head(), single_head_twin()
    optimizer = make(name, one, when_full="compress", max_directions=12)
    assert torch.equal(run(optimizer, one), run(make(name, other), other))
    assert optimizer.diagnose().compression_error == 0


@pytest.mark.parametrize("without", [[1], [0, 3]], ids=["bias", "weight and bias"])
@pytest.mark.parametrize("name", ACCEPTS)
def test_a_layer_of_which_only_a_part_takes_part(name, without):
    assert_follows(name, single_head(), {}, without=without)


def test_thinning_is_said():
    world = single_head()
    with pytest.warns(fopng.MemoryFull, match=r"max_directions=5\): kept \[3, 2\]"):
        run(make("OGD", world, max_directions=5), world, range(2))


# what the dense twin knows of layers: of tables, packed and tied weights tests/test_capture.py has the factors
BY_LAYER = ("GPM", "SGP", "KroneckerFOPNG", "NCL")
KINDS = [
    (name, build)
    for name in ACCEPTS
    for build in (zoo.cnn, zoo.transformer, zoo.tied, zoo.used_twice, zoo.class_token)
    if name not in BY_LAYER or build in (zoo.cnn, zoo.used_twice)
]


@pytest.mark.parametrize(("name", "build"), KINDS)
def test_models_of_every_kind(name, build):
    case = build()
    world = World(case.model.eval(), [[case.batch], [case.batch]], case.ask)
    assert_follows(name, world, {}, epochs=1)


# Methods that are one another


@pytest.mark.parametrize("heads", WORLDS)
def test_online_ewc_without_decay_is_ewc(heads):
    one = WORLDS[heads]()
    other = one.twin()
    found = run(make("OnlineEWC", one, decay=1.0, momentum=0.5), one)
    assert torch.equal(found, run(make("EWC", other, momentum=0.5), other))


def test_prefisher_with_one_old_task_is_fopng():
    one, other = single_head(), single_head_twin()
    assert_same(run(make("FOPNG", one), one, range(2)), run(make("FOPNGPreFisher", other), other, range(2)))


@pytest.mark.parametrize("name", ["FOPNG", "FOPNGPreFisher", "ONG", "NaturalOGD"])
def test_with_an_empty_memory_it_is_the_fisher_natural_gradient(name):
    one, other = single_head(), single_head_twin()
    found = run(make(name, one, first_task="own"), one, range(1))
    assert torch.equal(found, run(make("FNG", other, first_task="own"), other, range(1)))


@pytest.mark.parametrize("name", ["FOPNG", "NaturalOGD", "FOPNGPreFisher", "ONG"])
def test_in_the_identity_metric_the_orthogonal_form_is_ogd(name):
    world = single_head()
    settings = {"projection": "orthogonal"} if name.startswith("FOPNG") else {}
    optimizer, ogd = make(name, world, **settings), make("OGD", world)
    for member in (optimizer, ogd):
        member.generator.manual_seed(3)
        member.begin_task(0)
        member.end_task(world.loaders[0])
    ones = torch.ones_like(flat(world.model))
    shapes, state = optimizer.layout.shapes, optimizer.pipeline.state
    fishers = {"fisher_old": ones, "fisher_new": ones - optimizer.method.damping}
    made = {own.name: DiagonalFisher(named(fishers[own.name], shapes)) for own in fields(state) if own.name in fishers}
    if name == "FOPNGPreFisher":
        made["gradients"] = ogd.pipeline.state.gradients
    optimizer.pipeline.state = replace(state, **made)
    g = torch.randn_like(ones)
    along, expected = (step_of(member, g, 1.0) for member in (optimizer, ogd))
    assert_same(along, expected / expected.norm())


def clipped_gradients(parameters, loss: Tensor) -> None:
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 0.5)


@pytest.mark.parametrize("heads", WORLDS)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda m: fopng.SGD(m, 0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (lambda m: fopng.SGD(m, 0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        (lambda m: fopng.Adam(m, 0.1), lambda p: torch.optim.Adam(p, 0.1)),
        (
            lambda m: fopng.Adam(m, 0.1, betas=(0.5, 0.8), epsilon=1e-3),
            lambda p: torch.optim.Adam(p, 0.1, betas=(0.5, 0.8), eps=1e-3),
        ),
    ],
    ids=["SGD", "momentum", "Adam", "Adam-betas"],
)
def test_plain_optimizers_are_those_of_torch(heads, ours, theirs):
    """In turns through all heads: skipped parameters keep their moments and their step counts."""
    world = WORLDS[heads]()
    twin = world.twin()
    optimizer, other = ours(world.model), theirs(twin.model.parameters())
    for k in range(12):
        for here, stepping in ((world, optimizer), (twin, other)):
            here.enter(k * k % 3)
            stepping.zero_grad()
            clipped_gradients(here.model.parameters(), here.loss(here.loaders[k % 3][0]))
            stepping.step()
        assert_same(flat(world.model), flat(twin.model))
