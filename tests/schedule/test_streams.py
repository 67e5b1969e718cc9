"""Groups that share a device, a stream each: the same numbers as one after another, whatever happens to one of them."""

import itertools
import threading
import time
from contextlib import contextmanager

import pytest
import torch

import fopng.lab.engine.streams
import fopng.lab.schedule.batched
from fopng.lab.engine import Interrupted
from fopng.lab.engine.streams import StreamScheduler, interleave
from fopng.lab.runs.request import configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.inline import do_inline
from fopng.lab.schedule.runner import Runner, Work
from fopng.lab.schedule.view import View
from small_runs import CPU

pytestmark = pytest.mark.usefixtures("shared_cache")

METHODS = ["sgd", "fopng", "ewc"]


@pytest.fixture
def wanted():
    return configurations(benchmark="split-digits", methods=METHODS, seeds=range(2), epochs=1, assignments=["tasks=2"])


def do(folder, wanted, **more):
    """In this process: what `jobs` means on a GPU."""
    runner = Runner(store=Store(folder), device=CPU, engine="replicas", **more)
    work = Work(runner, wanted)
    work.read()
    do_inline(work)
    return [work.done[config.key] for config in wanted if config.key in work.done]


def accuracies(results):
    return [(result.config.key, result.accuracy, result.accuracy_before) for result in results]


class Ended(View):
    def __init__(self, results):
        self.ended = results.append


def test_the_same_numbers_as_one_after_another(wanted, tmp_path):
    expected = accuracies(do(tmp_path / "one", wanted))
    ended = []
    found = do(tmp_path / "many", wanted, jobs=2, view=Ended(ended))
    assert accuracies(found) == expected
    assert {result.config.key for result in ended} == {config.key for config in wanted}
    assert all(result.peak_memory_bytes is None for result in found)


def test_waves_are_under_way_at_the_same_time(wanted, tmp_path, monkeypatch):
    """The steps of several are interleaved, and never two at once."""
    log, inside = [], threading.Lock()
    take = fopng.lab.engine.batched.step.Stepper.take

    def noted(self, x, y, task):
        assert inside.acquire(blocking=False)
        log.append(threading.get_ident())
        take(self, x, y, task)
        inside.release()

    monkeypatch.setattr(fopng.lab.engine.batched.step.Stepper, "take", noted)
    do(tmp_path, wanted, jobs=3)
    changes = sum(one != other for one, other in itertools.pairwise(log))
    assert len(set(log)) == 3
    assert changes > len(log) // 32


def test_an_error_ends_all_and_loses_nothing(wanted, tmp_path, monkeypatch):
    expected = accuracies(do(tmp_path / "one", wanted))
    train = fopng.lab.schedule.batched.train_replicas

    def fails(plans, **more):
        if "fopng" in plans[0].label:
            raise RuntimeError("no such luck")
        return train(plans, **more)

    monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", fails)
    with pytest.raises(RuntimeError, match="no such luck"):
        do(tmp_path / "many", wanted, jobs=3)
    told = []
    monkeypatch.setattr("fopng.lab.schedule.inline.train", lambda plan, **more: fails([plan], **more))
    assert accuracies(do(tmp_path / "many", wanted, jobs=3, keep_going=True, notice=told.append)) == [
        each for each in expected if each[0] not in _keys(wanted, "fopng")
    ]
    monkeypatch.undo()
    assert accuracies(do(tmp_path / "many", wanted, jobs=3)) == expected


def _keys(wanted, method):
    return {config.key for config in wanted if config.method == method}


def test_stopped_and_taken_up(wanted, tmp_path):
    expected = accuracies(do(tmp_path / "one", wanted))
    asked = []

    def should_stop():
        asked.append(1)
        return len(asked) > 60

    with pytest.raises(Interrupted):
        do(tmp_path / "many", wanted, jobs=3, should_stop=should_stop)
    begun = list((tmp_path / "many").rglob("group-*"))
    assert len(begun) == 3
    assert accuracies(do(tmp_path / "many", wanted, jobs=2)) == expected


def test_each_keeps_its_arithmetic():
    """And everything is as it was afterwards, in whatever order they end."""
    before = torch.backends.cuda.matmul.allow_tf32
    seen = []

    def work(item, streams):
        flag, turns_taken = item
        torch.backends.cuda.matmul.allow_tf32 = flag
        for _ in range(turns_taken):
            streams.let_others_run()
            seen.append(torch.backends.cuda.matmul.allow_tf32 == flag)

    interleave([(True, 5), (False, 3), (True, 1)], work, lanes=3, device=CPU)
    assert seen == [True] * 9
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_a_device_that_fails_where_nobody_works_is_noticed(monkeypatch):
    @contextmanager
    def lane(self):
        yield
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(StreamScheduler, "lane", lane)
    with pytest.raises(RuntimeError, match="the device is gone"):
        interleave([1, 2, 3], lambda item, streams: None, lanes=2, device=CPU)


class Slow:
    """A device that is done with the n-th piece of work when it was asked n times."""

    def __init__(self, log, name, asks):
        self._log, self._name, self._asks = log, name, asks

    def query(self):
        self._asks -= 1
        return self._asks < 0

    def synchronize(self):
        self._log.append(self._name)


def test_nobody_runs_far_ahead_of_the_device(monkeypatch):
    """A thread whose work is slow lets the others take more slices than it has, and ends like them."""
    begun, waited, order, given = [], [], [], {"slow": 0, "fast": 0}
    monkeypatch.setattr(fopng.lab.engine.streams, "_mark", lambda: mark())
    monkeypatch.setattr(fopng.lab.engine.streams, "AHEAD", 2)
    name = threading.local()

    def mark():
        given[name.own] += 1
        return Slow(waited, (name.own, given[name.own]), 20 if name.own == "slow" else 0)

    def work(item, streams):
        name.own = item
        begun.append(item)
        while len(begun) < 2:
            time.sleep(0.001)
            streams.let_others_run()
        # the streams are those of a GPU; marks and slices are all that matters here
        streams._device = torch.device("cuda")
        for _ in range(6):
            order.append(item)
            streams.end_slice()

    interleave(["slow", "fast"], work, lanes=2, device=CPU)
    assert sorted(order) == ["fast"] * 6 + ["slow"] * 6
    fast = max(place for place, item in enumerate(order) if item == "fast")
    assert order[fast:].count("slow") >= 3, "the slow one waited while the fast one took its slices"
    # all but the last two of each were waited for, in their order
    assert [number for own, number in waited if own == "slow"] == [1, 2, 3, 4]
    assert [number for own, number in waited if own == "fast"] == [1, 2, 3, 4]


def test_turns_go_round():
    order = []

    def since_the_second_began():
        return "".join(order).lstrip(order[0]) if order else ""

    def work(name, streams):
        while len(since_the_second_began()) < 40:
            order.append(name)
            streams.let_others_run()

    interleave("ab", work, lanes=2, device=CPU)
    both = since_the_second_began()[:40]
    assert both in ("ab" * 20, "ba" * 20)


def test_one_alone_never_waits():
    streams = StreamScheduler(CPU)
    with streams.lane():
        streams.let_others_run()
        streams.wait()
    assert streams.lanes == 1
