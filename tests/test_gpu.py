"""The core on a CUDA device: the same numbers as on the CPU."""

import copy

import pytest
import torch

import zoo
from flat import flat
from fopng.core.batch import map_tensors
from fopng.curvature.estimate import diagonal_fisher, sample_gradients
from fopng.curvature.metric import Diagonal, trust_region_step
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.directions import ScaledBasis
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gradients import GradientMemory, MemoryFull
from fopng.memory.projection import Projector

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="Expected a CUDA device, got none."),
]


def moved(case: zoo.Case) -> zoo.Case:
    return zoo.Case(copy.deepcopy(case.model).cuda(), map_tensors(torch.Tensor.cuda, case.batch), case.ask)


@pytest.mark.parametrize(
    "name", [name for name in zoo.MODELS | zoo.UNMAPPED if name not in ("position_embedding", "packed")]
)
def test_gradients_are_those_of_the_cpu(name):
    case = (zoo.MODELS | zoo.UNMAPPED)[name]()
    sources = [(own, PerSampleGradients(own.model, predict=own.ask)) for own in (case, moved(case))]
    both = [flat(next(s.gradients(own.batch, "observed")).rows(), s.layout.shapes) for own, s in sources]
    assert both[1].is_cuda
    # CUDA's weight normalisation works in float32, whatever it is given
    close = {"rtol": 1e-5, "atol": 1e-6} if name == "parametrised" else {"rtol": 1e-8, "atol": 1e-10}
    torch.testing.assert_close(both[1].cpu(), both[0], **close)


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
def test_a_whole_step_is_that_of_the_cpu(name):
    case, steps = zoo.MODELS[name](), []
    for own in (case, moved(case)):
        source = PerSampleGradients(own.model)
        fisher = diagonal_fisher(source, LoaderStream([own.batch], torch.Generator().manual_seed(0)), samples=3)
        gradients = sample_gradients(source, LoaderStream([own.batch]), zoo.N)
        with pytest.warns(MemoryFull):
            memory = GradientMemory().appended(*gradients, capacity=3)
        metric = Diagonal(fisher, damping=1e-3)
        projector = Projector.build(ScaledBasis(memory, fisher), metric, gram_damping=1e-3, form="orthogonal")
        step = trust_region_step(metric, projector(fisher.map(torch.ones_like)), radius=0.1)
        steps.append(flat(step, source.layout.shapes))
    torch.testing.assert_close(steps[1].cpu(), steps[0], rtol=1e-7, atol=1e-9)


def test_sampled_labels_with_a_generator_of_either_device():
    own = moved(zoo.mlp())
    source = PerSampleGradients(own.model)
    for device in ("cpu", "cuda"):
        streams = [LoaderStream([own.batch], torch.Generator(device).manual_seed(1)) for _ in range(2)]
        assert torch.equal(*(diagonal_fisher(source, stream, labels="sampled").flat() for stream in streams))


def test_the_devices_random_state_is_left_alone():
    own = moved(zoo.cnn())
    before = torch.cuda.get_rng_state()
    diagonal_fisher(PerSampleGradients(own.model), LoaderStream([own.batch]))
    assert torch.equal(torch.cuda.get_rng_state(), before)
