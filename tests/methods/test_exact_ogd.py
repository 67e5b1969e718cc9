"""OGD's projection without damping is exact, however nearly dependent the stored gradients are."""

import pytest
import torch

from fopng.core.vector import Vector
from fopng.gradients.directions import Basis
from fopng.memory.orthonormal import OrthonormalProjector, orthonormal_rows
from methods.worlds import kept, make, run, single_head
from replicas.pairs import one_by_one, plans, side_by_side
from small_runs import numbers


class Rows(Basis):
    """Directions that are written out."""

    def __init__(self, rows):
        self.written = rows
        self.count = rows.shape[-2]

    count = 0

    def matvec(self, c): ...

    def rmatvec(self, x): ...

    def gram(self, weights): ...

    def rows(self):
        return Vector({"w": self.written}, self.written.dim() - 1)


def nearly_dependent(dtype=torch.float64, spread=1e-7):
    """Forty directions in a plane of six, but for a little."""
    plane = torch.randn(6, 200, dtype=dtype)
    return torch.randn(40, 6, dtype=dtype) @ plane + spread * torch.randn(40, 200, dtype=dtype)


@pytest.mark.parametrize("spread", [0.0, 1e-12, 1e-7, 1e-3])
def test_nothing_is_left_along_a_stored_gradient(spread):
    G, g = nearly_dependent(spread=spread), torch.randn(200, dtype=torch.float64)
    v = OrthonormalProjector.build(Rows(G))(Vector({"w": g}))["w"]
    assert float((G @ v).norm() / (G.norm() * v.norm())) < 1e-13
    found = torch.linalg.lstsq(G.T, g.unsqueeze(-1), driver="gelsd", rcond=1e-14).solution
    if spread != 1e-12:  # where least squares are not exact themselves
        assert torch.allclose(v, g - (G.T @ found).squeeze(-1), atol=1e-7)


def test_in_float32_as_well():
    G, g = nearly_dependent(torch.float32, 1e-3), torch.randn(200)
    v = OrthonormalProjector.build(Rows(G))(Vector({"w": g}))["w"]
    assert float((G @ v).norm() / (G.norm() * v.norm())) < 1e-6


def test_a_direction_that_is_a_combination_of_others_takes_nothing_away():
    rows = torch.randn(3, 50, dtype=torch.float64)
    both = torch.cat([rows, rows.sum(0, keepdim=True), 0 * rows])
    Q = orthonormal_rows(both)
    assert int(Q.norm(dim=1).gt(0.5).sum()) == 3
    assert torch.allclose(Q[:3] @ Q[:3].T, torch.eye(3, dtype=torch.float64), atol=1e-14)


def test_more_directions_than_parameters():
    rows = torch.randn(9, 4, dtype=torch.float64)
    v = OrthonormalProjector.build(Rows(rows))(Vector({"w": torch.randn(4, dtype=torch.float64)}))["w"]
    assert float(v.norm()) < 1e-14


def test_without_damping_a_step_of_the_method_is_exact():
    world = single_head()
    optimizer = make("OGD", world, gram_damping=0.0)
    run(optimizer, world, range(2))
    memory = optimizer.pipeline.state.gradients
    g = Vector({name: torch.randn(shape, dtype=torch.float64) for name, shape in optimizer.layout.shapes.items()})
    v = optimizer.pipeline.prepared(g).remover(g)
    assert float(memory.rmatvec(v).abs().max()) < 1e-13
    damped = make("OGD", world)
    damped.load_state_dict(optimizer.state_dict())
    assert torch.allclose(damped.pipeline.prepared(g).remover(g).flat(), v.flat(), atol=1e-4)
    assert kept(damped).keys() == kept(optimizer).keys()


def test_runs_side_by_side_take_the_same_steps(tmp_path):
    made = plans("ogd", range(3), settings=[{"lr": 0.05, "gram_damping": 0.0, "gradients_per_task": 5}] * 3)
    (alone, weights), (together, others) = one_by_one(made, tmp_path), side_by_side(made, tmp_path)
    assert [numbers(each)["accuracy"] for each in alone] == [numbers(each)["accuracy"] for each in together]
    for one, other in zip(weights, others, strict=True):
        assert torch.allclose(one, other, atol=1e-9)
