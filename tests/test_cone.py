"""GEM's quadratic program against every set of constraints that could be tight, one after another."""

from itertools import chain, combinations

import pytest
import torch

from flat import one
from fopng.memory.gem_qp import PART, cone_products, cone_weights


def nearest_in_cone(g, G):
    """The vector nearest to `g` with `G x >= 0`: the best of those that are tight in some of the constraints."""
    k, best = len(G), None
    for tight in chain.from_iterable(combinations(range(k), size) for size in range(k + 1)):
        rows = G[list(tight)]
        x = g - rows.T @ torch.linalg.lstsq(rows.T, g.unsqueeze(-1)).solution.squeeze(-1) if tight else g
        feasible = bool((G @ x >= -1e-9 * G.norm(dim=1) * g.norm()).all())
        if feasible and (best is None or (x - g).norm() < (best - g).norm()):
            best = x
    return best


def gradients(k, alike, size=30):
    """Old gradients that have a direction in common, of very different lengths, and one that goes against it."""
    common = torch.randn(size, dtype=torch.float64)
    G = (1 - alike) ** 0.5 * torch.randn(k, size, dtype=torch.float64) + alike**0.5 * common
    return torch.randn(size, dtype=torch.float64) - 0.5 * common, G * torch.logspace(-3, 3, k, dtype=torch.float64)[
        :, None
    ]


def solved(g, G):
    products = (G @ g.unsqueeze(-1)).squeeze(-1)
    return g + (cone_weights(G @ G.mT, products).unsqueeze(-2) @ G).squeeze(-2)


@pytest.mark.parametrize("alike", [0.0, 0.9, 0.999])
@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_the_nearest_vector_in_the_cone(k, alike):
    for _ in range(10):
        g, G = gradients(k, alike)
        torch.testing.assert_close(solved(g, G), nearest_in_cone(g, G), rtol=0, atol=1e-8 * float(g.norm()))


@pytest.mark.parametrize("k", [3, 19, 49])
def test_the_conditions_of_an_optimum(k):
    """`v >= 0`, `A v + b >= 0`, one of them zero: for replicas of their own, side by side."""
    pairs = [gradients(k, alike, size=200) for alike in (0.0, 0.5, 0.99)]
    g, G = torch.stack([g for g, _ in pairs]), torch.stack([G / G.norm(dim=1, keepdim=True) for _, G in pairs])
    b = (G @ g.unsqueeze(-1)).squeeze(-1)
    v = cone_weights(G @ G.mT, b)
    w = (G @ G.mT @ v.unsqueeze(-1)).squeeze(-1) + b
    assert (v >= 0).all()
    assert (v > 0).any()
    assert (w >= -1e-8).all()
    assert ((v * w).abs() <= 1e-7).all()
    for r in range(3):
        torch.testing.assert_close(v[r], cone_weights(G[r] @ G[r].mT, b[r]), rtol=1e-12, atol=1e-14)


def test_a_gradient_inside_the_cone_is_left_as_it_is():
    _, G = gradients(4, 0.9)
    g = G.sum(0)
    assert bool((G @ g >= 0).all())
    assert torch.equal(solved(g, G), g)


@pytest.mark.parametrize("copies", [2, 5])
def test_old_gradients_that_are_one_another(copies):
    g, G = gradients(1, 0.9)
    torch.testing.assert_close(solved(g, G.expand(copies, -1)), solved(g, G), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("apart", [0.0, 1e-7, 1e-4, 1e-2])
@pytest.mark.parametrize("k", [2, 4, 9])
def test_in_single_precision_gradients_that_are_nearly_the_same(k, apart):
    """Their Gram matrix is rounded more than they differ; the answer is that of double precision within that."""
    common = torch.randn(300, dtype=torch.float64)
    G = (common + apart * torch.randn(k, 300, dtype=torch.float64)).float()
    g = (torch.randn(300, dtype=torch.float64) - common).float()
    torch.testing.assert_close(
        solved(g, G).double(), solved(g.double(), G.double()), rtol=0, atol=2e-3 * float(g.norm())
    )
    assert (G @ solved(g, G) / G.norm(dim=1) >= -1e-4 * g.norm()).all()


def test_an_old_gradient_of_zero_asks_for_nothing():
    g, G = gradients(3, 0.9)
    padded = torch.cat([G, torch.zeros(1, 30, dtype=torch.float64)])
    torch.testing.assert_close(solved(g, padded), solved(g, G), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [5, PART, 2 * PART + 7])
def test_products_of_long_rows(size):
    G, g = torch.randn(2, 4, size, dtype=torch.float64), torch.randn(2, size, dtype=torch.float64)
    gram, products = cone_products(one(G), one(g))
    torch.testing.assert_close(gram, G @ G.mT)
    torch.testing.assert_close(products, (G @ g.unsqueeze(-1)).squeeze(-1))
