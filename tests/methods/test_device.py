"""On an accelerator: the same numbers, no waiting for the device, and steps that are not finite are dropped."""

import pytest
import torch

from fopng.core.tree import to_plain
from methods.worlds import METHODS, World, flat, live, make, multi_head, run, tensors

pytestmark = [
    pytest.mark.filterwarnings("ignore::fopng.HeadChanged"),  # the heads here are chosen behind the batch's back
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
every_method = pytest.mark.parametrize("name", METHODS)


def kept(optimizer) -> dict[str, torch.Tensor]:
    """Every tensor of a state."""
    return tensors(to_plain([optimizer.pipeline.state, optimizer.pipeline.running]))


def moved(world: World, device: str) -> World:
    twin = world.twin()
    loaders = [[(x.to(device), y.to(device)) for x, y in loader] for loader in world.loaders]
    return World(twin.model.to(device), loaders, twin.ask)


@every_method
def test_a_device_gives_the_numbers_of_the_processor(name):
    world = multi_head()
    there = moved(world, "cuda")
    found = run(make(name, there, momentum=0.5), there).cpu()
    torch.testing.assert_close(found, run(make(name, world, momentum=0.5), world), rtol=1e-8, atol=1e-10)


@every_method
def test_a_state_moves_between_devices(name):
    world = multi_head()
    optimizer = make(name, world, momentum=0.5)
    life = live(optimizer, world)
    while next(life) != (1, 0):
        pass
    there = moved(world, "cuda")
    other = make(name, there, momentum=0.5)
    other.load_state_dict(optimizer.state_dict())
    there.enter(1)
    for here, member in ((world, optimizer), (there, other)):
        member.zero_grad()
        here.loss(here.loaders[1][1]).backward()
        member.step()
    torch.testing.assert_close(flat(there.model).cpu(), flat(world.model), rtol=1e-8, atol=1e-10)
    floating = [t for t in kept(other).values() if t.is_floating_point()]
    assert {t.device.type for t in floating} <= {"cuda"}


@every_method
def test_a_model_may_move_between_tasks(name):
    world = multi_head()
    optimizer = make(name, world, momentum=0.5)
    run(optimizer, world, range(2))
    world.model.cuda()
    world.loaders = moved(world, "cuda").loaders
    assert run(optimizer, world, range(2, 3)).device.type == "cuda"


@every_method
def test_a_gradient_that_is_not_finite_is_dropped_and_told_later(name):
    """The step waits for nothing; parameters and moments are as if it had not been."""
    world = moved(multi_head(), "cuda")
    optimizer = make(name, world, momentum=0.5, first_task="own")
    run(optimizer, world, range(1))
    world.enter(1)
    optimizer.begin_task(1)
    optimizer.refresh(world.loaders[1])
    for broken in (False, True):
        optimizer.zero_grad()
        world.loss(world.loaders[1][0]).backward()
        before = flat(world.model)
        state = {key: tensor.clone() for key, tensor in kept(optimizer).items()}
        if broken:
            world.model.trunk.bias.grad[0] = torch.nan
        optimizer.step()
        assert torch.equal(flat(world.model), before) == broken
    after = kept(optimizer)
    assert all(torch.equal(state[key], after[key]) for key in after)
    with pytest.raises(FloatingPointError, match="A gradient since the last refresh held NaN"):
        optimizer.diagnose()
    optimizer.diagnose()


@every_method
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_step_does_not_wait_for_the_device(name):
    world = moved(multi_head(), "cuda")
    optimizer = make(name, world, momentum=0.5, first_task="own")
    run(optimizer, world, range(1))
    world.enter(1)
    optimizer.begin_task(1)
    optimizer.refresh(world.loaders[1])
    for first in (True, False):
        optimizer.zero_grad()
        world.loss(world.loaders[1][0]).backward()
        torch.cuda.set_sync_debug_mode("default" if first else "error")
        try:
            optimizer.step()  # the first one builds the projection
        finally:
            torch.cuda.set_sync_debug_mode("default")
