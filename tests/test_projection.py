import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracle
from flat import one, stored
from fopng.curvature.metric import Diagonal, Full, Identity, Metric, trust_region_step
from fopng.gradients.directions import ScaledBasis
from fopng.memory.projection import IllConditioned, Projector, invert

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
FORMS = ("printed", "orthogonal")


@st.composite
def problems(draw):
    """Stored gradients, two diagonal Fishers and a gradient, with any replica axes, and dampings."""
    p, lead = draw(st.integers(2, 8)), draw(st.sampled_from([(), (2,), (2, 3)]))
    m = draw(st.integers(1, p - 1))
    torch.manual_seed(draw(st.integers(0, 999)))
    rows, g = torch.randn(*lead, m, p).double(), torch.randn(*lead, p).double()
    F_old, F_new = torch.rand(2, *lead, p).double() + 0.1
    return rows, g, F_old, F_new, draw(st.floats(1e-3, 1)), draw(st.floats(0, 1))


def step_along(metric: Metric, g: torch.Tensor, radius: float | torch.Tensor) -> torch.Tensor:
    return trust_region_step(metric, one(g), radius=radius)["w"]


def each(tensors, lead):
    """The replicas one by one."""
    count = torch.Size(lead).numel()
    return zip(*(t.reshape(count, *t.shape[len(lead) :]) for t in tensors), strict=True)


@given(problems())
def test_both_forms_against_the_oracle(problem):
    rows, g, F_old, F_new, damping, eps = problem
    basis, lead = ScaledBasis(stored(rows), one(F_old)), g.shape[:-1]
    for form in FORMS:
        projector = Projector.build(basis, Diagonal(one(F_new), damping=damping), gram_damping=eps, form=form)
        expected = []
        for G, x, old, new in each((rows.mT, g, F_old, F_new), lead):
            F, B = oracle.damped(torch.diag(new), damping), old[:, None] * G
            if form == "printed":
                P = oracle.printed_projection(torch.diag(old), G, F, eps)
            else:
                P = oracle.orthogonal_projection(B, F, eps)
            expected.append(P @ x)
        expected = torch.stack(expected).reshape(g.shape)
        torch.testing.assert_close(projector(one(g))["w"], expected, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(projector.removed(one(g))["w"], g - expected, rtol=1e-7, atol=1e-8)


@given(problems())
def test_orthogonal_form_is_a_projection_and_the_step_is_fisher_orthogonal(problem):
    rows, g, F_old, F_new, damping, _ = problem
    metric, basis = Diagonal(one(F_new), damping=damping), ScaledBasis(stored(rows), one(F_old))
    projector = Projector.build(basis, metric, gram_damping=0.0, form="orthogonal")
    once = projector(one(g))
    scale = float(g.norm() * (rows * F_old[..., None, :]).norm() / damping)
    torch.testing.assert_close(projector(once)["w"], once["w"], rtol=1e-6, atol=1e-6)
    assert float(basis.rmatvec(metric.solve(once)).abs().max()) < 1e-8 * scale


@given(problems(), st.permutations(range(3)))
def test_the_order_of_stored_gradients_does_not_matter(problem, order):
    rows, g, _, F_new, damping, eps = problem
    if rows.shape[-2] >= 3:
        metric = Diagonal(one(F_new), damping=damping)
        for form in FORMS:
            both = [
                Projector.build(stored(r), metric, gram_damping=eps + 0.01, form=form)(one(g))["w"]
                for r in (rows[..., :3, :], rows[..., list(order), :])
            ]
            torch.testing.assert_close(*both, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_in_the_identity_metric_both_forms_are_ogd(form):
    rows, g = torch.randn(3, 6).double(), torch.randn(6).double()
    projector = Projector.build(stored(rows), Identity(), gram_damping=0.0, form=form)
    torch.testing.assert_close(projector(one(g))["w"], oracle.ogd_projection(g, rows.T), **CLOSE)


@pytest.mark.parametrize("form", FORMS)
def test_a_full_metric(form):
    rows, g, half = torch.randn(2, 5).double(), torch.randn(5).double(), torch.randn(5, 5).double()
    F = oracle.damped(half @ half.T, 0.3)
    metric = Full(half @ half.T, {"w": g.shape}, damping=0.3)
    projector = Projector.build(stored(rows), metric, gram_damping=0.1, form=form)
    P = (
        oracle.prefisher_projection(rows.T, F, 0.1)
        if form == "printed"
        else oracle.orthogonal_projection(rows.T, F, 0.1)
    )
    torch.testing.assert_close(projector(one(g))["w"], P @ g, **CLOSE)


@pytest.mark.parametrize("form", FORMS)
def test_a_damping_for_each_replica(form):
    rows, g, F = torch.randn(2, 2, 5).double(), torch.randn(2, 5).double(), torch.rand(2, 5).double() + 0.1
    dampings = torch.tensor([0.01, 1.0]).double()
    metric = Diagonal(one(F), damping=dampings)
    together = Projector.build(stored(rows), metric, gram_damping=dampings, form=form)(one(g))["w"]
    for k in range(2):
        metric = Diagonal(one(F[k]), damping=float(dampings[k]))
        alone = Projector.build(stored(rows[k]), metric, gram_damping=float(dampings[k]), form=form)(one(g[k]))
        torch.testing.assert_close(together[k], alone["w"], **CLOSE)


# Degenerate cases, each with its outcome


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_memory_projects_nothing(form):
    g = torch.randn(2, 4)
    projector = Projector.build(stored(torch.zeros(0, 4)), Identity(), gram_damping=0.0, form=form)
    assert torch.equal(projector(one(g))["w"], g)
    assert torch.equal(projector.removed(one(g))["w"], torch.zeros_like(g))


@pytest.mark.parametrize("form", FORMS)
def test_a_zero_gradient_stays_zero(form):
    projector = Projector.build(stored(torch.randn(2, 4)), Identity(), gram_damping=0.0, form=form)
    assert torch.equal(projector(one(torch.zeros(4)))["w"], torch.zeros(4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["duplicates", "rank-deficient", "a zero gradient"])
def test_dependent_gradients_use_the_pseudo_inverse_and_say_so(kind, form, dtype):
    some = torch.randn(3, 8, dtype=dtype)
    extra = {
        "duplicates": some[:2],
        "rank-deficient": some[:1] + some[1:2],
        "a zero gradient": torch.zeros(1, 8, dtype=dtype),
    }
    g = one(torch.randn(8, dtype=dtype))
    metric = Diagonal(one(torch.rand(8, dtype=dtype) + 0.5), damping=0.1)
    with pytest.warns(IllConditioned, match=r"m=[45], condition .*, gram_damping=0.0\); its pseudo-inverse of rank 3"):
        dependent = Projector.build(stored(torch.cat([some, extra[kind]])), metric, gram_damping=0.0, form=form)
    independent = Projector.build(stored(some), metric, gram_damping=0.0, form=form)
    close = CLOSE if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-4}
    if form == "orthogonal":
        torch.testing.assert_close(dependent(g)["w"], independent(g)["w"], **close)
    assert bool(dependent(g)["w"].isfinite().all())
    assert float(dependent.condition) > 1e7


def test_only_stored_zeros():
    with pytest.warns(IllConditioned):
        projector = Projector.build(stored(torch.zeros(2, 4)), Identity(), gram_damping=0.0, form="printed")
    g = torch.randn(4)
    assert torch.equal(projector(one(g))["w"], g)


def test_damping_makes_dependent_gradients_well_conditioned():
    rows = torch.randn(2, 6).double()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        projector = Projector.build(stored(torch.cat([rows, rows])), Identity(), gram_damping=1e-3, form="orthogonal")
    assert float(projector.condition) < 1e5


def test_one_bad_replica_does_not_spoil_the_others():
    good, bad = torch.randn(3, 6).double(), torch.randn(1, 6).double().expand(3, 6)
    with pytest.warns(IllConditioned):
        together = Projector.build(stored(torch.stack([good, bad])), Identity(), gram_damping=0.0, form="orthogonal")
    g = torch.randn(6).double()
    projected = together(one(g.expand(2, 6)))["w"]
    torch.testing.assert_close(projected[0], oracle.ogd_projection(g, good.T), **CLOSE)
    torch.testing.assert_close(projected[1], oracle.ogd_projection(g, bad[:1].T), **CLOSE)


def test_a_fisher_that_is_not_finite_is_refused():
    class Broken(Metric):
        def matvec(self, v):
            return v

        def solve(self, v):
            return v

        def inverse_gram(self, basis):
            return torch.full((2, 2), torch.nan, dtype=torch.float64)

    with pytest.raises(ValueError, match="NaN or infinity in their Gram matrix"):
        Projector.build(stored(torch.randn(2, 4)), Broken(), gram_damping=0.0, form="printed")


def test_an_unknown_form_is_named():
    with pytest.raises(ValueError, match="got 'both'"):
        Projector.build(stored(torch.randn(2, 4)), Identity(), gram_damping=0.0, form="both")


@given(st.integers(1, 6), st.integers(0, 99))
def test_invert(m, seed):
    torch.manual_seed(seed)
    half = torch.randn(m, m).double()
    matrix = half @ half.T + 0.1 * torch.eye(m).double()
    inverse, condition = invert(matrix, damping=0.0)
    torch.testing.assert_close(inverse @ matrix, torch.eye(m).double(), rtol=1e-8, atol=1e-8)
    assert 1 <= float(condition) <= float(torch.linalg.cond(matrix)) * (1 + 1e-6)


# The trust region


@given(problems(), st.floats(1e-6, 10))
def test_the_step_has_the_radius_as_its_fisher_norm(problem, radius):
    _, g, _, F_new, damping, _ = problem
    metric = Diagonal(one(F_new), damping=damping)
    step = step_along(metric, g, radius)
    torch.testing.assert_close(metric.norm(one(step)), torch.full(g.shape[:-1], radius, dtype=g.dtype), **CLOSE)
    for own, x, new in each((step, g, F_new), g.shape[:-1]):
        torch.testing.assert_close(own, oracle.fng(x, oracle.damped(torch.diag(new), damping), radius), **CLOSE)


def test_a_radius_for_each_replica():
    g, radius = torch.randn(3, 4).double(), torch.tensor([1e-5, 1.0, 0.0]).double()
    torch.testing.assert_close(step_along(Identity(), g, radius).norm(dim=-1), radius)


def test_a_zero_gradient_gives_a_zero_step():
    step = step_along(Identity(), torch.tensor([[0.0, 0.0], [3.0, 4.0]]), 1.0)
    torch.testing.assert_close(step, torch.tensor([[0.0, 0.0], [0.6, 0.8]]))


def test_a_gradient_that_is_not_finite_is_not_hidden():
    assert not bool(step_along(Identity(), torch.tensor([float("nan"), 1.0]), 1.0).isfinite().all())
    assert not bool(step_along(Identity(), torch.tensor([float("inf"), 1.0]), 1.0).isfinite().all())


def test_a_step_does_not_depend_on_the_size_of_the_gradient():
    g = torch.tensor([3.0, 4.0])
    for scale in (1e-15, 1e15):
        torch.testing.assert_close(step_along(Identity(), g * scale, 1.0), torch.tensor([0.6, 0.8]))
