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
def run(shared_cache, tmp_path, monkeypatch, command_line):
    """Run the command line here; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FOPNG_DEBUG", raising=False)
    monkeypatch.delenv("FOPNG_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(SWEEP)
    return command_line


def results_there(folder):
    """Every result with what doing it cost, which no run would come to again; less the experiments that asked for it."""
    results = {path: json.loads(path.read_text()) for path in folder.rglob("result.json")}
    return {path: {**result, "experiments": []} for path, result in results.items()}


def experiments(folder):
    """How many results each experiment has."""
    results = [json.loads(path.read_text()) for path in folder.rglob("result.json")]
    return Counter(name for result in results for name in result["experiments"])


class TestSweep:
    def test_from_a_file_to_chosen_settings_and_a_page(self, run, tmp_path):
        code, out, err = run("sweep", "mine.toml")
        assert code == 0, err
        assert "split-digits  sgd         3        0" in out
        folder = tmp_path / "runs" / "sweeps" / "mine"
        chosen = tomllib.loads((folder / "split-digits.toml").read_text())
        assert set(chosen) == {"epochs", "batch_size", "benchmark", "sgd", "fopng"}
        assert set(chosen["fopng"]) == {"lr", "damping"}
        assert (folder / "report.html").read_text(encoding="utf-8").endswith("</html>\n")
        found = json.loads((folder / "sweep.json").read_text())
        assert [(each["method"], len(each["points"])) for each in found["responses"]] == [("sgd", 3), ("fopng", 4)]
        assert [each["method"] for each in found["test"]] == ["sgd", "sgd", "fopng", "fopng"]

        before = results_there(tmp_path)
        code, out, _ = run(
            "run", "split-digits", "fopng", "--settings", str(folder / "split-digits.toml"), "--seeds", "2", "--json"
        )
        assert code == 0
        assert [each["key"] for each in json.loads(out)] == [each["key"] for each in found["test"][2:]]
        assert results_there(tmp_path) == before

        code, out, err = run("sweep", "mine.toml", "--json")
        assert code == 0
        assert json.loads(out) == found
        assert results_there(tmp_path) == before
        assert experiments(tmp_path) == {"sweep/mine": 14, "chosen/mine": 4, "comparison": 2}

    def test_the_whole_grid_stands_side_by_side(self, run):
        _, _, err = run("sweep", "mine.toml", "--method", "sgd", "--engine", "replicas")
        assert "runs 1-6/6, split-digits sgd seed 100 and 5 more" in err

    def test_what_would_be_done(self, run, tmp_path):
        code, out, err = run("sweep", "mine.toml", "--dry-run", "--json")
        assert code == 0, err
        found = json.loads(out)
        assert (found["there"], found["missing"], found["at_most"]) == (0, 10, 3 * 2 + 4 * 2 + 4)
        assert results_there(tmp_path) == {}
        run("sweep", "mine.toml", "--method", "sgd")
        code, out, err = run("sweep", "mine.toml", "--dry-run")
        assert "6 runs there already, 4 to do in this round, about 0:" in err
        assert out.splitlines()[1].split() == ["split-digits", "sgd", "validation", "6", "0"]

    def test_interrupted_it_goes_on(self, run, tmp_path, monkeypatch):
        real = fopng.lab.schedule.batched.train_replicas
        calls = []

        def stops(plans, **more):
            calls.append(len(plans))
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(plans, **more)

        monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", stops)
        code, _, _ = run("sweep", "mine.toml", "--engine", "replicas")
        assert code == 130
        there = results_there(tmp_path)
        assert len(there) == 6
        monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", real)
        assert run("sweep", "mine.toml", "--engine", "replicas")[0] == 0
        assert there.items() <= results_there(tmp_path).items()

    def test_a_failed_run_does_not_stop_the_rest(self, run, monkeypatch):
        real = fopng.lab.schedule.inline.train

        def fails(plan, **more):
            if "fopng" in plan.label and plan.seed == 101:
                raise RuntimeError("no such luck")
            return real(plan, **more)

        monkeypatch.setattr(fopng.lab.schedule.inline, "train", fails)
        code, _, err = run("sweep", "mine.toml", "--engine", "single")
        assert code == 1
        assert "split-digits fopng seed 101 failed and is left out: RuntimeError: no such luck" in err
        assert err.rstrip().endswith("runs failed (split-digits fopng). The same command tries them again.")
        assert "Written: runs/sweeps/mine/split-digits.toml" in err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["sweep", "none.toml"], "Name one that exists"),
            (["sweep", "mine.toml", "--method", "sdg"], "Did you mean 'sgd'"),
            (["ablate", "lamda"], "Did you mean 'lambda'"),
            (["ablate", "lambda", "--benchmark", "split-digits", "--method", "sgd"], "damping"),
            (["ablate", "alpha", "--benchmark", "split-digits", "--values", "0.5,2"], "fisher_weight in [0, 1]"),
            (["paper", "--only", "figure"], "a part of the paper"),
            (["paper", "--seeds", "none"], "--seeds"),
            (["export", "nowhere", "results"], "Expected finished runs in nowhere, got none. See:"),
            (["restore", "nowhere", "runs"], "Expected finished runs in nowhere, got none. See:"),
            (["restore", "not-there", "runs"], "not-there"),
        ],
    )
    def test_mistakes(self, run, tmp_path, arguments, message):
        (tmp_path / "nowhere").mkdir()
        code, _, err = run(*arguments)
        assert code == 2
        assert message in err
        assert results_there(tmp_path) == {}


class TestRestore:
    def test_a_sweep_goes_on_elsewhere(self, run, tmp_path):
        (tmp_path / "mine.toml").write_text(SWEEP)
        assert run("sweep", "mine.toml", "--method", "sgd")[0] == 0
        assert run("export", "runs", "results")[0] == 0
        code, out, err = run("restore", "results", "elsewhere", "--method", "sgd", "--json")
        assert (code, json.loads(out)) == (0, {"restored": 8, "there": 0}), err
        assert "8 runs restored in elsewhere, 0 there already." in err

        def numbers(place):
            found = Store(tmp_path / place).results()
            return {each.config.key: (each.accuracy, each.validation_accuracy, each.seconds) for each in found}

        assert numbers("elsewhere") == numbers("runs")
        code, out, err = run("sweep", "mine.toml", "--out", "elsewhere", "--dry-run")
        assert code == 0, err
        assert "6 runs there already, 4 to do in this round" in err
        before = {path: path.read_bytes() for path in (tmp_path / "elsewhere").rglob("result.json")}
        assert run("sweep", "mine.toml", "--method", "sgd", "--out", "elsewhere")[0] == 0
        assert {path: path.read_bytes() for path in (tmp_path / "elsewhere").rglob("result.json")} == before

    def test_what_is_there_is_left_alone(self, run, tmp_path):
        assert run("run", "split-digits", "sgd", "--seeds", "2", *QUICK)[0] == 0
        assert run("export", "runs", "results")[0] == 0
        before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
        code, _, err = run("restore", "results", "runs")
        assert code == 0
        assert "0 runs restored in runs, 2 there already." in err
        assert {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()} == before


class TestAblate:
    def test_a_table_and_a_page(self, run, tmp_path):
        arguments = ("ablate", "fisher-samples", "--benchmark", "split-digits", "--seeds", "2", "--values", "16,1,full")
        code, out, err = run(*arguments, *QUICK)
        assert code == 0, err
        assert [line.split()[1] for line in out.splitlines()[1:]] == ["1", "16", "full"]
        assert "full (paper)" in out
        assert (tmp_path / "runs" / "ablation-fisher-samples.html").exists()
        assert experiments(tmp_path) == {"ablation/fisher_samples": 6}
        code, out, _ = run(*arguments, *QUICK, "--json")
        [found] = json.loads(out)
        assert [step["value"] for step in found["steps"]] == [1, 16, None]
        assert all(len(step["runs"]) == 2 for step in found["steps"])

    def test_a_dry_run_counts_what_is_missing(self, run, tmp_path):
        arguments = ("ablate", "alpha", "--benchmark", "split-digits", "--seeds", "1", "--values", "0.2,0.5", *QUICK)
        code, out, err = run(*arguments, "--dry-run")
        assert (code, "0 runs there already, 2 to do, about 0:0" in err) == (0, True)
        assert out.splitlines()[1].split() == ["split-digits", "fopng", "test", "0", "2"]
        assert not (tmp_path / "runs").exists()
        assert run("ablate", "alpha", "--benchmark", "split-digits", "--seeds", "1", "--values", "0.5", *QUICK)[0] == 0
        code, out, _ = run(*arguments, "--dry-run", "--json")
        assert code == 0
        found = json.loads(out)
        assert (found["there"], found["missing"], len(found["runs"])) == (1, 1, 1)
        twice = (*arguments, "--benchmark", "split-digits", "--again", "--dry-run")
        assert "0 runs there already, 2 to do." in run(*twice, "--no-estimate")[2]


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
        part = ("paper", "--only", "split-mnist", "--seeds", "2", "--epochs", "1", "--no-estimate")
        code, out, err = run(*part, "--protocol", "both")
        assert code == 0, err
        assert "44 of 44 runs to do." in err
        assert "Part 2 of 2: split-mnist, printed" in err
        assert "beats-ogd: not decided by these runs" in out
        assert (tmp_path / "runs" / "paper.html").exists()

        before = results_there(tmp_path)
        code, out, err = run(*part, "--json")
        assert code == 0
        assert results_there(tmp_path) == before
        found = json.loads(out)
        assert len(found["results"]) == 22
        assert {each["claim"] for each in found["claims"]} >= {"split-mnist-lead", "alpha-robust"}

        code, out, _ = run("claims", "--json")
        assert code == 0
        conditions = {each["condition"].partition(";")[0] for each in json.loads(out) if each["claim"] == "beats-ogd"}
        assert conditions == {f"{name} protocol, the paper's settings" for name in ("matched", "printed")}

        assert run("export", "runs", "results")[0] == 0
        files = {path.name: path.read_bytes() for path in (tmp_path / "results").iterdir()}
        assert set(files) == {"split-mnist-matched.results.json", "split-mnist-printed.results.json"}
        assert run("export", "runs", "results", "--protocol", "printed")[0] == 0
        assert {path.name: path.read_bytes() for path in (tmp_path / "results").iterdir()} == files

        assert run("report", "results", "-o", "page.html")[0] == 0
        assert (tmp_path / "page.html").exists()

    def test_how_long_it_would_take(self, run, tmp_path):
        part = ("paper", "--only", "alpha", "--seeds", "1", "--epochs", "1", "--dry-run")
        code, out, err = run(*part, "--json")
        assert code == 0, err
        rows = json.loads(out)
        assert [(row["part"], row["runs"], row["missing"]) for row in rows] == [
            ("alpha on split-mnist, matched", 8, 8),
            ("alpha on rotated-mnist, matched", 8, 8),
        ]
        assert rows[1]["seconds"] >= rows[0]["seconds"] > 0
        assert "16 of 16 runs to do, about " in err
        assert results_there(tmp_path) == {}
