"""The methods that rehearse samples, from their papers' formulas on whole memories, and what they have in common."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fopng
from flat import flat as flat_vector
from flat import named
from fopng.core.vector import Vector
from fopng.optim.method import Prepared, Step
from fopng.optim.replay_base import gradients_by_task
from methods.test_importance import gradient, put
from methods.worlds import Heads, World, data, flat, live, make, multi_head, run, single_head
from test_cone import nearest_in_cone

ALL = {
    "ER": {"capacity": 99, "replay_samples": 99},
    "AGEM": {"samples_per_task": 99, "replay_samples": 99},
    "GEM": {"samples_per_task": 99, "margin": 0.0},
    "LwF": {"distilled_samples": None, "replay_samples": 99},
}
"""Everything is kept, and rehearsed in every step: nothing is left to chance."""


class TaskHeads(Heads):
    """Heads that are chosen by the batch."""

    def forward(self, x: Tensor, task: int) -> Tensor:
        head: Tensor = self.heads[task](self.trunk(x).tanh())
        return head


class ByTask(fopng.PredictTask):
    """Batches (x, y, task)."""

    def __call__(self, model, batch):
        return model(batch[0], self.task_of(batch)), batch[1]

    def task_of(self, batch):
        return batch[2]

    def as_task(self, batch, task):
        return (*batch[:2], task)


def separate() -> World:
    loaders = [[(x, y, task) for x, y in loader] for task, loader in enumerate(data())]
    return World(TaskHeads().double(), loaders, ByTask())


WORLDS = {"shared": single_head, "separate": separate}


def whole(world: World, task: int):
    x, y, *_ = zip(*world.loaders[task], strict=True)
    return (torch.cat(x), torch.cat(y), *world.loaders[task][0][2:])


class Dense:
    """SGD, with what each method makes of the gradient; one autograd call for each loss of the paper's formula."""

    def __init__(self, world: World, lr: float = 0.05) -> None:
        self.world, self.lr, self.task = world, lr, 0

    def begin_task(self, task: int) -> None:
        self.task = task

    def losses(self) -> list[Tensor]:
        """The mean loss on all samples of each old task."""
        return [self.world.loss(whole(self.world, task)) for task in range(self.task)]

    def step(self, batch) -> None:
        model = self.world.model
        direction = self.direction(gradient(self.world.loss(batch), model))
        put(model, flat(model) - self.lr * direction)


class DenseER(Dense):
    """The loss of the new batch and of a batch of the memory: here all of it. Tasks have as many samples each."""

    def direction(self, g: Tensor) -> Tensor:
        return g if self.task == 0 else g + gradient(sum(self.losses()) / self.task, self.world.model)


class DenseAGEM(Dense):
    """Chaudhry et al., eq. 11."""

    def direction(self, g: Tensor) -> Tensor:
        if self.task == 0:
            return g
        r = gradient(sum(self.losses()) / self.task, self.world.model)
        return g if g @ r >= 0 else g - (g @ r) / (r @ r) * r


class DenseGEM(Dense):
    """Lopez-Paz and Ranzato, eq. 8, by trying every set of constraints; eq. 11 and 12 have the same solution."""

    def direction(self, g: Tensor) -> Tensor:
        if self.task == 0:
            return g
        return nearest_in_cone(g, torch.stack([gradient(loss, self.world.model) for loss in self.losses()]))


class DenseLwF(Dense):
    """Li and Hoiem, eq. 2 and 3, `T = 2`: the old heads' answers to the new samples, before anything was learnt of them."""

    def begin_task(self, task: int) -> None:
        super().begin_task(task)
        x = whole(self.world, task)[0]
        heads = (
            [(x, None, old) for old in range(task)]
            if self.world.ask.__class__ is ByTask
            else [(x, None)] * min(1, task)
        )
        self.old = [(asked, self.world.ask(self.world.model, asked)[0].detach()) for asked in heads]

    def direction(self, g: Tensor) -> Tensor:
        for asked, answers in self.old:
            outputs = self.world.ask(self.world.model, asked)[0]
            loss = -((answers / 2).softmax(-1) * (outputs / 2).log_softmax(-1)).sum(-1).mean()
            g = g + gradient(loss, self.world.model)
        return g


DENSE = {"ER": DenseER, "AGEM": DenseAGEM, "GEM": DenseGEM, "LwF": DenseLwF}


@pytest.mark.parametrize("heads", WORLDS)
@pytest.mark.parametrize("name", DENSE)
def test_every_step_is_the_formula(name, heads):
    world = WORLDS[heads]()
    # the second task contradicts the first, so that there is something to project
    world.loaders[1] = [(x, (y + 1) % 3, *world.loaders[1][0][2:]) for x, y, *_ in world.loaders[0]]
    dense = DENSE[name](world.twin())
    optimizer = make(name, world, **ALL[name])
    plain, differs = world.twin(), False
    for task, loader in enumerate(world.loaders):
        optimizer.begin_task(task), dense.begin_task(task)
        for _ in range(3):
            optimizer.refresh(loader)
            for batch in loader:
                put(plain.model, flat(world.model) - 0.05 * gradient(world.loss(batch), world.model))
                optimizer.zero_grad()
                world.loss(batch).backward()
                optimizer.step()
                dense.step(batch)
                torch.testing.assert_close(flat(world.model), flat(dense.world.model), rtol=1e-9, atol=1e-11)
                differs |= not torch.allclose(flat(world.model), flat(plain.model))
        optimizer.end_task(loader)
    assert differs


def test_gem_adds_its_margin_where_a_gradient_does_not_obey():
    """`g + G^T (v + margin)`, the paper's remark on eq. 12."""
    world = single_head()
    optimizer = make("GEM", world, margin=0.5)
    for task in range(2):
        optimizer.begin_task(task), optimizer.end_task(world.loaders[task])
    old = torch.stack([gradient(world.loss(world.whole(task)), world.model) for task in range(2)])
    pipeline, shapes = optimizer.pipeline, optimizer.layout.shapes

    def update(g: Tensor) -> Tensor:
        step = Step(pipeline.state, pipeline.running, Prepared(), 1.0, named(g, shapes), named(old, shapes))
        return flat_vector(optimizer.method.base(named(g, shapes), step), shapes)

    against, with_them = -old.sum(0) + 0.1 * torch.randn_like(old[0]), old.sum(0)
    assert bool((old @ against < 0).any())
    assert bool((old @ with_them >= 0).all())
    torch.testing.assert_close(update(against), nearest_in_cone(against, old) + 0.5 * old.sum(0), rtol=1e-8, atol=1e-10)
    assert torch.equal(update(with_them), with_them)


def test_gem_with_one_memory_is_a_gem():
    """Whose one gradient is that of the whole memory."""
    results = []
    for name in ("GEM", "AGEM"):
        torch.manual_seed(0)
        world = single_head()
        world.loaders[1] = [(x, (y + 1) % 3) for x, y in world.loaders[0]]
        results.append(run(make(name, world, **ALL[name]), world, range(2), epochs=3))
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["ER", "LwF"])
def test_without_strength_it_is_sgd(name):
    results = []
    for method, settings in (("SGD", {}), (name, {"strength": 0.0})):
        torch.manual_seed(0)
        world = single_head()
        results.append(run(make(method, world, **settings), world))
    assert torch.equal(*results)


@pytest.mark.parametrize("name", ["ER", "GEM", "AGEM"])
def test_old_tasks_are_forgotten_less(name):
    """Than by plain SGD, on tasks that share a head and pull it in different directions."""
    losses = {}
    for method in ("SGD", name):
        torch.manual_seed(1)
        world = single_head()
        run(make(method, world, 0.1), world, epochs=20)
        losses[method] = sum(world.loss(world.whole(task)).item() for task in range(2))
    assert losses[name] < 0.9 * losses["SGD"]


def test_old_heads_answer_new_samples_as_before():
    """As LwF has them; SGD changes the trunk under them."""
    changes = {}
    for name in ("SGD", "LwF"):
        torch.manual_seed(1)
        world = separate()
        optimizer = make(name, world, 0.1, **({"strength": 10.0} if name == "LwF" else {}))
        run(optimizer, world, range(1), epochs=20)
        x = whole(world, 1)[0]
        before = world.model(x, 0).detach().softmax(-1)
        run(optimizer, world, range(1, 2), epochs=20)
        changes[name] = (world.model(x, 0).softmax(-1) - before).norm()
    assert changes["LwF"] < 0.5 * changes["SGD"]


def test_old_heads_are_rehearsed_too():
    """With separate heads ER trains the old ones on; SGD never touches them again."""
    world = separate()
    optimizer = make("ER", world)
    run(optimizer, world, range(1))
    head = world.model.heads[0].weight.clone()
    last = world.model.heads[2].weight.clone()
    run(optimizer, world, range(1, 2))
    assert not torch.equal(world.model.heads[0].weight, head)
    assert torch.equal(world.model.heads[2].weight, last)


def test_old_heads_may_have_fewer_outputs_than_new_tasks_have_labels():
    world = separate()
    world.model.heads[0] = nn.Linear(4, 2).double()
    world.loaders[0] = [(x, y % 2, task) for x, y, task in world.loaders[0]]
    optimizer = make("LwF", world)
    run(optimizer, world, range(1))
    before = world.model.heads[0].weight.clone()
    run(optimizer, world, range(1, 2))
    assert not torch.equal(world.model.heads[0].weight, before)


@pytest.mark.parametrize("name", ["ER", "GEM", "AGEM"])
def test_samples_without_targets_are_told(name):
    world = single_head()
    optimizer = make(name, world, predict=lambda model, batch: (model(batch[0]), None))
    optimizer.begin_task(0)
    with pytest.raises(ValueError, match="Expected targets of the samples to rehearse, got None"):
        optimizer.end_task(world.loaders[0])
    assert optimizer.diagnose().bytes == 0


def test_lwf_needs_no_targets():
    world = single_head()
    optimizer = make("LwF", world, predict=lambda model, batch: (model(batch[0]), None))
    assert run(optimizer, world).isfinite().all()


@pytest.mark.parametrize("predict", [None, lambda model, batch: (model(batch[0]), batch[1])])
@pytest.mark.parametrize("name", DENSE)
def test_a_head_that_is_chosen_behind_the_batchs_back_is_told(name, predict):
    """Old samples would be answered by the new head."""
    world = multi_head()
    optimizer = make(name, world, predict=predict)
    run(optimizer, world, range(1))
    message = r"answered through 'heads.0.bias' when it was learnt, and are through 'heads.1.bias' now"
    with pytest.warns(fopng.HeadChanged, match=message):
        run(optimizer, world, range(1, 2))


@pytest.mark.parametrize("name", DENSE)
def test_frozen_parameters_stay_where_they_are(name):
    world = single_head()
    optimizer = make(name, world)
    run(optimizer, world, range(1))
    world.model[0].requires_grad_(False)
    before = world.model[0].weight.clone()
    run(optimizer, world, range(1, 2))
    assert torch.equal(world.model[0].weight, before)


@pytest.mark.parametrize("heads", WORLDS)
@pytest.mark.parametrize("name", ["ER", "AGEM", "GEM"])
def test_memories_have_the_size_that_was_asked_for(name, heads):
    sizes = {"ER": {"capacity": 7}, "AGEM": {"samples_per_task": 3}, "GEM": {"samples_per_task": 3}}
    world = WORLDS[heads]()
    optimizer = make(name, world, predict=None if heads == "shared" else world.ask, **sizes[name])
    run(optimizer, world)
    kept = optimizer.pipeline.state.samples.blocks
    assert sum(block.rows for block in kept) == {"ER": 7, "AGEM": 9, "GEM": 9}[name]
    assert (len(kept) == 1) == (heads == "shared" and name != "GEM")
    seen = torch.cat([batch[0] for loader in world.loaders for batch in loader])
    for block in kept:
        assert all((seen == x).all(1).any() for x in block.batch[0])


def test_a_step_of_lwf_before_refresh_is_told():
    world = single_head()
    optimizer = make("LwF", world)
    run(optimizer, world, range(1))
    optimizer.begin_task(1)
    world.loss(world.loaders[1][0]).backward()
    with pytest.raises(RuntimeError, match="LwF needs the old model's answers to the new task. Call refresh"):
        optimizer.step()


def test_lwf_asks_the_old_model_once_a_task():
    """Not the one that has begun to learn the new task; and of old tasks nothing is kept."""
    world = single_head()
    optimizer = make("LwF", world, distilled_samples=None)
    run(optimizer, world, range(1))
    assert optimizer.diagnose().bytes == 0
    x = world.whole(1)[0]
    expected = world.model(x).detach()
    life = live(optimizer, world, range(1, 2), epochs=3)
    for _ in life:
        [block] = optimizer.pipeline.state.samples.blocks
        order = [int((x == own).all(1).nonzero()) for own in block.batch[0]]
        torch.testing.assert_close(block.answers, expected[order], rtol=1e-12, atol=1e-12)


class Dropping(nn.Module):
    """Dropout and a normalisation with statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.last(F.dropout(self.norm(self.first(x)), 0.5, self.training))
        return answer


@pytest.mark.parametrize("training", [True, False])
def test_samples_are_rehearsed_in_the_mode_of_the_model(training):
    """In training the statistics move on and features are dropped; a model in evaluation is left as it is."""
    world = World(Dropping().double(), data())
    optimizer = make("ER", world, replay_samples=99)
    run(optimizer, world, range(1))
    world.model.train(training)
    optimizer.begin_task(1)
    world.loss(world.loaders[1][0]).backward()
    statistics, random = world.model.norm.running_mean.clone(), torch.get_rng_state()
    optimizer.step()
    assert torch.equal(world.model.norm.running_mean, statistics) != training
    assert torch.equal(torch.get_rng_state(), random) != training


@pytest.mark.parametrize("name", ["ER", "AGEM", "GEM", "LwF"])
def test_sequences_of_different_lengths_in_dictionaries(name):
    """Kinds that cannot be joined are rehearsed apart."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(6, 4), nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            answer: Tensor = self.out(self.embed(x).cumsum(1))
            return answer

    def text(length: int):
        return {"text": torch.randint(6, (3, length)), "lang": "en"}

    loaders = [[text(4), text(6), text(4)] for _ in range(2)]
    ask = lambda model, batch: (model(batch["text"][:, :-1]), batch["text"][:, 1:])  # noqa: E731
    world = World(Words().double(), loaders, ask)
    world.loss = lambda batch: F.cross_entropy(ask(world.model, batch)[0].flatten(0, 1), batch["text"][:, 1:].flatten())
    optimizer = make(name, world, **ALL[name])
    start = flat(world.model)
    life = live(optimizer, world, epochs=2)
    while next(life) != (1, 0):
        pass
    kinds = {tuple(block.batch["text"].shape) for block in optimizer.pipeline.state.samples.blocks}
    assert kinds == {(6, 4), (3, 6)}
    for _ in life:
        pass
    assert flat(world.model).isfinite().all()
    assert not torch.equal(flat(world.model), start)


class FineHead(TaskHeads):
    """A second head of more precision."""

    def __init__(self) -> None:
        super().__init__()
        self.heads[1].double()

    def forward(self, x: Tensor, task: int) -> Tensor:
        head = self.heads[task]
        answers: Tensor = head(self.trunk(x).tanh().to(head.weight.dtype))
        return answers


@pytest.mark.parametrize("name", ["ER", "GEM", "AGEM"])
def test_a_head_of_more_precision(name):
    """Before it is reached, and after."""
    loaders = [[(x, y, task) for x, y in loader] for task, loader in enumerate(data(dtype=torch.float32))]
    world = World(FineHead(), [loaders[0], loaders[0], loaders[1]], ByTask())
    run(make(name, world, **ALL[name]), world)
    assert flat(world.model).isfinite().all()


class Counted:
    """Gradients of three numbers; how many it was asked for at a time."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def gradient(self, drawn: Tensor) -> Vector:
        self.asked.append(1)
        return Vector({"weight": drawn})

    def gradients(self, drawn) -> Vector:
        self.asked.append(len(drawn))
        return Vector({"weight": torch.stack(list(drawn))}, 1)

    def together(self, g: Vector) -> Vector:
        return 2 * g


@pytest.mark.parametrize(("sizes", "asked"), [([1, 1, 0, 1], [3]), ([2, 0, 3], [1] * 5), ([0], []), ([], [])])
def test_a_row_a_task_however_many_draws_it_has(sizes, asked):
    """Samples of different shapes are drawn apart; their gradients are not all held."""
    rehearser, tasks = Counted(), [[torch.randn(3) for _ in range(size)] for size in sizes]
    found = gradients_by_task(rehearser, tasks)
    assert rehearser.asked == asked
    if not any(sizes):
        assert found is None
    else:
        torch.testing.assert_close(found["weight"], torch.stack([2 * sum(task) for task in tasks if task]))
