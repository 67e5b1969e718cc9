"""sweep, ablate, paper, claims, export, restore: what they do, and what they say when they cannot."""

import json
import tomllib
from collections import Counter

import pytest

import fopng.lab.schedule.batched
import fopng.lab.schedule.inline
import reproduction.plan
from fopng.lab.runs.request import configurations
from fopng.lab.runs.store import Store

SWEEP = """
benchmarks = ["split-digits"]
epochs = 1
batch_size = 50
[benchmark]
tasks = 2
[validation]
seeds = [100, 101]
[test]
seeds = [0, 1]
[methods.sgd]
lr = [1e-3, 1e-2, 1e-1]
[[methods.fopng]]
lr = [1e-3, 1e-1]
[[methods.fopng]]
damping = [1e-3, 1e-2]
"""

QUICK = ("--epochs", "1", "--batch-size", "50", "--set", "tasks=2")


@pytest.fixture
def run(fopng, tmp_path):
    """Run a command line in a folder with a sweep."""
    (tmp_path / "mine.toml").write_text(SWEEP)
    return fopng


def results_there(folder):
    """Every result with what doing it cost, which no run would come to again; less who asked for it, and its sum."""
    results = {path: json.loads(path.read_text()) for path in folder.rglob("result.json")}
    return {path: {**result, "experiments": [], "sha256": ""} for path, result in results.items()}


def experiments(folder):
    """How many results each experiment has."""
    results = [json.loads(path.read_text()) for path in folder.rglob("result.json")]
    return Counter(name for result in results for name in result["experiments"])


def contents(folder, pattern):
    return {path: path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}


class TestSweep:
    def test_from_a_file_to_chosen_settings_and_a_page(self, run, tmp_path):
        assert "split-digits  sgd         3        0" in run("sweep mine.toml").out
        folder = tmp_path / "runs" / "sweeps" / "mine"
        chosen = tomllib.loads((folder / "split-digits.toml").read_text())
        assert set(chosen) == {"epochs", "batch_size", "benchmark", "sgd", "fopng"}
        assert set(chosen["fopng"]) == {"lr", "damping"}
        assert (folder / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
        found = json.loads((folder / "sweep.json").read_text())
        assert [(each["method"], len(each["points"])) for each in found["responses"]] == [("sgd", 3), ("fopng", 4)]
        assert [each["method"] for each in found["test"]] == ["sgd", "sgd", "fopng", "fopng"]

        before = results_there(tmp_path)
        again = run(f"run split-digits fopng --settings {folder}/split-digits.toml --seeds 2 --json").json
        assert [each["key"] for each in again] == [each["key"] for each in found["test"][2:]]
        assert run("sweep mine.toml --json").json == found
        assert results_there(tmp_path) == before
        assert experiments(tmp_path) == {"sweep/mine": 14, "chosen/mine": 4, "comparison": 2}

    def test_the_whole_grid_stands_side_by_side(self, run):
        said = run("sweep mine.toml --method sgd --engine replicas")
        assert "runs 1-6/6, split-digits sgd seed 100 and 5 more" in said.err

    def test_what_would_be_done(self, run, tmp_path):
        found = run("sweep mine.toml --dry-run --json").json
        assert (found["there"], found["missing"], found["at_most"]) == (0, 10, 3 * 2 + 4 * 2 + 4)
        assert results_there(tmp_path) == {}
        run("sweep mine.toml --method sgd")
        said = run("sweep mine.toml --dry-run")
        assert "6 runs there already, 4 to do in this round, about 0:" in said.err
        assert said.out.splitlines()[1].split() == ["split-digits", "sgd", "validation", "6", "0"]

    def test_interrupted_it_goes_on(self, run, tmp_path, monkeypatch):
        real, calls = fopng.lab.schedule.batched.train_replicas, []

        def stops(plans, **more):
            calls.append(len(plans))
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(plans, **more)

        with monkeypatch.context() as patched:
            patched.setattr(fopng.lab.schedule.batched, "train_replicas", stops)
            run("sweep mine.toml --engine replicas", code=130)
        there = results_there(tmp_path)
        assert len(there) == 6
        run("sweep mine.toml --engine replicas")
        assert there.items() <= results_there(tmp_path).items()

    def test_a_failed_run_does_not_stop_the_rest(self, run, monkeypatch):
        real = fopng.lab.schedule.inline.train

        def fails(plan, **more):
            if "fopng" in plan.label and plan.seed == 101:
                raise RuntimeError("no such luck")
            return real(plan, **more)

        monkeypatch.setattr(fopng.lab.schedule.inline, "train", fails)
        err = run("sweep mine.toml --engine single", code=1).err
        assert "split-digits fopng seed 101 failed and is left out: RuntimeError: no such luck" in err
        assert err.rstrip().endswith("runs failed (split-digits fopng). The same command tries them again.")
        assert "Written: runs/sweeps/mine/split-digits.toml" in err

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("sweep none.toml", "Name one that exists"),
            ("sweep mine.toml --method sdg", "Did you mean 'sgd'"),
            ("ablate lamda", "Did you mean 'lambda'"),
            ("ablate lambda --benchmark split-digits --method sgd", "damping"),
            ("ablate alpha --benchmark split-digits --values 0.5,2", "fisher_weight in [0, 1]"),
            ("paper --only figure", "a part of the paper"),
            ("paper --seeds none", "--seeds"),
            ("export nowhere results", "Expected finished runs in nowhere, got none. See:"),
            ("restore nowhere runs", "Expected finished runs in nowhere, got none. See:"),
            ("restore not-there runs", "not-there"),
        ],
    )
    def test_mistakes(self, run, tmp_path, line, message):
        (tmp_path / "nowhere").mkdir()
        assert message in run(line, code=2).err
        assert results_there(tmp_path) == {}


class TestRestore:
    def test_a_sweep_goes_on_elsewhere(self, run, tmp_path):
        run("sweep mine.toml --method sgd")
        run("export runs results")
        said = run("restore results elsewhere --method sgd --json")
        assert said.json == {"restored": 8, "there": 0}
        assert "8 runs restored in elsewhere, 0 there already." in said.err

        def numbers(place):
            found = Store(tmp_path / place).results()
            return {each.config.key: (each.accuracy, each.validation_accuracy, each.seconds) for each in found}

        assert numbers("elsewhere") == numbers("runs")
        said = run("sweep mine.toml --out elsewhere --dry-run")
        assert "6 runs there already, 4 to do in this round" in said.err
        before = contents(tmp_path / "elsewhere", "result.json")
        run("sweep mine.toml --method sgd --out elsewhere")
        assert contents(tmp_path / "elsewhere", "result.json") == before

    def test_what_is_there_is_left_alone(self, run, tmp_path):
        run("run split-digits sgd --seeds 2", *QUICK)
        run("export runs results")
        before = contents(tmp_path / "runs", "*")
        assert "0 runs restored in runs, 2 there already." in run("restore results runs").err
        assert contents(tmp_path / "runs", "*") == before


class TestAblate:
    def test_a_table_and_a_page(self, run, tmp_path):
        line = "ablate fisher-samples --benchmark split-digits --seeds 2 --values 16,1,full"
        out = run(line, *QUICK).out
        assert [line.split()[1] for line in out.splitlines()[1:]] == ["1", "16", "full"]
        assert "full (paper)" in out
        assert (tmp_path / "runs" / "ablation-fisher-samples.html").exists()
        assert experiments(tmp_path) == {"ablation/fisher_samples": 6}
        [found] = run(line, *QUICK, "--json").json
        assert [step["value"] for step in found["steps"]] == [1, 16, None]
        assert all(len(step["runs"]) == 2 for step in found["steps"])

    def test_a_dry_run_counts_what_is_missing(self, run, tmp_path):
        line = "ablate alpha --benchmark split-digits --seeds 1"
        said = run(f"{line} --values 0.2,0.5 --dry-run", *QUICK)
        assert "0 runs there already, 2 to do, about 0:0" in said.err
        assert said.out.splitlines()[1].split() == ["split-digits", "fopng", "test", "0", "2"]
        assert not (tmp_path / "runs").exists()
        run(f"{line} --values 0.5", *QUICK)
        found = run(f"{line} --values 0.2,0.5 --dry-run --json", *QUICK).json
        assert (found["there"], found["missing"], len(found["runs"])) == (1, 1, 1)
        twice = f"{line} --values 0.2,0.5 --benchmark split-digits --again --dry-run --no-estimate"
        assert "0 runs there already, 2 to do." in run(twice, *QUICK).err


@pytest.fixture
def small_paper(monkeypatch):
    """The paper on small digits."""
    few = {"split-mnist": ["tasks=2"], "rotated-mnist": ["angles=0,10"]}

    def small(*, benchmark, assignments=(), **words):
        more = [*few[benchmark], *assignments]
        return configurations(benchmark=benchmark, dataset="digits", batch_size=50, assignments=more, **words)

    monkeypatch.setattr(reproduction.plan, "configurations", small)
    monkeypatch.setattr(reproduction.plan, "paper_benchmarks", lambda: list(few))


@pytest.mark.usefixtures("small_paper")
class TestPaper:
    def test_a_part_of_it_again_and_published(self, run, tmp_path):
        part = "paper --only split-mnist --seeds 2 --epochs 1 --no-estimate"
        said = run(f"{part} --protocol both")
        assert "44 of 44 runs to do." in said.err
        assert "Part 2 of 2: split-mnist, printed" in said.err
        assert "beats-ogd: not decided by these runs" in said.out
        assert (tmp_path / "runs" / "paper.html").exists()

        before = results_there(tmp_path)
        found = run(f"{part} --json").json
        assert results_there(tmp_path) == before
        assert len(found["results"]) == 22
        assert {each["claim"] for each in found["claims"]} >= {"split-mnist-lead", "alpha-robust"}

        judged = [each["condition"] for each in run("claims --json").json if each["claim"] == "beats-ogd"]
        conditions = {condition.partition(";")[0] for condition in judged}
        assert conditions == {f"{name} protocol, the paper's settings" for name in ("matched", "printed")}

        run("export runs results")
        files = contents(tmp_path / "results", "*")
        assert {path.name for path in files} == {f"split-mnist-{name}.results.json" for name in ("matched", "printed")}
        run("export runs results --protocol printed")
        assert contents(tmp_path / "results", "*") == files

        run("report results -o page.html")
        assert (tmp_path / "page.html").exists()

    def test_how_long_it_would_take(self, run, tmp_path):
        said = run("paper --only alpha --seeds 1 --epochs 1 --dry-run --json")
        parts = [(f"alpha on {name}-mnist, matched", 8, 8) for name in ("split", "rotated")]
        assert [(row["part"], row["runs"], row["missing"]) for row in said.json] == parts
        assert said.json[1]["seconds"] >= said.json[0]["seconds"] > 0
        assert "16 of 16 runs to do, about " in said.err
        assert results_there(tmp_path) == {}
