"""What somebody asks for becomes configurations: with the keys that committed results have, and without building anything."""

import pytest

from fopng.lab.benchmarks import DatasetBenchmark, OwnStream, models
from fopng.lab.runs.request import build, configurations
from fopng.optim.optimizer import ContinualOptimizer
from fopng.optim.registry import METHODS

OWN = "own_stream:stream"

FILE = "lr = 1e-2\nepochs = 2\n[benchmark]\ntasks = 3\n[ewc]\nstrength = 10\n[gpm]\nthreshold = 0.9\n"

PAPERS = {
    **{"sgd": "8521882344bbd0cf", "adam": "b988570c15213eca", "ewc": "525f583176e7a822", "fng": "b96f52ca0eed0543"},
    **{"ogd": "ee42963e2658ccdb", "fopng": "ac511c797bf16290", "fopng-prefisher": "6aaa35785a184181"},
    **{"ong": "c641f905b5c9e286", "natural-ogd": "8840a22a64dbbca6", "si": "c43826e2b9de6f44"},
    **{"mas": "ef4cea7de83534ea", "lwf": "18df02c286103254", "er": "eadcf3a3edfd8d85", "gem": "a28c8799d69974ed"},
    **{"a-gem": "d6cc1f94211af2c9", "online-ewc": "53c837a1e5ae3fdb", "fopng-k": "b9d4ee56c754c820"},
    **{"ncl": "f81bf7511d4783a6", "gpm": "6fb693e87fddda26", "sgp": "eacd78456b221a71", "joint": "dc3b02b44845128d"},
}
"""The key of every method with one seed on Split-MNIST."""

WORDS = ("fisher_samples=full", "projection=orthogonal", "lr=0.12345678901234567", "tasks=2")

KEYS = [
    ("rotated-mnist", ["sgd", "fopng"], {"seeds": [0, 3], "protocol": "printed"},
     ["22cc63ef3e11cda2", "9e301d2247b3d8e7", "ae4390b308f1779f", "2ead094026f26a2e"]),
    ("permuted-mnist", ["fopng", "joint"], {"seeds": [1], "scenario": "class", "validation": True},
     ["c3c18a5b0912972d", "cc56607bd73105c1"]),
    ("split-cifar10", ["fopng", "fopng-k", "ewc"], {"protocol": "printed"},
     ["0e78eecf58ae6867", "fdeeaeb56a41b027", "4ef05d139537b557"]),
    ("split-cifar100", ["adam", "gpm"], {"precision": "bfloat16", "batch_size": 64},
     ["bf22c1e854545bfa", "5b9f64cc95b65181"]),
    ("split-cifar100", ["fopng"], {"protocol": "printed", "assignments": ["classes_per_task=20"]}, ["d4fec88604c89e4e"]),
    ("split-digits", ["fopng"], {"assignments": WORDS}, ["040f3a2d953b8847"]),
    ("split-mnist", ["sgd", "ewc"], {"seeds": [5], "dataset": "digits", "settings_file": FILE},
     ["51d1e76a1a740d5b", "5334985232dcad79"]),
    ("split-digits", ["sgd"],
     {"assignments": ["order=3,1,2,0", "epochs=4"], "first_task_lr": 0.5, "precision": "float64", "model": "convnet"},
     ["742e55ddb356df75"]),
    ("rotated-cifar10", ["fopng-prefisher"], {"assignments": ["angles=0,22.5"]}, ["8c16415ea8b2e281"]),
    ("permuted-cifar100", ["ogd"], {"protocol": "printed"}, ["7fb6662d3ea79915"]),
    ("split-mnist", ["ncl", "si"], {"assignments": ["shuffled=yes"]}, ["302198212d200181", "94c02b21dcd644a5"]),
    (OWN, ["fopng", "joint"], {"protocol": "printed"}, ["9eafed38a8177430", "04b505f639c7d431"]),
]  # fmt: skip


@pytest.fixture
def built(monkeypatch):
    """What is built from here on: the name of each stream, model and optimizer."""
    found = []
    for kind, name in ((DatasetBenchmark, "build"), (OwnStream, "build"), (ContinualOptimizer, "__init__")):
        real = vars(kind)[name]

        def counted(self, *args, _real=real, **more):
            found.append(type(self).__name__)
            return _real(self, *args, **more)

        monkeypatch.setattr(kind, name, counted)
    for model in (models.MLP, models.ConvNet):
        monkeypatch.setattr(model, "__init__", lambda self, *args, **more: found.append(type(self).__name__))
    return found


@pytest.fixture
def streams(monkeypatch):
    """The seed of each stream that is built."""
    found, real = [], DatasetBenchmark.build

    def counted(self, *, seed, **more):
        found.append(seed)
        return real(self, seed=seed, **more)

    monkeypatch.setattr(DatasetBenchmark, "build", counted)
    return found


def keys(benchmark, methods, *, seeds=(0,), **words):
    return [each.key for each in configurations(benchmark=benchmark, methods=methods, seeds=seeds, **words)]


def test_no_key_has_changed(built, empty_machine):
    assert dict(zip(METHODS, keys("split-mnist", list(METHODS)), strict=True)) == PAPERS
    assert built == []


@pytest.mark.parametrize(("benchmark", "methods", "words", "expected"), KEYS, ids=str)
def test_no_key_has_changed_by_what_can_be_said(benchmark, methods, words, expected, shared_cache, tmp_path):
    if "settings_file" in words:
        (tmp_path / "mine.toml").write_text(FILE)
        words = {**words, "settings_file": tmp_path / "mine.toml"}
    assert keys(benchmark, methods, **words) == expected


def test_somebodys_own_stream_is_looked_at_once(built, shared_cache, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for method in METHODS:
        keys(OWN, [method], seeds=range(3), choices=[{"lr": 0.1}, {"lr": 0.2}])
    assert built.count("OwnStream") == 1


def chosen(*assignments, methods=("sgd", "fopng"), **words):
    found = configurations(benchmark="split-digits", methods=methods, seeds=[0], assignments=assignments, **words)
    return {config.method: config for config in found}


def test_variations_are_laid_over_what_all_share():
    found = configurations(
        benchmark="split-digits", methods=["sgd"], seeds=[3, 4], assignments=["lr=5"], choices=[{}, {"lr": "1e-1"}]
    )
    assert [(config.seed, config.settings["lr"]) for config in found] == [(3, 5.0), (3, 0.1), (4, 5.0), (4, 0.1)]


def test_how_it_is_trained_is_said_for_every_method_or_for_one():
    found = chosen("epochs=2", "fopng.batch_size=20", "sgd.first_task_lr=0.5")
    assert [(c.epochs, c.batch_size, c.first_task_lr) for c in found.values()] == [(2, 10, 0.5), (2, 20, 0.01)]
    assert all("epochs" not in config.settings for config in found.values())
    assert chosen("epochs=2", epochs=3)["sgd"].epochs == 3
    assert chosen("first_task_lr=0.5", first_task_lr=0.25)["sgd"].first_task_lr == 0.25


def test_a_file_is_below_the_command_line(tmp_path):
    (tmp_path / "mine.toml").write_text(
        "lr = 0.5\nmomentum = 0.5\nepochs = 2\n[fopng]\ndamping = 0.25\nlr = 0.125\n[benchmark]\norder = [3, 1]\n"
    )
    found = chosen("momentum=0.75", methods=["fopng"], settings_file=tmp_path / "mine.toml")["fopng"]
    assert {name: found.settings[name] for name in ("lr", "momentum", "damping")} == {
        **{"lr": 0.125, "momentum": 0.75, "damping": 0.25}
    }
    assert (found.epochs, found.benchmark_parameters["order"]) == (2, (3, 1))


def test_the_papers_whole_numbers_take_their_settings_type():
    """Or runs with the paper's strength would not stand beside those with another."""
    assert type(chosen(methods=["ewc"])["ewc"].settings["strength"]) is float


MISTAKES = [
    ({"assignments": ["epochs=0"]}, "Expected epochs of at least 1, got 0"),
    ({"epochs": 0}, "Expected epochs of at least 1, got 0"),
    ({"batch_size": -1}, "Expected batch_size of at least 1, got -1"),
    ({"first_task_lr": 0.0}, "Expected first_task_lr above 0"),
    ({"assignments": ["epochs=1.5"]}, "Expected a whole number for epochs"),
    ({"assignments": ["damping=-1"]}, "Expected damping above 0 and finite, got -1.0"),
    ({"choices": [{"fisher_weight": 2}]}, r"Expected fisher_weight in \[0, 1\], got 2.0"),
    ({"assignments": ["ncl.signals=normal", "ncl.metric=diagonal"], "methods": ["ncl"]}, "Expected signals of labels"),
    ({"assignments": ["dampin=1"]}, "Expected a setting of fopng or of split-digits, got 'dampin'. Did you mean 'damp"),
    ({"assignments": ["sgd.lr=1"]}, "Expected a method of this command, got 'sgd'"),
    ({"assignments": ["tasks=9"]}, "Expected tasks of 2 classes out of 10, got 9"),
    ({"assignments": ["order=3,3"]}, "Expected an order of different classes"),
    ({"protocol": "paper"}, "Expected a protocol, got 'paper'"),
    ({"precision": "float8"}, "Expected a precision, got 'float8'. Did you mean 'float64'"),
    ({"scenario": "all"}, "Expected a scenario"),
    ({"model": "resnet"}, "Expected a model out of"),
    ({"model": "nowhere:at_all"}, "Expected a module 'nowhere'"),
    ({"dataset": "nist"}, "Expected a dataset out of"),
    ({"methods": []}, "Expected each method once, and one at least, got none"),
    ({"methods": ["split-mnist"]}, "which is a benchmark"),
    ({"methods": ["fopgn"]}, "Did you mean 'fopng'"),
    ({"seeds": [1, 1]}, "Expected each seed once"),
    ({"seeds": [-1]}, "Expected seeds of 0 or more"),
    ({"benchmark": OWN, "scenario": "task"}, "makes its own tasks"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=str)
def test_mistakes_are_found_before_anything_is_built(words, message, built):
    with pytest.raises(ValueError, match=message):
        configurations(**{"benchmark": "split-digits", "methods": ["fopng"], "seeds": [0], **words})
    # a dataset that is not in the catalogue is looked for as somebody's own
    assert built == (["SplitByClass"] if "dataset" in words else [])


@pytest.mark.parametrize("engine", ["auto", "single"])
def test_a_run_builds_one_stream_and_a_finished_one_builds_nothing(
    engine, shared_cache, tmp_path, command_line, streams
):
    """Six streams for three runs was too many."""
    words = ("--epochs", "1", "--batch-size", "64", "--set", "tasks=2", "--engine", engine, "--out", str(tmp_path))
    for _ in range(2):
        assert command_line("run", "split-digits", "fopng", "--seeds", "3", *words)[0] == 0
        assert streams == [0, 1, 2]


def test_a_configuration_builds_its_run(shared_cache):
    [config] = configurations(benchmark="split-digits", methods=["joint"], seeds=[7], assignments=["tasks=2"])
    plan = build(config, None)
    assert (plan.label, plan.seed, plan.stages) == ("split-digits joint seed 7", 7, ((0, 1),))
    assert (len(plan.stream), plan.first_task_lr, plan.facts) == (2, None, config.as_dict())
