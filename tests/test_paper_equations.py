"""One test for each numbered equation and theorem of the paper, by the numbers of the compiled text.

Equations 1 to 25 are the main text's. 26 to 47 are steps of the proofs; each is tested where it says something that its theorem
does not.
"""

import copy

import pytest
import torch
from torch import nn

import oracle
import zoo
from flat import flat, named, one, stored
from fopng.curvature.estimate import diagonal_fisher, full_fisher, sample_gradients
from fopng.curvature.metric import Diagonal, Full, Identity, Metric, trust_region_step
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.directions import ScaledBasis
from fopng.gradients.layers import DenseGradients, SampleGradients
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gradients import GradientMemory
from fopng.memory.projection import Projector

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


class Problem:
    """A gradient, stored gradients and two diagonal Fishers: `p = 7`, `m = 3`."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.g, self.G = torch.randn(7).double(), torch.randn(7, 3).double()
        self.f_old, self.f_new = torch.rand(2, 7).double() + 0.2
        self.F_old, self.F_new = torch.diag(self.f_old), torch.diag(self.f_new)
        self.metric = Diagonal(one(self.f_new), damping=0.0)
        self.basis = ScaledBasis(stored(self.G.T), one(self.f_old))
        self.eta = 0.3

    def projector(self, form: str = "printed", **options) -> Projector:
        return Projector.build(self.basis, self.metric, **{"gram_damping": 0.0, "form": form, **options})

    def removed(self, form: str = "printed") -> torch.Tensor:
        """What the projector takes away from the gradient."""
        return self.projector(form).removed(one(self.g))["w"]


def project(projector: Projector, g: torch.Tensor) -> torch.Tensor:
    return projector(one(g))["w"]


def step_along(metric: Metric, g: torch.Tensor, eta: float) -> torch.Tensor:
    return trust_region_step(metric, one(g), radius=eta)["w"]


def solve(metric: Metric, g: torch.Tensor) -> torch.Tensor:
    return metric.solve(one(g))["w"]


def full(matrix: torch.Tensor, damping: float) -> Full:
    return Full(matrix, {"w": matrix.shape[-1:]}, damping=damping)


@pytest.fixture
def problem() -> Problem:
    return Problem()


@pytest.fixture
def classifier() -> zoo.Case:
    return zoo.case(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)), 3)


def exact(case: zoo.Case) -> torch.Tensor:
    return oracle.exact_fisher(*oracle.class_gradients(case.model, case.batch, zoo.N))


def test_equation_01_and_10_fisher(classifier):
    actual = full_fisher(PerSampleGradients(classifier.model), LoaderStream([classifier.batch]), labels="expected")
    torch.testing.assert_close(actual, exact(classifier), **CLOSE)


def test_equation_02_reparameterization_invariance(classifier):
    """Theorem 2.1, eq. 26 to 28: the Fisher norm of `phi = A theta` in a model that is given phi and computes theta."""

    class Reparametrised(nn.Module):
        def __init__(self, model: nn.Module, A: torch.Tensor) -> None:
            super().__init__()
            self.inner = [model]
            self.back = torch.linalg.inv(A)
            self.phi = nn.Parameter(A @ oracle.flat_parameters(model))

        def forward(self, x):
            shapes = {name: p.shape for name, p in self.inner[0].named_parameters()}
            return torch.func.functional_call(self.inner[0], named(self.back @ self.phi, shapes).parts, (x,))

    p = len(oracle.flat_parameters(classifier.model))
    J = torch.eye(p).double() + 0.1 * torch.randn(p, p).double()
    other = Reparametrised(classifier.model, J)
    F_theta = full_fisher(PerSampleGradients(classifier.model), LoaderStream([classifier.batch]), labels="expected")
    F_phi = full_fisher(PerSampleGradients(other), LoaderStream([classifier.batch]), labels="expected")
    torch.testing.assert_close(F_phi, oracle.reparametrised_fisher(F_theta, J), rtol=1e-7, atol=1e-9)
    step = torch.randn(p).double()
    theta, phi = full(F_theta, 1e-9), full(F_phi, 1e-9)
    torch.testing.assert_close(theta.norm(one(step)), phi.norm(one(J @ step)), rtol=1e-5, atol=1e-7)
    assert abs(float(step.norm() - (J @ step).norm())) > 0.01


def test_equation_03_kl_approximation(classifier):
    """Theorem 2.2, eq. 29 to 31: the error is `o(|v|^2)`; it shrinks eight times when the step is halved."""
    source = PerSampleGradients(classifier.model)
    F = full_fisher(source, LoaderStream([classifier.batch]), labels="expected")
    theta, v = oracle.flat_parameters(classifier.model), torch.randn(source.layout.size).double()
    logits = classifier.model(classifier.batch[0]).detach()
    errors = []
    for scale in (2e-2, 1e-2, 5e-3):
        moved = oracle.with_parameters(copy.deepcopy(classifier.model), theta + scale * v)
        kl = oracle.kl_divergence(logits, moved(classifier.batch[0])).detach()
        errors.append(float((kl - full(F, 1e-12).norm(one(scale * v)) ** 2 / 2).abs()))
        assert errors[-1] < 0.1 * kl
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.25)
    assert errors[1] / errors[2] == pytest.approx(8, rel=0.25)


def test_equation_04_natural_gradient(problem):
    expected = oracle.natural_gradient_step(torch.zeros(7).double(), problem.F_new, problem.g, 0.1)
    torch.testing.assert_close(-0.1 * solve(problem.metric, problem.g), expected, **CLOSE)


def test_equation_05_ewc_penalty(problem):
    """The penalty's gradient, which is what EWC adds, is `lam F (theta - theta*)`."""
    theta = torch.randn(7).double().requires_grad_()
    oracle.ewc_penalty(theta, problem.g, problem.f_old, 3.0).backward()
    moved = one(theta.detach() - problem.g)
    expected = Diagonal(one(problem.f_old), damping=0.0).matvec(moved)["w"]
    torch.testing.assert_close(theta.grad, 3.0 * expected, **CLOSE)
    torch.testing.assert_close(
        oracle.ewc_gradient(problem.g * 0, theta.detach(), problem.g, problem.f_old, 3.0), theta.grad
    )


def test_equation_06_ogd(problem):
    projector = Projector.build(stored(problem.G.T), Identity(), gram_damping=0.0, form="printed")
    projected = project(projector, problem.g)
    torch.testing.assert_close(projected, oracle.ogd_projection(problem.g, problem.G), **CLOSE)
    torch.testing.assert_close(problem.G.T @ projected, torch.zeros(3).double(), **CLOSE)


def test_equation_07_and_25_diagonal_fisher(classifier):
    rows = oracle.sample_gradients(classifier.model, classifier.batch, zoo.N)
    source = PerSampleGradients(classifier.model)
    actual = diagonal_fisher(source, LoaderStream([classifier.batch]))
    torch.testing.assert_close(flat(actual, source.layout.shapes), oracle.diagonal_fisher(rows), **CLOSE)


def test_equation_08_empirical_fisher(classifier):
    rows = oracle.sample_gradients(classifier.model, classifier.batch, zoo.N)
    actual = full_fisher(PerSampleGradients(classifier.model), LoaderStream([classifier.batch]), labels="observed")
    torch.testing.assert_close(actual, oracle.empirical_fisher(rows), **CLOSE)


def test_equation_09_kronecker_factors(classifier):
    """For one sample and one layer `A (x) G` is no approximation: the factors that we keep are its own."""
    source = PerSampleGradients(classifier.model)
    sample = oracle.one_sample(classifier.batch, 0)
    (gradients,) = source.gradients(sample, "observed")
    factors = gradients.layers["0.weight", "0.bias"]
    a, d = factors.a[0, 0], factors.d[0, 0]
    F = full_fisher(source, LoaderStream([sample]))[:12, :12]
    by_columns = torch.arange(12).reshape(4, 3).T.flatten()
    expected = oracle.kronecker_fisher(torch.outer(a, a), torch.outer(d, d))
    torch.testing.assert_close(F[by_columns][:, by_columns], expected, **CLOSE)


def test_equation_11_inner_product_and_norm(problem):
    u, v = torch.randn(2, 7).double()
    torch.testing.assert_close(problem.metric.inner(one(u), one(v)), oracle.fisher_inner(u, v, problem.F_new), **CLOSE)
    torch.testing.assert_close(problem.metric.norm(one(u)), oracle.fisher_norm(u, problem.F_new), **CLOSE)


def test_equation_12_update(problem):
    """`v = c F_new^-1 (g - u)` with `u` what the projector removes."""
    step = step_along(problem.metric, project(problem.projector(), problem.g), problem.eta)
    u = problem.removed()
    along = oracle.update(problem.g, u, problem.F_new, 1.0)
    torch.testing.assert_close(step, along * (step[0] / along[0]), **CLOSE)
    assert float(step[0] / along[0]) > 0


@pytest.mark.parametrize("scale", [1e-3, 1e-1, 10.0])
def test_equation_13_and_16_optimality(problem, scale):
    """Eq. 34 to 38: no feasible point does better than what the printed projector removes."""
    best = problem.removed()
    value = oracle.objective(problem.g, best, problem.F_new)
    torch.testing.assert_close(value, oracle.expanded_objective(problem.g, best, problem.F_new), **CLOSE)
    alpha = oracle.best_alpha(problem.g, problem.F_old, problem.G, problem.F_new)
    torch.testing.assert_close(best, oracle.feasible(alpha, problem.F_old, problem.G), **CLOSE)
    for _ in range(20):
        other = best + oracle.feasible(scale * torch.randn(3).double(), problem.F_old, problem.G)
        assert float(oracle.objective(problem.g, other, problem.F_new)) > float(value)


@pytest.mark.parametrize("form", ["printed", "orthogonal"])
def test_equation_14_and_17_compatibility(problem, form):
    """Eq. 35: `F_old^-1 u` lies in the column space of G."""
    u = torch.linalg.solve(problem.F_old, problem.removed(form))
    torch.testing.assert_close(oracle.ogd_projection(u, problem.G), torch.zeros(7).double(), **CLOSE)


def test_orthogonal_form_minimises_the_natural_gradients_distance(problem):
    """docs/explanation/deviations.md, 1: it minimises `||F_new^-1 (g - u)||` over the same points, and `B^T v = 0`."""

    def distance(u):
        return oracle.fisher_norm(torch.linalg.solve(problem.F_new, problem.g - u), problem.F_new)

    best = problem.removed("orthogonal")
    for scale in (1e-3, 1.0):
        other = best + oracle.feasible(scale * torch.randn(3).double(), problem.F_old, problem.G)
        assert float(distance(other)) > float(distance(best))
    step = step_along(problem.metric, project(problem.projector("orthogonal"), problem.g), problem.eta)
    torch.testing.assert_close(problem.basis.rmatvec(one(step)), torch.zeros(3).double(), **CLOSE)
    P = oracle.orthogonal_projection(problem.F_old @ problem.G, problem.F_new)
    torch.testing.assert_close(P @ P, P, **CLOSE)


def test_printed_form_is_not_a_projection(problem):
    """docs/explanation/deviations.md, 1: the reason why there are two."""
    projector = problem.projector()
    once = projector(one(problem.g))
    assert float((projector(once) - once).norm()) > 0.1
    assert float(problem.basis.rmatvec(problem.metric.solve(once)).norm()) > 0.1


def test_equation_15_trust_region(problem):
    """Eq. 40 to 42: `||v|| = eta` in the metric of F_new."""
    step = step_along(problem.metric, project(problem.projector(), problem.g), problem.eta)
    torch.testing.assert_close(
        oracle.fisher_norm(step, problem.F_new), torch.tensor(problem.eta, dtype=torch.float64), **CLOSE
    )


@pytest.mark.parametrize("lam", [0.0, 1e-3, 1.0])
def test_equation_18_fopng_update(problem, lam):
    """Theorem 3.2, eq. 43, with the regularisation of section 4.2."""
    metric = Diagonal(one(problem.f_new), damping=lam)
    projector = Projector.build(problem.basis, metric, gram_damping=lam, form="printed")
    step = step_along(metric, project(projector, problem.g), problem.eta)
    expected = oracle.fopng(problem.g, problem.F_old, problem.G, problem.F_new, problem.eta, lam)
    torch.testing.assert_close(step, expected, **CLOSE)


def test_equation_18_fopng_update_with_full_fishers(problem):
    """The theorem is about matrices; a full F_old scales G before it is stored."""
    half = torch.randn(2, 7, 7).double()
    F_old, F_new = half @ half.mT + 0.1 * torch.eye(7).double()
    metric = full(F_new, 0.0)
    projector = Projector.build(stored((F_old @ problem.G).T), metric, gram_damping=0.0, form="printed")
    step = step_along(metric, project(projector, problem.g), problem.eta)
    expected = oracle.fopng(problem.g, F_old, problem.G, F_new, problem.eta)
    torch.testing.assert_close(step, expected, rtol=1e-6, atol=1e-8)


def test_equation_19_projection(problem):
    """Eq. 39."""
    P = oracle.printed_projection(problem.F_old, problem.G, problem.F_new)
    columns = torch.stack([project(problem.projector(), e) for e in torch.eye(7).double()], 1)
    torch.testing.assert_close(columns, P, **CLOSE)


def test_equation_20_and_21_fng(problem):
    """Theorem 3.3, eq. 44 to 47: along `F_new^-1 g`, of norm eta."""
    step = step_along(problem.metric, problem.g, problem.eta)
    torch.testing.assert_close(step, oracle.fng(problem.g, problem.F_new, problem.eta), **CLOSE)
    ratio = step / solve(problem.metric, problem.g)
    torch.testing.assert_close(ratio, ratio[0].expand(7), **CLOSE)
    torch.testing.assert_close(
        oracle.fisher_norm(step, problem.F_new), torch.tensor(problem.eta, dtype=torch.float64), **CLOSE
    )


@pytest.mark.parametrize("lam", [0.0, 1e-2])
def test_equation_22_to_24_prefisher(problem, lam):
    """Each task's gradients are weighted by its own Fisher: `[F_1 G_1, F_2 G_2]`."""
    memory, fishers = GradientMemory(), torch.rand(2, 7).double() + 0.1
    for G, f in ((problem.G[:, :1], fishers[0]), (problem.G[:, 1:], fishers[1])):
        gradients = SampleGradients({("w",): DenseGradients((G.T.contiguous(),))}, G.shape[1])
        memory = memory.appended(gradients, weight=one(f))
    B = torch.cat([fishers[0][:, None] * problem.G[:, :1], fishers[1][:, None] * problem.G[:, 1:]], 1)
    metric = Diagonal(one(problem.f_new), damping=lam)
    projector = Projector.build(memory, metric, gram_damping=lam, form="printed")
    torch.testing.assert_close(
        project(projector, problem.g),
        oracle.prefisher_projection(B, oracle.damped(problem.F_new, lam), lam) @ problem.g,
        **CLOSE,
    )
    step = step_along(metric, project(projector, problem.g), problem.eta)
    torch.testing.assert_close(step, oracle.fopng_prefisher(problem.g, B, problem.F_new, problem.eta, lam), **CLOSE)
    u = projector.removed(one(problem.g))["w"]
    torch.testing.assert_close(oracle.ogd_projection(u, B), torch.zeros(7).double(), **CLOSE)


def test_ong_projects_in_euclidean_space_and_steps_in_the_fishers(problem):
    projector = Projector.build(stored(problem.G.T), Identity(), gram_damping=0.0, form="orthogonal")
    step = step_along(problem.metric, project(projector, problem.g), problem.eta)
    torch.testing.assert_close(step, oracle.ong(problem.g, problem.G, problem.F_new, problem.eta), **CLOSE)


def test_natural_ogd_leaves_the_stored_outputs_alone(problem):
    projector = Projector.build(stored(problem.G.T), problem.metric, gram_damping=0.0, form="orthogonal")
    step = step_along(problem.metric, project(projector, problem.g), problem.eta)
    torch.testing.assert_close(step, oracle.natural_ogd(problem.g, problem.G, problem.F_new, problem.eta), **CLOSE)
    torch.testing.assert_close(problem.G.T @ step, torch.zeros(3).double(), **CLOSE)


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "recurrent", "multi_head"])
def test_algorithm_1_line_by_line_on_a_model(name):
    """Fisher, stored gradients and update from a model and data, against the same from plain autograd."""
    case, other = zoo.MODELS[name](), zoo.MODELS[name]()
    source, lam, eta = PerSampleGradients(case.model), 1e-3, 0.01
    shapes, stream = source.layout.shapes, LoaderStream([case.batch])
    memory = GradientMemory().appended(*sample_gradients(source, stream, zoo.N))
    f_old = diagonal_fisher(source, stream)
    f_new = diagonal_fisher(source, LoaderStream([other.batch]))
    g = oracle.sample_gradients(case.model, other.batch, zoo.N).mean(0)
    metric = Diagonal(f_new, damping=lam)
    projector = Projector.build(ScaledBasis(memory, f_old), metric, gram_damping=lam, form="printed")
    step = flat(trust_region_step(metric, projector(named(g, shapes)), radius=eta), shapes)
    G = oracle.sample_gradients(case.model, case.batch, zoo.N, oracle.ground_truth_logit).T
    F_old = torch.diag(oracle.diagonal_fisher(oracle.sample_gradients(case.model, case.batch, zoo.N)))
    F_new = torch.diag(oracle.diagonal_fisher(oracle.sample_gradients(case.model, other.batch, zoo.N)))
    torch.testing.assert_close(step, oracle.fopng(g, F_old, G, F_new, eta, lam), rtol=1e-10, atol=1e-14)
