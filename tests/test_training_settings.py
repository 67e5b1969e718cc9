"""How a method is trained, set like a setting of its own: in a file, after --set, and by the options that win."""

import pytest

from fopng.lab.runs.request import Request

pytestmark = pytest.mark.usefixtures("shared_cache")


def configs(*assignments, methods=("sgd", "fopng"), **changes):
    request = Request(benchmark="split-digits", methods=list(methods), seeds=[0], assignments=assignments, **changes)
    return {config.method: config for config in request.configurations()}


def test_for_every_method_or_for_one():
    found = configs("epochs=2", "fopng.batch_size=20", "sgd.first_task_lr=0.5")
    assert [(c.epochs, c.batch_size, c.first_task_lr) for c in found.values()] == [(2, 10, 0.5), (2, 20, 0.01)]
    assert all("epochs" not in config.settings for config in found.values())


def test_the_options_win():
    assert configs("epochs=2", epochs=3)["sgd"].epochs == 3
    assert configs("first_task_lr=0.5", first_task_lr=0.25)["sgd"].first_task_lr == 0.25


def test_the_same_run_however_it_is_said(tmp_path):
    (tmp_path / "mine.toml").write_text("epochs = 2\n[sgd]\nbatch_size = 20\n")
    said = configs(methods=["sgd"], settings_file=tmp_path / "mine.toml")["sgd"]
    assert said == configs(methods=["sgd"], epochs=2, batch_size=20)["sgd"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("epochs=0", "Expected 1 or more for the epochs"),
        ("epochs=1.5", "Expected a whole number for epochs"),
        ("batch_size=-1", "Expected 1 or more for the batch size"),
        ("first_task_lr=0", "Expected a first task's learning rate above 0"),
    ],
)
def test_mistakes(word, message):
    with pytest.raises(ValueError, match=message):
        configs(word)


def test_the_papers_whole_numbers_take_their_settings_type():
    """Or runs with the paper's strength would not stand beside those with another."""
    assert type(configs(methods=["ewc"])["ewc"].settings["strength"]) is float
