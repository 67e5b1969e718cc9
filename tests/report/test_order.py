"""One order of benchmarks, wherever results are listed."""

import json
import random
import re

from fopng.cli.commands import Show
from fopng.cli.show import show
from fopng.lab import report
from fopng.lab.analysis.experiments import sort_out
from fopng.lab.benchmarks import BENCHMARKS, PAPER
from fopng.lab.runs import demo
from fopng.lab.runs.hyperparameters import paper_benchmarks
from sample_runs import laboratory
from sweep_runs import held_out, on_test

ORDER = [
    "split-mnist",
    "rotated-mnist",
    "permuted-mnist",
    "split-cifar10",
    "split-digits",
    "rotated-digits",
    "own:stream",
]


def shuffled(results):
    return random.Random(0).sample(results, len(results))


def test_the_catalogue_the_paper_and_the_demonstration_agree():
    paper = ["split-mnist", "rotated-mnist", "permuted-mnist", "split-cifar10", "split-cifar100"]
    assert list(PAPER) == list(BENCHMARKS)[:5] == paper_benchmarks() == paper
    demonstrated = [request.benchmark for request in demo.demo_requests([0])]
    assert demonstrated == [name for name in BENCHMARKS if name in demonstrated]


def test_comparisons_are_in_the_order_of_the_catalogue():
    runs = shuffled(laboratory(["sgd", "ewc"], benchmarks=ORDER, seeds=2))
    assert [panel.title for panel in report.summarise(runs)] == ORDER
    assert [str(table.title) for table in report.result_tables(runs)] == ORDER
    page = report.report_html(runs, title="Results")
    assert re.findall(r'<h2 id="p\d+-title"><bdi>(.*?)</bdi>', page.replace("\n", "")) == ORDER
    assert re.findall(r"^## (\S+),", report.report_markdown(runs, title="Results"), re.MULTILINE) == ORDER


def test_sweeps_and_ablations_are_in_the_order_of_the_catalogue():
    names = ORDER[:3]
    runs = [held_out(0.6 + rate, benchmark=name, settings={"lr": rate}) for name in names for rate in (0.1, 0.2)]
    runs += [on_test(0.8, benchmark=name, settings={"damping": d}) for name in names for d in (1e-6, 5e-4, 1e-2)]
    found = sort_out(shuffled(runs))
    assert [response.benchmark for response in found.responses] == names
    assert [ablation.benchmark for ablation in found.ablations] == names
    page = report.report_html(shuffled(runs), title="Results")
    for kind in ("Sweep", "Ablations"):
        assert re.findall(rf'<h2 id="p\d+-title">\s*{kind} on <bdi>(.*?)</bdi>', page) == names


def test_runs_are_listed_in_the_order_of_the_catalogue(tmp_path, capsys):
    for run in laboratory(["sgd"], benchmarks=ORDER[:3], seeds=1):
        folder = tmp_path / run.config.benchmark / "sgd" / run.config.key
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(run.config.as_dict()))
    show(Show(out=tmp_path, as_json=True))
    assert [run["benchmark"] for run in json.loads(capsys.readouterr().out)] == ORDER[:3]
