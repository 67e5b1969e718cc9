"""Misuse is told: what was expected, what was found, what to do; and nothing has changed."""

import pytest
import torch
from torch import nn

import fopng
from methods.worlds import (
    ELASTIC,
    FISHER,
    KRONECKER,
    METHODS,
    PROJECTED,
    flat,
    kept,
    live,
    make,
    multi_head,
    run,
    single_head,
    tensors,
)

# the heads here are chosen behind the batch's back
pytestmark = pytest.mark.filterwarnings("ignore::fopng.HeadChanged")
every_method = pytest.mark.parametrize("name", METHODS)
estimating = pytest.mark.parametrize("name", [*PROJECTED, *ELASTIC, *KRONECKER, "MAS", "ER", "GEM", "AGEM"])

SETTINGS = {
    "lr": ("SGD", -0.1, "lr of at least 0 and finite, got -0.1"),
    "lr that is not a number": ("FNG", float("nan"), "lr of at least 0 and finite, got nan"),
    "lr without end": ("FNG", float("inf"), "lr of at least 0 and finite, got inf"),
    "momentum": ("SGD", 1.0, r"momentum in \[0, 1\), got 1.0"),
    "betas": ("Adam", (0.9, 1.0), r"betas, two numbers in \[0, 1\), got \(0.9, 1.0\)"),
    "betas, too few": ("Adam", (0.9,), r"betas, two numbers in \[0, 1\), got \(0.9,\)"),
    "epsilon": ("Adam", -1e-8, "epsilon of at least 0 and finite, got -1e-08"),
    "strength": ("EWC", -1.0, "strength of at least 0 and finite, got -1.0"),
    "strength without end": ("EWC", float("inf"), "strength of at least 0 and finite, got inf"),
    "strength without end, Kronecker": ("KroneckerFOPNG", float("inf"), "strength of at least 0 and finite, got inf"),
    "strength without end, NCL": ("NCL", float("inf"), "strength above 0 and finite, got inf"),
    "damping without end": ("FNG", float("inf"), "damping above 0 and finite, got inf"),
    "decay": ("OnlineEWC", 1.5, r"decay in \[0, 1\], got 1.5"),
    "strength, Kronecker": ("KroneckerFOPNG", -1.0, "strength of at least 0 and finite, got -1.0"),
    "strength below 0, NCL": ("NCL", -1.0, "strength above 0 and finite, got -1.0"),
    "damping below 0": ("FOPNG", -1.0, "damping above 0 and finite, got -1.0"),
    "strength, NCL": ("NCL", 0.0, "strength above 0 and finite, got 0.0"),
    "metric, NCL": ("NCL", "ekfac", "metric to be one of 'kfac', 'diagonal', got 'ekfac'"),
    "signals": (
        "KroneckerFOPNG",
        "noise",
        "signals to be one of 'normal', 'observed', 'sampled', 'expected', got 'noise'",
    ),
    "rank": ("KroneckerFOPNG", 0, "rank of at least 1, or None for all, got 0"),
    "fisher_samples, Kronecker": ("KroneckerFOPNG", 0, "fisher_samples of at least 1, or None for all, got 0"),
    "labels": ("EWC", "true", "labels to be one of 'observed', 'sampled', 'expected', got 'true'"),
    "fisher_samples": ("EWC", 0, "fisher_samples of at least 1, or None for all, got 0"),
    "fisher_samples in parts": ("FNG", 2.5, "fisher_samples of at least 1, or None for all, got 2.5"),
    "metric": (
        "FNG",
        "kronecker",
        "metric to be one of 'diagonal', 'kfac', 'ekfac', 'low-rank', 'full', got 'kronecker'",
    ),
    "fisher_rank": ("FOPNG", 0, "fisher_rank of at least 1, got 0"),
    "damping": ("FNG", 0.0, "damping above 0 and finite, got 0.0"),
    "gram_damping": ("FOPNG", -1e-3, "gram_damping of at least 0 and finite, or None, got -0.001"),
    "fisher_weight": ("FOPNG", 1.5, r"fisher_weight in \[0, 1\], got 1.5"),
    "gradients_per_task": ("OGD", 0, "gradients_per_task of at least 1, got 0"),
    "gradients_per_task in parts": ("OGD", 2.5, "gradients_per_task of at least 1, got 2.5"),
    "max_directions": ("ONG", 0, "max_directions of at least 1, or None for all, got 0"),
    "when_full": ("OGD", "drop", "when_full to be one of 'thin', 'compress', got 'drop'"),
    "kept_energy": ("FOPNG", 0.0, r"kept_energy in \(0, 1\], got 0.0"),
    "kept_energy above all": ("ONG", 1.5, r"kept_energy in \(0, 1\], got 1.5"),
    "threshold": ("GPM", 0.0, r"threshold in \(0, 1\], got 0.0"),
    "threshold above all": ("SGP", 1.01, r"threshold in \(0, 1\], got 1.01"),
    "threshold_growth": ("GPM", -0.1, r"threshold_growth in \[0, 1\], got -0.1"),
    "input_samples": ("SGP", 0, "input_samples of at least 1, or None for all, got 0"),
    "importance_scale": ("SGP", -1.0, "importance_scale of at least 0 and finite, got -1.0"),
    "projection": ("FOPNG", "exact", "projection to be one of 'printed', 'orthogonal', got 'exact'"),
    "score": ("NaturalOGD", "loss", "score to be one of 'ground-truth', 'average', 'log-likelihood', got 'loss'"),
    "strength ": ("SI", -1.0, "strength of at least 0 and finite, got -1.0"),
    "damping ": ("SI", 0.0, "damping above 0 and finite, got 0.0"),
    "sensitivity_samples": ("MAS", 0, "sensitivity_samples of at least 1, or None for all, got 0"),
    "temperature": ("LwF", 0.0, "temperature above 0 and finite, got 0.0"),
    "distilled_samples": ("LwF", 0, "distilled_samples of at least 1, or None for all, got 0"),
    "strength of answers": ("LwF", -1.0, "strength of at least 0 and finite, got -1.0"),
    "replay_samples of answers": ("LwF", 0, "replay_samples of at least 1, got 0"),
    "capacity": ("ER", 0, "capacity of at least 1, got 0"),
    "replay_samples": ("ER", 1.5, "replay_samples of at least 1, got 1.5"),
    "strength of old samples": ("ER", -0.5, "strength of at least 0 and finite, got -0.5"),
    "samples_per_task": ("GEM", 0, "samples_per_task of at least 1, got 0"),
    "replay_samples of each task": ("GEM", 0, "replay_samples of at least 1, or None for all, got 0"),
    "margin": ("GEM", -0.1, "margin of at least 0 and finite, got -0.1"),
    "samples_per_task of A-GEM": ("AGEM", 0, "samples_per_task of at least 1, got 0"),
    "replay_samples of A-GEM": ("AGEM", 0, "replay_samples of at least 1, got 0"),
    "prefisher": ("FOPNGPreFisher", "full", "prefisher to be one of 'diagonal', 'empirical', 'metric', got 'full'"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_wrong_setting_names_itself_its_value_and_what_was_expected(case):
    name, value, message = SETTINGS[case]
    setting = case.split()[0].strip(",")
    with pytest.raises(ValueError, match=f"Expected {message}"):
        METHODS[name](nn.Linear(2, 2), **({"lr": 0.1} | {setting: value}))


def test_a_wrong_first_task_is_told():
    with pytest.raises(TypeError, match="Expected first_task to be a torch optimizer, 'own' or None, got 'sgd'"):
        fopng.FOPNG(nn.Linear(2, 2), 0.1, first_task="sgd")


def test_a_first_task_that_would_train_nothing_is_told():
    with pytest.raises(
        ValueError, match="Expected first_task to train this model, got an optimizer of other parameters"
    ):
        fopng.FOPNG(nn.Linear(2, 2), 0.1, first_task=torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1))
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="gradients alone, got LBFGS, which needs a closure"):
        fopng.FOPNG(model, 0.1, first_task=torch.optim.LBFGS(model.parameters()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": "0.1"}, "Expected lr to be a number of at least 0 and finite, got '0.1'"),
        ({"strength": None}, "Expected strength to be a number of at least 0 and finite, got None"),
        ({"likelihood": fopng.Gaussian}, r"Expected likelihood to be one such as .* Call it: Gaussian\(\)"),
        ({"likelihood": "gaussian"}, "Expected likelihood to be one such as .*, got 'gaussian'"),
        ({"predict": 3}, "Expected predict to be a function of a model and a batch, got 3"),
        ({"generator": 3}, "Expected generator to be a torch.Generator, got 3"),
        ({"groups": {"lr": 1}}, "Expected groups such as"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_told_at_once(arguments, message):
    with pytest.raises(TypeError, match=message):
        fopng.EWC(nn.Linear(2, 2), **({"lr": 0.1} | arguments))


def test_a_group_of_other_parameters_that_comes_later_is_told():
    optimizer = fopng.KroneckerFOPNG(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="Expected parameters of the model, got others, which would not be trained"):
        optimizer.add_param_group({"params": nn.Linear(2, 2).parameters()})
    with pytest.raises(ValueError, match="Expected parameters of the model"):
        optimizer.add_param_group({"params": list(nn.Linear(2, 2).named_parameters())})


@pytest.mark.parametrize("when", ["refresh", "end_task"])
def test_a_layer_that_came_in_the_middle_of_a_task_is_warned_of(when):
    world = single_head()
    optimizer = make("KroneckerFOPNG", world)
    assert [*live(optimizer, world, range(1))]
    optimizer.begin_task(1)
    world.model.append(nn.Linear(3, 3).double())
    (x, y), *_ = world.loaders[1]
    nn.functional.cross_entropy(world.model(x), y).backward()
    before = world.model[3].weight.detach().clone()
    optimizer.step()
    assert torch.equal(world.model[3].weight, before)
    with pytest.warns(UserWarning, match=r"\['3.weight', '3.bias'\] came, or were unfrozen, in the middle of a task"):
        getattr(optimizer, when)(world.loaders[1])


@pytest.mark.parametrize("task", [1.5, (1, 2), torch.tensor(1)])
def test_a_task_that_is_no_name_or_number_is_told(task):
    with pytest.raises(TypeError, match="Expected a task's name or number, got"):
        fopng.SGD(nn.Linear(2, 2), 0.1).begin_task(task)


@every_method
def test_parameters_instead_of_the_model_are_told(name):
    with pytest.raises(TypeError, match=r"Expected a torch.nn.Module, got a generator. Pass the model"):
        METHODS[name](nn.Linear(2, 2).parameters(), 0.1)


@every_method
def test_settings_are_named_not_counted(name):
    with pytest.raises(TypeError, match="positional"):
        METHODS[name](nn.Linear(2, 2), 0.1, 0.5)


@every_method
def test_a_model_without_trainable_parameters_is_told(name):
    with pytest.raises(ValueError, match="Expected a model with trainable parameters, got none"):
        METHODS[name](nn.Linear(2, 2).requires_grad_(False), 0.1)


def test_groups_of_other_parameters_are_told():
    with pytest.raises(ValueError, match="Expected groups of the model's trainable parameters"):
        fopng.SGD(nn.Linear(2, 2), 0.1, groups=[{"params": nn.Linear(2, 2).parameters(), "lr": 1.0}])


@pytest.mark.parametrize("first_task", [None, "own"])
@pytest.mark.parametrize("name", FISHER)
def test_a_step_before_refresh_is_told(name, first_task):
    """The Fisher of the task before does not do."""
    world = single_head()
    optimizer = make(name, world, first_task=first_task)
    run(optimizer, world, range(1))
    optimizer.begin_task(1)
    world.loss(world.loaders[1][0]).backward()
    before = flat(world.model)
    with pytest.raises(RuntimeError, match=f"{name} needs the new task's Fisher. Call refresh"):
        optimizer.step()
    assert torch.equal(flat(world.model), before)


@every_method
@pytest.mark.parametrize(
    "nothing", [[], [(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))]], ids=["none", "empty"]
)
def test_ending_a_task_with_no_samples_is_told(name, nothing):
    world = single_head()
    optimizer = make(name, world)
    next(live(optimizer, world))
    with pytest.raises(ValueError, match="Expected samples of the task that ends, got none"):
        optimizer.end_task(nothing)
    assert optimizer.tasks_done == 0


@every_method
@pytest.mark.parametrize("once", [lambda loader: (batch for batch in loader), iter, lambda loader: map(tuple, loader)])
def test_a_loader_that_can_be_walked_only_once_is_told(name, once):
    world = single_head()
    optimizer = make(name, world, first_task="own")
    optimizer.begin_task(0)
    for call in (optimizer.refresh, optimizer.end_task):
        with pytest.raises(TypeError, match="Expected batches that can be walked more than once"):
            call(once(world.loaders[0]))


@estimating
def test_labels_outside_the_logits_are_told_and_nothing_is_kept(name):
    world = single_head()
    optimizer = make(name, world, first_task="own")
    run(optimizer, world, range(1))
    optimizer.begin_task(1)
    optimizer.refresh(world.loaders[1])
    before = {key: tensor.clone() for key, tensor in kept(optimizer).items()}
    x, y = world.loaders[1][0]
    wrong = [world.loaders[1][0], (x, torch.full_like(y, 3))]
    with pytest.raises(ValueError, match="Expected labels from 0 to 2, got 3"):
        optimizer.end_task(wrong)
    after = kept(optimizer)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert optimizer.tasks_done == 1


@pytest.mark.parametrize("name", FISHER)
def test_labels_outside_the_logits_are_told_when_a_fisher_is_refreshed(name):
    world = single_head()
    optimizer = make(name, world, first_task="own")
    optimizer.begin_task(0)
    optimizer.refresh(world.loaders[0])
    before = optimizer.pipeline.state.fisher_new.values.flat().clone()
    x, y = world.loaders[0][0]
    with pytest.raises(ValueError, match="Expected labels from 0 to 2, got -1"):
        optimizer.refresh([(x, torch.full_like(y, -1))])
    assert torch.equal(optimizer.pipeline.state.fisher_new.values.flat(), before)


@estimating
def test_batches_that_are_not_pairs_are_told(name):
    world = single_head()
    optimizer = make(name, world, first_task="own", predict=None)
    optimizer.begin_task(0)
    with pytest.raises(TypeError, match=r"Expected batches \(inputs, targets\), got a dict of 1. Pass predict="):
        optimizer.end_task([{"x": torch.zeros(4, 5)}])


@every_method
@pytest.mark.parametrize("when", ["begin_task", "refresh", "end_task"])
def test_a_model_whose_parameters_changed_is_told(name, when):
    """Another shape, another tensor of the same shape, or gone: at the next thing that looks at the model."""
    changes = {
        r"\('2.weight' of shape \(7, 4\) instead of \(3, 4\)\). Call adopt_parameters": lambda m: m.__setitem__(
            2, nn.Linear(4, 7).double()
        ),
        r"got new tensors for \['2.weight', '2.bias'\]": lambda m: m.__setitem__(2, nn.Linear(4, 3).double()),
        r"Expected the parameters \['2.weight', '2.bias'\]": lambda m: m.__delitem__(2),
    }
    for message, change in changes.items():
        world = single_head()
        optimizer = make(name, world)
        if when != "begin_task":
            optimizer.begin_task(0)
        change(world.model)
        with pytest.raises(ValueError, match=message):
            getattr(optimizer, when)(0 if when == "begin_task" else world.loaders[0])


@every_method
def test_a_task_that_was_not_ended_is_told(name):
    world = single_head()
    optimizer = make(name, world)
    optimizer.begin_task("first")
    with pytest.raises(RuntimeError, match=r"Task 'first' has not been ended. Call end_task"):
        optimizer.begin_task("second")
    optimizer.begin_task("first")  # going on with it is no misuse
    optimizer.end_task(world.loaders[0])
    optimizer.begin_task()
    with pytest.raises(RuntimeError, match="has not been ended"):
        optimizer.begin_task()


@every_method
def test_a_step_between_two_tasks_is_told(name):
    world = single_head()
    optimizer = make(name, world)
    run(optimizer, world, range(1))
    before = flat(world.model)
    with pytest.raises(RuntimeError, match=r"The last task has been ended. Call begin_task"):
        optimizer.step()
    with pytest.raises(RuntimeError, match="No task has been begun since the last end_task"):
        optimizer.end_task(world.loaders[0])
    assert torch.equal(flat(world.model), before)
    assert optimizer.tasks_done == 1


@every_method
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("task", [0, 1])
def test_gradients_that_are_not_finite_are_told_by_name_and_nothing_moves(name, value, task):
    world = multi_head()
    optimizer = make(name, world, momentum=0.5)
    run(optimizer, world, range(task))
    world.enter(task)
    optimizer.begin_task(task)
    optimizer.refresh(world.loaders[task])
    world.loss(world.loaders[task][0]).backward()
    world.model.trunk.bias.grad[1] = value
    before = flat(world.model)
    state = {key: tensor.clone() for key, tensor in tensors(optimizer.state_dict()).items()}
    with pytest.raises(FloatingPointError, match=r"The gradient of 'trunk.bias' holds NaN or infinity"):
        optimizer.step()
    assert torch.equal(flat(world.model), before)
    assert all(torch.equal(state[key], tensor) for key, tensor in tensors(optimizer.state_dict()).items())


def test_large_gradients_whose_sum_overflows_are_no_misuse():
    world = single_head(torch.float32)
    optimizer = make("SGD", world, lr=1e-38)
    for parameter in world.model.parameters():
        parameter.grad = torch.full_like(parameter, 3e38)
    before = flat(world.model)
    optimizer.step()
    torch.testing.assert_close(flat(world.model), before - 3.0)


@pytest.mark.parametrize("name", PROJECTED)
def test_a_memory_too_small_for_its_tasks_is_told_and_left_as_it_was(name):
    world = single_head()
    optimizer = make(name, world, gradients_per_task=1, max_directions=2)
    run(optimizer, world, range(2))
    optimizer.begin_task(2)
    with pytest.raises(ValueError, match="Expected room for a direction of each of 3 tasks, got max_directions=2"):
        optimizer.end_task(world.loaders[2])
    assert optimizer.diagnose().directions == 2


def test_what_a_prefisher_stored_means_something_else_to_another():
    world = single_head()
    state = make("FOPNGPreFisher", world).state_dict()
    with pytest.raises(
        ValueError,
        match="Expected a state with .*prefisher='empirical', got one with .*prefisher='diagonal'",
    ):
        make("FOPNGPreFisher", world, prefisher="empirical").load_state_dict(state)
