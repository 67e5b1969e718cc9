"""The loop: what it measures, what it depends on, and what it does not."""

import copy
import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import fopng
from fopng.lab.benchmarks import Scenario, Task, TaskStream
from fopng.lab.benchmarks.models import MLP
from fopng.lab.engine import Interrupted, Seeds, one_by_one, train
from fopng.lab.engine.evaluation import divergence
from fopng.lab.engine.observers import EpochStarted, Evaluated, RunEnded, RunStarted, StepDone, TaskEnded, TaskStarted
from fopng.lab.engine.stages import Stage
from fopng.lab.storage.checkpoint import Checkpoint, CheckpointError
from fopng.optim.registry import METHODS
from small_runs import CPU, final_state, numbers, plan, same, stream

every_method = pytest.mark.parametrize("method", METHODS)


def draw():
    return torch.rand(3).tolist(), np.random.rand(), random.random()  # noqa: NPY002


class Notebook:
    """An observer that asks for everything and draws random numbers."""

    def __init__(self):
        self.events, self.measured = [], []

    def observe(self, event):
        self.events.append(event)
        draw()
        if isinstance(event, StepDone):
            self.measured.append(event.measure())


class AtTheEnd:
    """Calls something when a task has ended."""

    def __init__(self, call):
        self.call = call

    def observe(self, event):
        if isinstance(event, TaskEnded):
            self.call()


def run(*arguments, **more):
    return train(plan(*arguments), device=CPU, **more)


def stop_after(steps):
    """Says stop once that many steps were done."""
    asked = iter(range(10**6))
    return lambda: next(asked) >= steps


def fresh(folder):
    folder.mkdir()
    return Checkpoint(folder)


class TestMeasures:
    @every_method
    def test_rows_hold_the_tasks_seen_and_a_second_run_is_the_same(self, method):
        outcome = run(method)
        known = [[value is not None for value in row] for row in outcome.accuracy]
        if method == "joint":
            assert known == [[False] * 3, [False] * 3, [True] * 3]
        else:
            assert known == [[True, False, False], [True, True, False], [True, True, True]]
        assert None not in outcome.initial_accuracy
        assert (outcome.status, outcome.validation_accuracy) == ("finished", None)
        assert outcome.accuracy[-1][-1] >= 0.6
        draw()
        assert numbers(run(method)) == numbers(outcome)

    def test_the_accuracy_is_the_share_that_is_right(self):
        tasks = stream()
        outcome = train(plan("sgd", tasks, epochs=1), device=CPU)
        model = MLP(tasks.input_shape, tasks.heads, seed=Seeds(0).weights, hidden=(8,))
        x, y = tasks[1].test.tensors()
        assert outcome.initial_accuracy[1] == float((model(x).argmax(-1) == y).double().mean())

    def test_just_before_a_task_is_learnt(self):
        one, all_three = (train(plan("sgd", stream(tasks=count)), device=CPU) for count in (1, 3))
        assert all_three.accuracy_before[0] == all_three.initial_accuracy[0]
        assert None not in all_three.accuracy_before
        assert one.accuracy_before == [one.initial_accuracy[0]]

    def test_validation_is_measured_where_there_is_some(self):
        outcome = train(plan("ewc", stream(validation=True)), device=CPU)
        assert [sum(value is not None for value in row) for row in outcome.validation_accuracy] == [1, 2, 3]

    def test_the_removed_fraction_is_for_methods_that_remove(self):
        assert run("sgd").measured == {}
        first, *rest = run("ogd").measured["removed_fraction"]
        assert first is None
        assert all(0 < fraction <= 1 for fraction in rest)

    def test_costs(self, tmp_path):
        outcome = run("fopng", checkpoint=Checkpoint(tmp_path))
        assert set(outcome.seconds_by_phase) == {"evaluation", "refresh", "train", "end of task", "checkpoints"}
        assert all(seconds > 0 for seconds in outcome.seconds_by_phase.values())
        assert outcome.peak_memory_bytes > 10_000_000

    def test_it_is_the_loop_that_anyone_would_write(self):
        """Held to a loop of ten lines, to the bit: SGD first, then the method."""
        tasks = stream(Scenario.TASK)
        outcome = train(plan("ogd", tasks), device=CPU)
        seeds = Seeds(0)
        model = MLP(tasks.input_shape, tasks.heads, seed=seeds.weights, hidden=(8,))
        optimizer = fopng.OGD(
            model,
            lr=0.05,
            gradients_per_task=5,
            first_task=torch.optim.SGD(model.parameters(), lr=0.1),
            predict=lambda model, batch: (model(batch[0], task=batch[2]), batch[1]),
            generator=torch.Generator().manual_seed(seeds.fisher),
        )
        for number, task in enumerate(tasks):
            x, y = task.train.tensors()
            optimizer.begin_task(number)
            for epoch in range(2):
                order = torch.Generator().manual_seed(seeds.order(number, epoch, number))
                for rows in torch.randperm(len(x), generator=order).split(5):
                    optimizer.zero_grad()
                    cross_entropy(model(x[rows], task=number), y[rows]).backward()
                    optimizer.step()
            optimizer.end_task([(x, y, number)])
            right = [
                float((model(task.test.tensors()[0], task=j).argmax(-1) == task.test.targets).double().mean())
                for j, task in enumerate(tasks.tasks[: number + 1])
            ]
            assert list(outcome.accuracy[number][: number + 1]) == right


class TestLost:
    """How far the answers to old tasks are from those that the model gave when they ended."""

    def test_the_divergence_by_hand(self):
        """From 1/2, 1/2 to 1/4, 3/4: (log 2 + log 2/3) / 2. A class that was ruled out then counts for nothing."""
        answers, outputs = torch.tensor([[0.0, 0.0], [0.0, -math.inf]]), torch.tensor([[0.0, math.log(3)], [5.0, 5.0]])
        expected = torch.tensor([(math.log(2) + math.log(2 / 3)) / 2, math.log(2)])
        torch.testing.assert_close(divergence(outputs, answers), expected.double(), rtol=1e-6, atol=0)
        assert divergence(answers, answers).tolist() == [0, 0]

    def test_it_is_between_the_answers_at_a_tasks_end_and_now(self, tmp_path):
        tasks, models = stream(Scenario.TASK, tasks=2, validation=True), []

        def make_model(seed):
            models.append(MLP(tasks.input_shape, tasks.heads, seed=seed, hidden=(8,)))
            return models[0]

        told = Notebook()
        then = plan("ewc", tasks, make_model=make_model)
        outcome = train(then, device=CPU, observers=[AtTheEnd(lambda: models.append(copy.deepcopy(models[0]))), told])
        now, first = models[0], models[1]
        for lost, part in ((outcome.lost, tasks[0].test), (outcome.validation_lost, tasks[0].validation)):
            x, _ = part.tensors()
            with torch.no_grad():
                old, new = (model(x, task=0).double().log_softmax(-1) for model in (first, now))
            expected = float((old.exp() * (old - new)).sum(-1).mean())
            assert lost == [(0.0, None), (pytest.approx(expected, rel=1e-6), 0.0)]
            assert expected > 1e-4
        assert [
            event.lost for event in told.events if isinstance(event, Evaluated) and event.part == "test"
        ] == outcome.lost

    def test_tasks_that_are_learnt_together_have_lost_nothing(self):
        assert run("joint").lost == [(None,) * 3, (None,) * 3, (0.0,) * 3]

    def test_one_task(self):
        outcome = train(plan("sgd", stream(tasks=1)), device=CPU)
        assert (outcome.lost, outcome.validation_lost) == ([(0.0,)], None)


class TestDependsOnItsConfigurationAlone:
    def test_another_seed_is_another_run(self):
        assert numbers(train(plan(seed=1), device=CPU)) != numbers(run())

    def test_matched_runs_share_their_first_task(self):
        starts = [run(method) for method in METHODS if method != "joint"]
        assert len({outcome.accuracy[0] for outcome in starts}) == 1
        assert len({outcome.initial_accuracy for outcome in starts}) == 1
        assert len({outcome.accuracy[-1] for outcome in starts}) > 3

    def test_the_global_random_states_are_left_alone(self):
        torch.manual_seed(3)
        before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
        run()
        after = torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # noqa: NPY002
        assert same(before, after)

    @pytest.mark.parametrize("method", ["fopng", "ewc"])
    def test_observers_change_nothing(self, method, tmp_path):
        notebook, states = Notebook(), []
        for name, observers in (("watched", [notebook]), ("alone", [])):
            checkpoint = fresh(tmp_path / name)
            coloured = plan(method, stream(Scenario.TASK, shape=(3, 4, 4), samples=15), epochs=1)
            train(coloured, device=CPU, checkpoint=checkpoint, observers=observers)
            states.append(final_state(checkpoint))
        assert same(*states)
        assert len(notebook.measured) == 3 * 3

    def test_seeds_are_streams_of_their_own(self):
        seeds = Seeds(0)
        drawn = [seeds.weights, seeds.fisher, seeds.dropout, seeds.interleaving(0, 0), seeds.samples(0, 0)]
        drawn += [seeds.order(stage, epoch, task) for stage in range(3) for epoch in range(3) for task in range(3)]
        assert len(set(drawn)) == len(drawn)


class TestEvents:
    def test_what_observers_are_told(self):
        notebook = Notebook()
        outcome = run("fopng", observers=[notebook])
        kinds = [type(event) for event in notebook.events if not isinstance(event, StepDone)]
        task = [TaskStarted, EpochStarted, EpochStarted, TaskEnded, Evaluated]
        assert kinds == [RunStarted, *task * 3, RunEnded]
        steps = [event.step for event in notebook.events if isinstance(event, StepDone)]
        assert steps == list(range(1, notebook.events[0].steps + 1))
        assert notebook.events[-1].outcome == "finished"
        assert [event.accuracies for event in notebook.events if isinstance(event, Evaluated)] == outcome.accuracy
        assert {"loss", "removed_fraction"} <= set(notebook.measured[-1])

    def test_a_run_that_fails_ends_too(self):
        notebook = Notebook()

        def broken(seed):
            model = MLP((1, 4, 4), (2,), seed=seed)
            model.register_forward_hook(lambda *_: 1 / 0 if model.training else None)
            return model

        with pytest.raises(ZeroDivisionError):
            train(plan(make_model=broken), device=CPU, observers=[notebook])
        assert notebook.events[-1].outcome == "failed"


class TestDivergence:
    @pytest.mark.parametrize("method", [method for method in METHODS if method != "joint"])
    def test_it_is_told_and_not_crashed_on(self, method):
        notebook = Notebook()
        made = plan(method, make_optimizer=partial(METHODS[method].optimizer, lr=1e30))
        outcome = train(made, device=CPU, observers=[notebook])
        if method not in ("fng", "fopng", "fopng-prefisher", "ong", "natural-ogd", "adam"):
            assert outcome.status == "diverged"
        assert len(outcome.accuracy) == 3 or outcome.status == "diverged"
        assert outcome.accuracy[0][0] is not None
        ends = [event.outcome for event in notebook.events if isinstance(event, RunEnded)]
        assert ends == [notebook.events[-1].outcome] == [outcome.status]

    def test_in_the_first_task(self):
        outcome = train(plan("fopng", first_task_lr=1e30), device=CPU)
        assert (outcome.status, outcome.accuracy) == ("diverged", [])


class TestResume:
    @every_method
    def test_at_any_step_it_goes_on_to_the_same_bits(self, method, tmp_path):
        tasks = stream(Scenario.TASK, shape=(3, 4, 4), samples=12) if method in ("fopng", "adam") else stream()
        whole = Checkpoint(tmp_path)
        train(plan(method, tasks), device=CPU, checkpoint=whole)
        generator = random.Random(method)
        for number in range(3):
            checkpoint, interrupted = fresh(tmp_path / str(number)), True
            while interrupted:
                stop, seconds = stop_after(generator.randrange(1, 30)), generator.choice([0.0, 1e9])
                more = {"checkpoint": checkpoint, "should_stop": stop, "save_seconds": seconds}
                try:
                    train(plan(method, tasks), device=CPU, **more)
                    interrupted = False
                except Interrupted:
                    continue
            assert same(final_state(checkpoint), final_state(whole))

    def test_a_finished_checkpoint_gives_its_outcome_at_once(self, tmp_path):
        outcome, notebook = run(checkpoint=Checkpoint(tmp_path)), Notebook()
        again = run(checkpoint=Checkpoint(tmp_path), observers=[notebook])
        assert numbers(again) == numbers(outcome)
        assert again.seconds_by_phase["train"] == outcome.seconds_by_phase["train"]
        assert not notebook.measured

    def test_a_checkpoint_that_does_not_fit_is_told(self, tmp_path):
        run("sgd", checkpoint=Checkpoint(tmp_path))
        with pytest.raises(CheckpointError, match=r"does not fit: .* delete the checkpoint there"):
            run("fopng", checkpoint=Checkpoint(tmp_path))

    def test_samples_that_are_drawn_at_random(self, tmp_path):
        """A dataset that augments its samples gives a resumed run those of one that was not."""

        class Noisy(torch.utils.data.Dataset):
            def __len__(self):
                return 30

            def __getitem__(self, row):
                noise = torch.rand(1, 4, 4) + np.random.rand() + random.random()  # noqa: NPY002
                return noise.float() + row % 2, row % 2

        tasks = [Task.of(str(n), train=Noisy(), test=Noisy()) for n in range(2)]
        made = plan("sgd", TaskStream.of("noisy", tasks, Scenario.DOMAIN))
        whole, cut = fresh(tmp_path / "whole"), fresh(tmp_path / "cut")
        train(made, device=CPU, checkpoint=whole)
        with pytest.raises(Interrupted):
            train(made, device=CPU, checkpoint=cut, should_stop=stop_after(8))
        train(made, device=CPU, checkpoint=cut)
        assert same(final_state(cut), final_state(whole))


def test_joint_training_sees_every_sample_once_an_epoch():
    tasks = stream()
    stage = Stage(0, (0, 1, 2), tasks, 5, Seeds(0), CPU)
    walked = list(stage.epoch(0, 0))
    assert len(walked) == stage.steps == 27
    assert len({task for task, _, _ in walked[:9]}) == 3
    for number, task in enumerate(tasks):
        seen = torch.cat([x for turn, x, _ in walked if turn == number])
        assert same(seen.flatten().sort().values, task.train.tensors()[0].flatten().sort().values)
    rest = list(stage.epoch(0, 11))
    assert same([[t, x, y] for t, x, y in rest], [[t, x, y] for t, x, y in walked[11:]])
    assert one_by_one(tasks) == ((0,), (1,), (2,))
