"""Asked and delivered: the texts, the model of them, a run of each kind of stream, and the tables."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from fopng.lab.benchmarks.pixels import Permuted
from reproduction import FOLDER
from reproduction.tolerance.cells import Places, cells, filled_like
from reproduction.tolerance.contenders import CONTENDERS, PLAIN, REPLAY, Contender
from reproduction.tolerance.figure import delivered_frame, figure
from reproduction.tolerance.images import run_images
from reproduction.tolerance.languages import first_model, run_texts
from reproduction.tolerance.portions import PORTIONS, portion, shrunk
from reproduction.tolerance.records import Cell, Measured, Record, load_record, load_records, missing
from reproduction.tolerance.run import do, do_all
from reproduction.tolerance.streams import STREAMS, ImageStream, TextStream
from reproduction.tolerance.summary import ASKED, FIXED, SUMMARIES, Grid
from reproduction.tolerance.texts import LEAST_TRAIN, Corpus, corpora, corpus, windows
from reproduction.tolerance.transformer import Transformer

CPU = torch.device("cpu")


# Texts


def documents(count, size=8_000):
    return [(f"{number}.txt", bytes([100 + number]) * size) for number in range(count)]


def test_a_document_is_either_learnt_or_tested_on():
    found = corpus("letters", documents(60))
    assert set(found.train) & set(found.test) == {ord("\n")}
    assert len(set(found.train) | set(found.test)) == 61


def test_a_corpus_does_not_depend_on_the_order_of_its_documents():
    assert corpus("letters", documents(60)) == corpus("letters", documents(60)[::-1])


def test_a_corpus_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match=f"Expected {LEAST_TRAIN:,} bytes of letters to learn from"):
        corpus("letters", documents(5))


def test_this_machine_holds_python_and_its_texts_are_the_same_each_time():
    first, second = (corpora() for _ in range(2))
    assert [each.name for each in first] == ["Python", "C", "English"]
    assert first == second
    assert b"\nimport " in first[0].train
    assert all(each.facts["sha256"] == each.digest for each in first)


def test_windows_are_pieces_with_the_byte_that_follows_each():
    text = bytes(range(100))
    x, y = windows(text, 5, 8, torch.Generator().manual_seed(0))
    assert x.shape == (5, 8)
    assert torch.equal(x[:, 1:], y[:, :-1])
    assert torch.equal(y, x + 1)


# The model


def test_the_transformer_is_causal():
    model = Transformer(seed=0, width=16, layers=2, heads=2, context=12)
    x = torch.randint(256, (3, 12), generator=torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[:, 7] = (x[:, 7] + 1) % 256
    before, after = model(x), model(changed)
    assert before.shape == (3, 12, 256)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_the_transformer_has_under_a_million_parameters_and_comes_from_its_seed():
    model = Transformer(seed=3)
    assert sum(parameter.numel() for parameter in model.parameters()) < 1_000_000
    torch.rand(7)
    again = Transformer(seed=3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


# Data


@pytest.fixture
def packed(tmp_path):
    """A folder with digits that are quickly learnt: of each class 20 to learn from and 5 to be tested on."""
    random = np.random.default_rng(0)
    prints = random.integers(0, 256, (10, 1, 28, 28), dtype=np.uint8)
    arrays = {}
    for part, count in (("train", 20), ("test", 5)):
        labels = np.tile(np.arange(10, dtype=np.uint8), count)
        arrays |= {
            f"{part}_inputs": prints[labels] // 2 + random.integers(0, 99, (len(labels), 1, 28, 28), dtype=np.uint8)
        }
        arrays |= {f"{part}_labels": labels}
    np.savez_compressed(tmp_path / "mnist.npz", **arrays)
    return tmp_path


def test_packed_data_is_taken_first(packed):
    data = portion("mnist", packed)
    assert (len(data.train.labels), len(data.test.labels)) == (200, 50)


def test_a_shrunk_pixel_is_the_mean_of_a_square():
    image = np.array([[0, 2, 7, 7], [4, 6, 7, 7]], dtype=np.uint8)[None, None]
    assert shrunk(image, 2).tolist() == [[[[3, 7]]]]
    assert np.array_equal(shrunk(image, 1), image)


def test_streams_take_no_more_than_is_packed():
    for stream in (each for each in STREAMS.values() if isinstance(each, ImageStream)):
        assert stream.samples <= PORTIONS[stream.benchmark.dataset].train


# Runs


def tiny_images():
    return ImageStream(title="tiny", benchmark=Permuted("mnist", tasks=3), samples=10, epochs=1, batch_size=10, lr=0.05)


def tiny_texts():
    texts = [b"def f(x): return x\n", b"int f(int x) { return x; }\n", b"What is said is said.\n"]
    return tuple(Corpus(name, text * 40, text * 20) for name, text in zip(("a", "b", "c"), texts, strict=True))


METHODS = {"sgd": {}, "fopng-k": {}, "er": {"capacity": 20}}


@pytest.mark.parametrize("method", METHODS)
def test_a_run_on_images(method, packed):
    measured = run_images(tiny_images(), method, {"lr": 0.05, **METHODS[method]}, 0, packed, CPU)
    assert [len(row) for row in measured.score] == [3, 3, 3]
    assert [[value is None for value in row] for row in measured.lost] == [
        [False, True, True],
        [False, False, True],
        [False] * 3,
    ]
    assert (measured.kept_bytes == 0) == (method == "sgd")
    assert not measured.diverged


@pytest.mark.parametrize("method", METHODS)
def test_a_run_on_texts(method, tmp_path):
    stream = TextStream(
        title="tiny", length=16, batch_size=4, first_steps=3, first_batch_size=4, steps=2, lr=0.05, tested=8
    )
    measured = run_texts(stream, method, {"lr": 0.05, **METHODS[method]}, 0, tiny_texts(), CPU, tmp_path)
    assert np.array(measured.score).shape == (3, 3)
    assert [row[task] for task, row in enumerate(measured.lost)] == [0.0] * 3
    assert measured.lost[2][0] > 0
    assert measured.before == [None, measured.score[0][1], measured.score[1][2]]
    assert (measured.kept_bytes == 0) == (method == "sgd")


def test_the_first_texts_are_learnt_once_for_all(tmp_path):
    stream = TextStream(
        title="tiny", length=16, batch_size=4, first_steps=3, first_batch_size=4, steps=2, lr=0.05, tested=8
    )
    made = first_model(stream, 0, tiny_texts()[0], CPU, tmp_path)
    [path] = tmp_path.iterdir()
    written = path.stat().st_mtime_ns
    again = first_model(stream, 0, tiny_texts()[0], CPU, tmp_path)
    assert path.stat().st_mtime_ns == written
    assert all(torch.equal(a, b) for a, b in zip(made.parameters(), again.parameters(), strict=True))
    first_model(replace(stream, first_steps=4), 0, tiny_texts()[0], CPU, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


# The grid


def test_what_replay_needs_is_done_with_it():
    [needed, replay] = cells(["short-mnist"], [REPLAY], [0])
    assert filled_like(replay) == needed
    assert CONTENDERS[needed.contender].asked == 0.1


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="Expected a stream, got 'split-mnits'. Did you mean 'split-mnist'"):
        cells(["split-mnits"], [PLAIN], [0])
    with pytest.raises(ValueError, match="Expected a contender, got 'plane'"):
        cells(["split-mnist"], ["plane"], [0])


def test_a_run_that_is_done_is_left_alone(packed, tmp_path):
    places = Places(out=tmp_path / "out", cache=tmp_path, data_dir=packed, device="cpu")
    first, second = cells(["short-mnist"], [PLAIN], [0, 1])
    record = do(first, places)
    assert load_record(first.path(places.out)).cell == record.cell
    assert missing([first, second], places.out) == [second]
    written, said = first.path(places.out).read_bytes(), []
    do_all([first, second], places, jobs=1, say=said.append)
    assert said[0].startswith("1 of 2 runs to do")
    assert said[1].startswith("short-mnist, plain training, seed 1: done")
    assert first.path(places.out).read_bytes() == written
    assert missing([first, second], places.out) == []


def test_replay_keeps_as_many_bytes(packed, tmp_path, monkeypatch):
    places = Places(out=tmp_path / "out", cache=tmp_path, data_dir=packed, device="cpu")
    monkeypatch.setitem(CONTENDERS, "tolerance-0.1", Contender(title="bent", method="fopng-k"))
    needed, replay = cells(["short-mnist"], [REPLAY], [0])
    kept, record = do(needed, places).measured.kept_bytes, do(replay, places)
    assert record.settings["capacity"] == kept // 785
    assert record.settings["replay_samples"] == 10


def test_a_run_that_fails_is_told_and_the_others_are_done(packed, tmp_path):
    (packed / "mnist.npz").write_bytes(b"not an archive")
    places = Places(out=tmp_path / "out", cache=tmp_path, data_dir=packed, device="cpu")
    with pytest.raises(RuntimeError, match="short-mnist, plain training, seed 0: "):
        do_all(cells(["short-mnist"], [PLAIN], [0]), places, jobs=1, say=lambda line: None)


# Tables


def record(stream, contender, seed, lost, score):
    rows = [[score, 4.0, 4.0], [score + lost, score, 4.0], [score, score, score]]
    measured = Measured(
        score=rows, before=[None, 3.0, 3.0], lost=[[0.0, None, None], [lost, 0.0, None], [lost, 2 * lost, 0.0]],
        kept_bytes=2**20, method={},
    )  # fmt: skip
    cell = Cell(stream=stream, contender=contender, seed=seed)
    return Record(cell=cell, measured=measured, settings={"capacity": 1300}, data={}, environment={})


def grid():
    found = [record(stream, name, seed, CONTENDERS[name].asked or 1.0, 0.5 + 0.25 * seed) for stream in ("split-mnist", "texts")
             for name in (PLAIN, *ASKED, *FIXED, REPLAY) for seed in range(3)]  # fmt: skip
    return Grid(found)


def test_what_was_delivered():
    lines = SUMMARIES["delivered"](grid()).splitlines()
    assert lines[2] == "| Split-MNIST | 0.045 (0.060) | 0.150 (0.200) | 0.450 (0.600) | 1.500 (2.000) |"


@pytest.mark.parametrize("name", SUMMARIES)
def test_tables_are_whole(name):
    lines = SUMMARIES[name](grid()).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) > 2
    assert isinstance(SUMMARIES[name](Grid([])), str)


def test_a_run_that_diverged_is_counted_apart():
    good, bad = record("split-mnist", PLAIN, 0, 0.1, 0.7), record("split-mnist", PLAIN, 1, 9.0, 0.1)
    bad = replace(bad, measured=replace(bad.measured, diverged=True))
    assert "0.150 (0.200) (1 diverged)" in SUMMARIES["delivered"](Grid([good, bad]))


def test_the_figure_has_a_line_a_stream():
    assert len(delivered_frame(grid())) == 6
    assert figure(grid()).startswith("<svg")


def test_records_come_back_from_their_files(tmp_path):
    whole = record("texts", PLAIN, 0, 0.25, 0.5)
    whole.save(tmp_path)
    assert load_records(tmp_path) == [whole]
    nothing = replace(whole, measured=replace(whole.measured, score=[[float("nan")]]))
    nothing.save(tmp_path)
    assert json.loads(nothing.cell.path(tmp_path).read_text())["measured"]["score"] == [[None]]


# The command


ALONE = """
import sys
class KeepOut:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("altair", "jinja2", "pandas", "pooch", "requests", "scipy", "vl_convert")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, KeepOut())
from reproduction.__main__ import app
app(["tolerance", "--dry-run", "--seeds", "1", "--streams", "texts", "--out", sys.argv[1], "--cache", sys.argv[1]])
"""


def test_runs_need_few_libraries(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path)], capture_output=True, text=True, cwd=FOLDER.parent
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"{len(CONTENDERS)} of {len(CONTENDERS)} runs to do.\n"
