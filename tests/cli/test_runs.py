"""run, compare, report, show, methods: what they do, and what they say when they cannot."""

import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fopng.cli.run_options import parse_seeds
from fopng.lab.runs.result import RunResult
from fopng.optim.registry import METHODS

QUICK = ("--epochs", "1", "--batch-size", "64", "--set", "tasks=2")

PROMISED = {
    *("benchmark", "dataset", "scenario", "protocol", "method", "settings", "seed", "accuracy", "average_accuracy"),
    *("forgetting", "removed_fraction", "seconds"),
}


@pytest.fixture
def results(fopng):
    """Quick runs, as `--json` prints them."""
    return lambda words: fopng(f"run {words}", *QUICK, "--json").json


def numbers(results):
    costs = ("seconds", "seconds_by_phase", "peak_memory_bytes")
    return [{name: value for name, value in each.items() if name not in costs} for each in results]


class TestRun:
    @pytest.mark.parametrize("method", METHODS)
    def test_every_method(self, results, method):
        [found] = results(f"split-digits {method}")
        assert set(found) >= PROMISED
        assert (found["benchmark"], found["dataset"], found["scenario"]) == ("split-digits", "digits", "domain")
        assert (found["protocol"], found["method"], found["seed"]) == ("matched", method, 0)
        assert found["average_accuracy"][-1] > 0.3

    def test_a_table_and_where_the_runs_are(self, fopng):
        said = fopng("run split-digits sgd", *QUICK)
        assert "sgd" in said.out
        assert max(map(len, said.out.splitlines())) <= 80
        assert "Runs in runs." in said.err

    @pytest.mark.parametrize("as_json", [(), ("--json",)])
    def test_with_nothing_to_do_each_result_is_parsed_once(self, fopng, results, monkeypatch, as_json):
        keys = [each["key"] for each in results("split-digits sgd --seeds 2")]
        parsed, parse = [], RunResult.from_dict
        monkeypatch.setattr(RunResult, "from_dict", lambda members: parsed.append(members["key"]) or parse(members))
        fopng("run split-digits sgd --seeds 2", *QUICK, *as_json)
        assert sorted(parsed) == sorted(keys)

    def test_a_finished_run_is_not_done_again_unless_asked(self, results, tmp_path):
        first = results("split-digits sgd")
        [file] = tmp_path.rglob("result.json")
        written = file.stat().st_mtime_ns
        assert results("split-digits sgd") == first
        assert file.stat().st_mtime_ns == written
        assert numbers(results("split-digits sgd --again")) == numbers(first)
        assert file.stat().st_mtime_ns != written

    @pytest.mark.parametrize(("told", "seeds"), [("2", [0, 1]), ("4,1", [4, 1]), ("7,3-5", [7, 3, 4, 5])])
    def test_seeds(self, results, told, seeds):
        assert [each["seed"] for each in results(f"split-digits sgd --seeds {told}")] == seeds

    def test_protocols(self, results):
        [matched], [printed] = (results(f"split-digits adam --protocol {name}") for name in ("matched", "printed"))
        assert (matched["config"]["first_task_lr"], printed["config"]["first_task_lr"]) == (0.01, None)
        assert matched["accuracy"][0] != printed["accuracy"][0]

    def test_scenario_dataset_model_and_validation(self, results):
        [found] = results("split-mnist fng --dataset digits --scenario task --model convnet --threads 1 --validation")
        assert (found["benchmark"], found["dataset"], found["scenario"]) == ("split-mnist", "digits", "task")
        assert found["config"]["model"] == "convnet"
        assert len(found["validation_accuracy"]) == 2

    def test_threads_and_trackers(self, results, tmp_path):
        results("split-digits sgd --threads 1 --track tensorboard --track wandb --engine single --device cpu")
        assert list(tmp_path.rglob("tensorboard/events*"))
        assert list(tmp_path.rglob("wandb/offline-run-*/*.wandb"))

    def test_ones_own_stream_and_model(self, fopng, tmp_path):
        (tmp_path / "tasks_of_mine.py").write_text(
            "import torch\n"
            "from fopng.lab.benchmarks import Scenario, Task, TaskStream\n"
            "def stream(seed, validation):\n"
            "    data = (torch.randn(20, 3), torch.arange(20) % 2)\n"
            "    tasks = [Task.of(str(n), train=data, test=data) for n in range(2)]\n"
            "    return TaskStream.of('mine', tasks, Scenario.TASK)\n"
            "class Model(torch.nn.Module):\n"
            "    def __init__(self, stream):\n"
            "        super().__init__()\n"
            "        self.heads = torch.nn.ModuleList(torch.nn.Linear(3, n) for n in stream.heads)\n"
            "    def forward(self, x, task):\n"
            "        return self.heads[task](x)\n"
        )
        line = "run tasks_of_mine:stream fopng --model tasks_of_mine:Model --epochs 1 --json"
        assert fopng(line).json[0]["scenario"] == "task"

    def test_a_damaged_result_is_told_and_done_again(self, fopng, results, tmp_path):
        first = results("split-digits sgd")
        [file] = tmp_path.rglob("result.json")
        os.truncate(file, 100)
        said = fopng("run split-digits sgd", *QUICK, "--json")
        assert "It is done again." in said.err
        assert numbers(said.json) == numbers(first)

    def test_a_divergence_is_a_result(self, results):
        [found] = results("split-digits sgd --set lr=1e30")
        assert (found["status"], len(found["accuracy"])) == ("diverged", 1)

    def test_a_memory_that_is_full_is_told_once(self, fopng):
        said = fopng("run split-digits ogd --set max_directions=90 --seeds 2", *QUICK)
        assert said.err.count("The gradient memory is full") == 1


class TestCompare:
    def test_the_papers_seven_start_alike_and_leave_a_page(self, fopng, tmp_path):
        found = fopng("compare split-digits --json", *QUICK).json
        assert [each["method"] for each in found] == ["sgd", "adam", "ewc", "fng", "ogd", "fopng", "fopng-prefisher"]
        assert len({tuple(each["accuracy"][0]) for each in found}) == 1
        assert len({tuple(each["initial_accuracy"]) for each in found}) == 1
        assert "split-digits" in (tmp_path / "runs" / "split-digits.html").read_text()

    def test_the_comparison_has_a_name(self, fopng, tmp_path):
        for name in ((), ("--experiment", "mine")):
            fopng("compare split-digits sgd", *QUICK, *name)
        [path] = tmp_path.rglob("result.json")
        assert json.loads(path.read_text())["experiments"] == ["comparison", "comparison/mine"]

    def test_settings_for_one_of_them(self, fopng, tmp_path):
        line = "compare split-digits sgd fng --set sgd.lr=0.5 --set damping=0.5 --page page.html --json"
        assert [each["settings"]["lr"] for each in fopng(line, *QUICK).json] == [0.5, 1e-3]
        assert (tmp_path / "page.html").exists()

    def test_two_processes(self, fopng, results):
        said = fopng("compare split-digits sgd ogd --jobs 2 --json", *QUICK)
        assert numbers(said.json) == numbers([*results("split-digits sgd"), *results("split-digits ogd")])
        assert "run 2/2" in said.err


class TestReportAndShow:
    @pytest.fixture(autouse=True)
    def _runs(self, results):
        for method in ("sgd", "joint"):
            results(f"split-digits {method}")

    def test_report(self, fopng, tmp_path):
        said = fopng("report")
        assert "joint" in said.out
        assert "Written: report.html" in said.err
        assert "</table>" in (tmp_path / "report.html").read_text()

    @pytest.mark.parametrize(
        ("options", "written"),
        [
            ("--format md", "report.md"),
            ("-o a/b.md", "a/b.md"),
            ("--format csv -o anything", "anything"),
            ("--format json", "report.json"),
            ("--format svg", "charts/01-split-digits-matched-protocol-accuracy.svg"),
            ("--format png -o here", "here/01-split-digits-matched-protocol-matrices.png"),
            ("--format pdf -o here", "here/01-split-digits-matched-protocol-accuracy.pdf"),
        ],
    )
    def test_report_in_other_formats(self, fopng, tmp_path, options, written):
        assert f"Written: {written}" in fopng(f"report runs {options}").err
        assert (tmp_path / written).stat().st_size > 100

    def test_report_as_numbers(self, fopng, tmp_path):
        fopng("report runs -o out/scores.csv --method sgd")
        assert len((tmp_path / "out" / "scores.csv").read_text().splitlines()) == 2
        fopng("report runs -o matrix.csv --matrix --method sgd")
        assert len((tmp_path / "matrix.csv").read_text().splitlines()) == 4
        fopng("report runs -o all.json")
        assert len(json.loads((tmp_path / "all.json").read_text())) == 2

    @pytest.mark.parametrize(
        "words",
        [
            *("nowhere", "runs -o page.docx", "runs -o page.png", "runs --format docx", "runs --method ewc"),
            "runs --matrix",
        ],
    )
    def test_report_of_nothing(self, fopng, words):
        said = fopng(f"report {words}", code=2)
        assert said.out == ""
        assert 1 <= said.err.count("\n") <= 2

    def test_show(self, fopng):
        assert fopng("show").out.count("finished") == 2
        runs = fopng("show --json").json
        [learnt] = [run for run in runs if run["method"] == "sgd"]
        assert "Forgetting" in fopng(f"show {learnt['key'][:8]}").out
        assert fopng(f"show {runs[0]['key']} --json").json["key"] == runs[0]["key"]

    def test_show_tells_a_run_under_way_from_one_whose_process_is_gone(self, fopng):
        folder = Path(fopng("show --json").json[0]["folder"])
        (folder / "result.json").unlink()
        for process, state in ((os.getpid(), "under way"), (2**22 - 1, "unfinished")):
            (folder / "lock").write_text(json.dumps({"process": process, "host": socket.gethostname()}))
            assert sorted(run["state"] for run in fopng("show --json").json) == sorted(["finished", state])

    @pytest.mark.parametrize("words", ["zzz", "--out nowhere"])
    def test_show_what_is_not_there(self, fopng, words):
        fopng(f"show {words}", code=2)

    def test_intransigence_is_against_the_joint_run(self, fopng):
        found = {each["method"]: each for each in fopng("report --json").json}
        joint, own = found["joint"]["accuracy"][-1], found["sgd"]["accuracy"]
        expected = sum(joint[task] - own[task][task] for task in range(2)) / 2
        assert found["sgd"]["intransigence"] == pytest.approx(expected)
        assert found["joint"]["intransigence"] is None


class TestMethods:
    def test_all(self, fopng):
        out = fopng("methods").out
        assert all(name in out for name in METHODS)
        assert max(map(len, out.splitlines())) <= 80
        with_data = [each["name"] for each in fopng("methods --json").json if each["keeps_data"]]
        assert with_data == ["er", "gem", "a-gem", "joint"]

    @pytest.mark.parametrize("name", METHODS)
    def test_every_setting_is_explained(self, fopng, name):
        assert all(setting["explanation"] for setting in fopng(f"methods {name} --json").json["settings"])
        assert "lr" in fopng(f"methods {name}").out


@pytest.mark.parametrize("written", ["0", "1-3,x", "5-3", "3-", "", "-1", "0-10000", "10001"])
def test_seeds_that_are_none(written):
    with pytest.raises(ValueError, match="for --seeds|at most 10000 seeds"):
        parse_seeds(written)


class TestMistakes:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("run split-digit sgd", "Did you mean split-digits?"),
            ("run split-digits fopgn", "Did you mean 'fopng'?"),
            ("run split-digits fopng --set damping=-1", "Expected"),
            ("run split-digits sgd --set tasks=x", "for tasks, got 'x'"),
            ("run split-digits sgd --seeds 1,1", "each seed once"),
            ("run split-digits sgd --epochs 0", "epochs of at least 1"),
            ("run split-digits sgd --protocol paper", "protocol"),
            ("run split-digits sgd --scenario all", "scenario"),
            ("run split-digits sgd --engine replica", "engine"),
            ("run split-digits sgd --device tpu", "device"),
            ("run split-digits sgd --settings none.toml", "Expected a TOML file"),
            ("run split-digits", "Missing argument"),
            ("compare split-digits sgd sgd", "each method once"),
            ("run mine:stream sgd --scenario task", "makes its own tasks"),
        ],
    )
    def test_are_told_in_a_line_or_two_before_work_starts(self, fopng, tmp_path, line, words):
        said = fopng(line, code=2)
        assert said.out == ""
        assert words in said.err
        assert 1 <= said.err.count("\n") <= 2
        assert not list(tmp_path.rglob("runs"))

    def test_a_dataset_that_is_not_there_is_a_failure(self, on_an_empty_machine, tmp_path):
        said = on_an_empty_machine("run split-cifar10 sgd", code=1)
        assert said.out == ""
        assert "fopng data fetch cifar10" in said.err
        assert 1 <= said.err.count("\n") <= 2
        assert not list(tmp_path.rglob("runs"))

    def test_a_folder_that_cannot_be_written(self, fopng, tmp_path):
        (tmp_path / "file").write_text("")
        assert 1 <= fopng("run split-digits sgd --out file/runs", *QUICK, code=1).err.count("\n") <= 2


def among(words):
    return st.sampled_from(words.split())


NAMES = among(
    "lr damping strength momentum gradients_per_task max_directions fisher_samples projection fisher_weight gram_damping "
    "labels score order shuffled classes_per_task lrr"
)
VALUES = among(
    "0 1 2 -1 0.5 1e-3 1e30 nan inf full none x printed orthogonal observed sampled expected average yes 1,2 3,1,2,0"
) | st.text(max_size=8)
CHOICES = {
    "--set": st.builds("{}={}".format, NAMES, VALUES) | st.text(max_size=8),
    "--seeds": among("1 2, 0,1 1-2 2-1 0 -1 x"),
    "--epochs": among("1 0 -1 x"),
    "--batch-size": among("100 1000 0 x"),
    "--scenario": among("task domain class x"),
    "--protocol": among("matched printed x"),
    "--first-task-lr": among("0.1 1e30 0 nan x"),
    "--model": among("mlp x no:where"),
    "--dataset": among("digits x"),
}
OPTIONS = st.one_of(
    *(st.tuples(st.just(name), words) for name, words in CHOICES.items()), st.tuples(st.just("--validation"))
)
FEW = {
    "split-digits": "tasks=2",
    "rotated-digits": "angles=0,9",
    "permuted-digits": "tasks=2",
    "split-digit": "tasks=2",
}


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["split-digits"] * 6 + list(FEW)),
    st.sampled_from([*METHODS, "fopgn"]),
    st.lists(OPTIONS, max_size=4),
)
def test_any_configuration_ends_in_a_result_or_in_an_error_of_a_line_or_two(
    fopng, command_line, benchmark, method, options
):
    small = ("--epochs", "1", "--batch-size", "100", "--set", FEW[benchmark], "--json")
    code, out, err = command_line("run", benchmark, method, *small, *(word for option in options for word in option))
    if code == 0:
        assert set(json.loads(out)[0]) >= PROMISED
    else:
        assert code in (1, 2), err
        assert out == ""
        assert 1 <= len(err.splitlines()) <= 2, err
        assert "FOPNG_DEBUG" not in err, err
