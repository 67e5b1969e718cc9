import sys

import pytest
import torch
from torch import nn

from fopng.lab.benchmarks import Scenario, Task, TaskStream
from fopng.lab.benchmarks.dropout import Dropout
from fopng.lab.benchmarks.models import MLP, ConvNet, drawn_from, model_for


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def stream(shape=(1, 4, 4), scenario=Scenario.DOMAIN, tasks=2, dtype=None):
    data = torch.zeros(4, *shape, dtype=dtype), torch.tensor([0, 1, 0, 1])
    return TaskStream.of("mine", [Task.of(str(n), train=data, test=data) for n in range(tasks)], scenario)


def test_the_papers_sizes():
    assert parameters(MLP((1, 28, 28), (10,), seed=0)) == 89_610
    assert parameters(ConvNet((3, 32, 32), (2,) * 5, seed=0)) == 1_182_762


def test_the_papers_layers():
    kinds = [type(layer).__name__ for layer in MLP((784,), (10,), seed=0).body]
    assert kinds == ["Flatten", "Linear", "ReLU", "Linear", "ReLU"]
    layers = ConvNet((3, 32, 32), (2,), seed=0).body
    convolutions = [(layer.in_channels, layer.out_channels) for layer in layers if isinstance(layer, nn.Conv2d)]
    assert convolutions == [(3, 32), (32, 32), (32, 64), (64, 64)]
    assert [layer.in_features for layer in layers if isinstance(layer, nn.Linear)] == [4096, 256]
    assert [layer.share for layer in layers if isinstance(layer, Dropout)] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("make", "shape"),
    [(MLP, shape) for shape in [(784,), (1, 28, 28), (1, 8, 8)]]
    + [(ConvNet, shape) for shape in [(3, 32, 32), (1, 28, 28), (1, 8, 8), (2, 5, 7)]],
)
def test_shapes(make, shape):
    assert make(shape, (4,), seed=0)(torch.zeros(3, *shape)).shape == (3, 4)


class TestHeads:
    model = MLP((6,), (2, 3, 4), seed=0, hidden=(5,))
    x = torch.ones(2, 6)

    def test_the_task_chooses(self):
        assert [self.model(self.x, task=task).shape[1] for task in range(3)] == [2, 3, 4]

    @pytest.mark.parametrize("task", [None, 3, -1])
    def test_a_missing_task_is_an_error(self, task):
        with pytest.raises(ValueError, match="Expected a task from 0 to 2, .*got (none|-1|3)"):
            self.model(self.x, task=task)

    def test_a_shared_head_serves_every_task(self):
        model = MLP((6,), (2,), seed=0)
        assert torch.equal(model(self.x), model(self.x, task=7))

    def test_only_the_head_of_the_task_gets_a_gradient(self):
        self.model.zero_grad()
        self.model(self.x, task=1).sum().backward()
        assert [head.weight.grad is not None for head in self.model.heads] == [False, True, False]

    @pytest.mark.parametrize("heads", [(), (0,), (2, -1)])
    def test_heads_have_outputs(self, heads):
        with pytest.raises(ValueError, match="one head or more"):
            MLP((6,), heads, seed=0)


class TestSeeds:
    @pytest.mark.parametrize("make", [lambda s: MLP((9,), (2,), seed=s), lambda s: ConvNet((1, 4, 4), (2,), seed=s)])
    def test_the_seed_alone_decides(self, make):
        torch.manual_seed(1)
        one = flat(make(3))
        torch.manual_seed(2)
        assert torch.equal(flat(make(3)), one)
        assert not torch.equal(flat(make(4)), one)

    def test_the_global_state_is_left_alone_and_put_back_after_an_error(self):
        before = torch.random.get_rng_state()
        MLP((9,), (2,), seed=3)
        with pytest.raises(ValueError, match="one head"):
            MLP((9,), (), seed=3)
        assert torch.equal(torch.random.get_rng_state(), before)

    def test_weights_are_what_torch_itself_draws(self):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            plain = nn.Sequential(nn.Linear(9, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 2))
        assert torch.equal(flat(MLP((9,), (2,), seed=3)), flat(plain))


class TestChoice:
    def test_grey_and_flat_inputs_get_the_mlp_and_colours_the_convnet(self):
        assert isinstance(model_for(stream(), seed=0), MLP)
        assert isinstance(model_for(stream((5,)), seed=0), MLP)
        assert isinstance(model_for(stream((3, 4, 4)), seed=0), ConvNet)

    def test_by_name(self):
        assert isinstance(model_for(stream(), seed=0, name="convnet"), ConvNet)
        with pytest.raises(ValueError, match="Expected a model out of mlp, convnet or module:function, got 'vgg'"):
            model_for(stream(), seed=0, name="vgg")

    def test_heads_are_the_streams(self):
        model = model_for(stream(scenario=Scenario.TASK, tasks=3), seed=0)
        assert [head.out_features for head in model.heads] == [2, 2, 2]

    def test_words_need_a_model_of_their_own(self):
        with pytest.raises(ValueError, match="a model of your own for inputs of whole numbers, got mlp"):
            model_for(stream((5,), dtype=torch.int64), seed=0)

    def test_flat_inputs_have_no_convolutions(self):
        with pytest.raises(ValueError, match=r"Expected inputs \(channels, height, width\)"):
            model_for(stream((5,)), seed=0, name="convnet")

    def test_a_users_own(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        (tmp_path / "my_models.py").write_text(
            "import torch\ndef small(stream):\n    return torch.nn.Linear(stream.input_shape[0], stream.outputs)\n"
            "def wrong(stream):\n    return 3\n"
        )
        before = torch.random.get_rng_state()
        one, two = (model_for(stream((5,)), seed=1, name="my_models:small") for _ in range(2))
        assert torch.equal(one.weight, two.weight)
        assert torch.equal(torch.random.get_rng_state(), before)
        with pytest.raises(TypeError, match=r"Expected a torch\.nn\.Module from my_models:wrong, got int"):
            model_for(stream((5,)), seed=1, name="my_models:wrong")


def test_drawn_from_can_be_nested():
    with drawn_from(1):
        first = torch.rand(1)
        with drawn_from(2):
            torch.rand(5)
        second = torch.rand(1)
    with drawn_from(1):
        assert torch.equal(torch.cat([first, second]), torch.rand(2))
