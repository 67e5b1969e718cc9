"""Every numbered equation of the paper as a dense float64 function, written from the paper and importing nothing of ours.

Letters are the paper's: `g [p]` new-task gradient, `G [p, m]` stored gradients, `F [p, p]` a Fisher (pass `torch.diag(f)` for a
diagonal one), `eta` the radius, `lam` the damping. Numbers are those of the compiled paper. `rows [n, p]` are the gradients of
n samples, one in each row. The flat order is that of `model.parameters()`, trainable ones only.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

# Per-sample gradients: one sample at a time, plain autograd


def one_sample(batch, k: int):
    """The batch of one that holds sample k; what is not a tensor stays."""
    if isinstance(batch, Tensor):
        return batch[k : k + 1]
    if isinstance(batch, Mapping):
        return {name: one_sample(value, k) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(one_sample(value, k) for value in batch)
    return batch


def ask_pair(model: nn.Module, batch) -> tuple[Tensor, Tensor]:
    inputs, targets = batch
    return model(inputs), targets


def ground_truth_logit(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.gather(-1, targets.unsqueeze(-1)).sum()


def average_logit(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.mean()


def log_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    """`log p(y|x)` of a classifier, summed over positions."""
    return outputs.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).sum()


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def flat_parameters(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in trainable(model)])


def with_parameters(model: nn.Module, flat: Tensor) -> nn.Module:
    """Write a flat vector into the model's trainable parameters; returns the model."""
    for p, part in zip(trainable(model), flat.split([p.numel() for p in trainable(model)]), strict=True):
        p.data = part.detach().clone().reshape(p.shape)
    return model


def flat_gradient(model: nn.Module, scalar: Tensor) -> Tensor:
    found = torch.autograd.grad(scalar, trainable(model), allow_unused=True, retain_graph=True)
    pairs = zip(trainable(model), found, strict=True)
    return torch.cat([(torch.zeros_like(p) if gradient is None else gradient).flatten() for p, gradient in pairs])


def sample_gradients(
    model: nn.Module, batch, n: int, score: Callable = log_likelihood, ask: Callable = ask_pair
) -> Tensor:
    """Rows `[n, p]`: the gradient of `score(outputs, targets)` of each sample, alone in its batch, in eval mode."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    rows = [flat_gradient(model, score(*ask(model, one_sample(batch, k)))) for k in range(n)]
    for module, mode in training.items():
        module.training = mode
    return torch.stack(rows)


def class_gradients(model: nn.Module, batch, n: int, ask: Callable = ask_pair) -> tuple[Tensor, Tensor]:
    """Rows `[n, c, p]` of `grad log p(c|x)` for every class c, and the probabilities `[n, c]`."""
    rows, probabilities = [], []
    for k in range(n):
        log_p = ask(model, one_sample(batch, k))[0].log_softmax(-1).squeeze(0)
        rows.append(torch.stack([flat_gradient(model, value) for value in log_p]))
        probabilities.append(log_p.detach().exp())
    return torch.stack(rows), torch.stack(probabilities)


# Fishers


def exact_fisher(class_rows: Tensor, probabilities: Tensor) -> Tensor:
    """Eq. 1 and 10: `E_x E_{y ~ p(.|x)} s s^T`, from rows `[n, c, p]` and probabilities `[n, c]`."""
    return torch.einsum("nc,ncp,ncq->pq", probabilities, class_rows, class_rows) / class_rows.shape[0]


def diagonal_fisher(rows: Tensor) -> Tensor:
    """Eq. 7 and 25: the mean of the squared gradients, `[p]`."""
    return (rows**2).mean(0)


def empirical_fisher(rows: Tensor) -> Tensor:
    """Eq. 8: the mean of `g g^T` over observed labels."""
    return rows.T @ rows / rows.shape[0]


def kronecker_fisher(A: Tensor, G: Tensor) -> Tensor:
    """Eq. 9: `A (x) G`, for the weight stacked column by column."""
    return torch.kron(A, G)


def average_fisher(F_old: Tensor, F_new: Tensor, alpha: float) -> Tensor:
    """Algorithm 1, line 13: `(1 - alpha) F_old + alpha F_new`."""
    return (1 - alpha) * F_old + alpha * F_new


def damped(F: Tensor, lam: float) -> Tensor:
    """Section 4.2: `F + lam I`."""
    return F + lam * torch.eye(len(F), dtype=F.dtype)


# Geometry


def fisher_inner(u: Tensor, v: Tensor, F: Tensor) -> Tensor:
    """Eq. 11: `u^T F v`."""
    return u @ F @ v


def fisher_norm(v: Tensor, F: Tensor) -> Tensor:
    """Eq. 2 and 11: `sqrt(v^T F v)`."""
    return (v @ F @ v).sqrt()


def reparametrised_fisher(F_theta: Tensor, J: Tensor) -> Tensor:
    """Eq. 27: `J^-T F_theta J^-1`."""
    return torch.linalg.inv(J).T @ F_theta @ torch.linalg.inv(J)


def kl_divergence(logits: Tensor, moved: Tensor) -> Tensor:
    """Eq. 3, left side: the mean over x of `KL(p_theta || p_{theta+v})`."""
    return (logits.softmax(-1) * (logits.log_softmax(-1) - moved.log_softmax(-1))).sum(-1).mean()


def kl_approximation(v: Tensor, F: Tensor) -> Tensor:
    """Eq. 3, right side: `v^T F v / 2`."""
    return fisher_norm(v, F) ** 2 / 2


# Updates


def natural_gradient_step(theta: Tensor, F: Tensor, g: Tensor, eta: float) -> Tensor:
    """Eq. 4: `theta - eta F^-1 g`."""
    return theta - eta * torch.linalg.solve(F, g)


def ewc_penalty(theta: Tensor, anchor: Tensor, f: Tensor, lam: float) -> Tensor:
    """Eq. 5: `lam/2 sum_i F_i (theta_i - theta*_i)^2`."""
    return lam / 2 * (f * (theta - anchor) ** 2).sum()


def ewc_gradient(g: Tensor, theta: Tensor, anchor: Tensor, f: Tensor, lam: float) -> Tensor:
    """The gradient of the loss and eq. 5 together."""
    return g + lam * f * (theta - anchor)


def ogd_projection(g: Tensor, G: Tensor) -> Tensor:
    """Eq. 6: `g - G (G^T G)^-1 G^T g`."""
    return g - G @ torch.linalg.solve(G.T @ G, G.T @ g)


def update(g: Tensor, u: Tensor, F_new: Tensor, c: float | Tensor) -> Tensor:
    """Eq. 12: `v = c F_new^-1 (g - u)`."""
    return c * torch.linalg.solve(F_new, g - u)


def objective(g: Tensor, u: Tensor, F_new: Tensor) -> Tensor:
    """Eq. 13, 16, 22 and 32: `||g - F_new^-1 u||^2` in the norm of `F_new`."""
    return fisher_norm(g - torch.linalg.solve(F_new, u), F_new) ** 2


def expanded_objective(g: Tensor, u: Tensor, F_new: Tensor) -> Tensor:
    """Eq. 34: `g^T F g - 2 g^T u + u^T F^-1 u`."""
    return g @ F_new @ g - 2 * g @ u + u @ torch.linalg.solve(F_new, u)


def feasible(alpha: Tensor, F_old: Tensor, G: Tensor) -> Tensor:
    """Eq. 14, 17 and 35: `u = F_old G alpha`, the points with `F_old^-1 u` in the column space of G."""
    return F_old @ G @ alpha


def gram(F_new: Tensor, B: Tensor, eps: float = 0.0) -> Tensor:
    """`A = B^T F_new^-1 B + eps I`; the paper's A with `B = F_old G`."""
    return damped(B.T @ torch.linalg.solve(F_new, B), eps)


def best_alpha(g: Tensor, F_old: Tensor, G: Tensor, F_new: Tensor) -> Tensor:
    """Eq. 37: `(G^T F_old F_new^-1 F_old G)^-1 G^T F_old g`."""
    B = F_old @ G
    return torch.linalg.solve(gram(F_new, B), B.T @ g)


def printed_projection(F_old: Tensor, G: Tensor, F_new: Tensor, eps: float = 0.0) -> Tensor:
    """Eq. 19 and 39: `I - F_old G A^-1 G^T F_old`."""
    return prefisher_projection(F_old @ G, F_new, eps)


def prefisher_projection(B: Tensor, F_new: Tensor, eps: float = 0.0) -> Tensor:
    """Eq. 24: `I - B (B^T F_new^-1 B)^-1 B^T`, with `B = [F_1 G_1, F_2 G_2, ...]`."""
    return torch.eye(len(B), dtype=B.dtype) - B @ torch.linalg.solve(gram(F_new, B, eps), B.T)


def orthogonal_projection(B: Tensor, F_new: Tensor, relative: float = 0.0) -> Tensor:
    """`I - B (B^T F_new^-1 B)^-1 B^T F_new^-1`: the form with `B^T F_new^-1 P = 0`; damped relative to the mean of diag A."""
    A = gram(F_new, B)
    A = damped(A, relative * float(A.diagonal().mean()))
    return torch.eye(len(B), dtype=B.dtype) - B @ torch.linalg.solve(A, torch.linalg.solve(F_new, B).T)


def trust_region(F_new: Tensor, projected: Tensor, eta: float) -> Tensor:
    """Eq. 15 and 18: `eta F^-1 Pg / sqrt(Pg^T F^-1 Pg)`, of Fisher norm eta."""
    direction = torch.linalg.solve(F_new, projected)
    return eta * direction / (projected @ direction).sqrt()


def fng(g: Tensor, F_new: Tensor, eta: float) -> Tensor:
    """Theorem 3.3, eq. 47."""
    return trust_region(F_new, g, eta)


def fopng(g: Tensor, F_old: Tensor, G: Tensor, F_new: Tensor, eta: float, lam: float = 0.0) -> Tensor:
    """Theorem 3.2, eq. 18 and 43; `lam` acts twice (section 4.2), on F_new and on A."""
    F = damped(F_new, lam)
    return trust_region(F, printed_projection(F_old, G, F, lam) @ g, eta)


def fopng_prefisher(g: Tensor, B: Tensor, F_new: Tensor, eta: float, lam: float = 0.0) -> Tensor:
    """Eq. 18 with eq. 24."""
    F = damped(F_new, lam)
    return trust_region(F, prefisher_projection(B, F, lam) @ g, eta)


def fopng_orthogonal(
    g: Tensor, B: Tensor, F_new: Tensor, eta: float, lam: float = 0.0, relative: float = 0.0
) -> Tensor:
    """Eq. 18 with the orthogonal projection, for `B = F_old G`, `[F_1 G_1, ...]`, or `G` (natural OGD)."""
    F = damped(F_new, lam)
    return trust_region(F, orthogonal_projection(B, F, relative) @ g, eta)


def natural_ogd(g: Tensor, G: Tensor, F_new: Tensor, eta: float, lam: float = 0.0, relative: float = 0.0) -> Tensor:
    """The natural step with `G^T v = 0`."""
    return fopng_orthogonal(g, G, F_new, eta, lam, relative)


def ong(g: Tensor, G: Tensor, F_new: Tensor, eta: float, lam: float = 0.0) -> Tensor:
    """Section 2.6 on ONG: project in Euclidean space (eq. 6), then precondition by the Fisher."""
    return trust_region(damped(F_new, lam), ogd_projection(g, G), eta)


# Kronecker-factored Fishers (Martens and Grosse, 2015; Grosse and Martens, 2016)


def patches(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """What the kernel is multiplied with, place by place, of one image `[1, c, h, w]`: `[places, i]`."""
    (high, wide), (down, right) = layer.kernel_size, layer.stride
    padded = nn.functional.pad(x[0], [layer.padding[1]] * 2 + [layer.padding[0]] * 2)
    rows = [
        padded[:, top : top + high, left : left + wide].flatten()
        for top in range(0, padded.shape[1] - high + 1, down)
        for left in range(0, padded.shape[2] - wide + 1, right)
    ]
    return torch.stack(rows)


def listened(model: nn.Module, ask: Callable, sample) -> tuple[Tensor, dict[nn.Module, list[tuple[Tensor, Tensor]]]]:
    """One sample's outputs, and for every Linear and Conv2d its calls: `a [t, i]` with a 1 for the bias, and the layer's output."""
    kept: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def keep(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        rows = patches(layer, given[0]) if isinstance(layer, nn.Conv2d) else given[0].reshape(-1, given[0].shape[-1])
        ones = [rows.new_ones(len(rows), 1)] * (layer.bias is not None)
        kept.setdefault(layer, []).append((torch.cat([rows, *ones], 1).detach(), output))
        return output.clone()  # the next layer may change it in place

    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d)) and getattr(m, "groups", 1) == 1]
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    outputs = ask(model, sample)[0]
    for hook in hooks:
        hook.remove()
    return outputs, kept


def moments(model: nn.Module, batch, backs: list[Tensor], ask: Callable = ask_pair) -> tuple[dict, Tensor]:
    """`{layer: (A, G)}` and the mean squared gradient `[p]`, one sample and one signal at a time.

    `A = E[sum_t a_t a_t^T]`. Of a convolution `G = E[mean_t d_t d_t^T]`; elsewhere G is `E[sum_t d_t d_t^T]`, scaled so that
    `A kron G` has the trace of `E[g g^T]`, and positions to which nothing comes back are no positions. A layer counts where
    `sum_t d_t a_t^T` over its calls is all of its gradient: not where its weight is used elsewhere, too.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    found: dict[nn.Module, list] = {}
    apart: set[nn.Module] = set()
    squares, n = torch.zeros_like(flat_parameters(model)), len(backs[0])
    for k in range(n):
        for back in backs:
            outputs, kept = listened(model, ask, one_sample(batch, k))
            places = [output for calls in kept.values() for _, output in calls]
            wanted = [*trainable(model), *places]
            got = torch.autograd.grad(outputs, wanted, back[k : k + 1], allow_unused=True)
            signals = {id(place): d for place, d in zip(wanted, got, strict=True)}
            flat = [torch.zeros_like(p) if g is None else g for p, g in zip(trainable(model), got, strict=False)]
            squares += torch.cat([g.flatten() for g in flat]) ** 2 / n
            for layer, calls in kept.items():
                if signals[id(calls[0][1])] is None:
                    continue
                a = torch.cat([a for a, _ in calls])
                ds = [signals[id(output)] for _, output in calls]
                conv = isinstance(layer, nn.Conv2d)
                d = torch.cat([s[0].flatten(1).T if conv else s.reshape(-1, s.shape[-1]) for s in ds])
                whole = signals.get(id(layer.weight))
                ours = (d.T @ a)[:, : layer.weight[0].numel()].reshape(layer.weight.shape)
                if whole is None or not torch.allclose(ours, whole, rtol=1e-8, atol=1e-12):
                    apart.add(layer)
                shared = len(d) > 1 and not conv
                A, G, lengths, seen = found.setdefault(layer, [0, 0, 0, {}])
                mask = (d != 0).any(1) if shared else torch.ones(len(d), dtype=torch.bool)
                rows, before = seen.get(k, (a, torch.zeros_like(mask)))
                seen[k] = rows, before | mask
                G = G + d.T @ d / ((len(d) if conv else 1) * n)
                found[layer] = [A, G, lengths + (d.T @ a).square().sum() / n * shared, seen]
    for layer, (_, G, lengths, seen) in found.items():
        A = sum(a[mask].T @ a[mask] for a, mask in seen.values()) / n
        found[layer] = [A, G * lengths / (A.trace() * G.trace()) if lengths > 0 else G]
    for module, mode in modes.items():
        module.training = mode
    return {layer: tuple(pair) for layer, pair in found.items() if layer not in apart}, squares


def layerwise_fisher(model: nn.Module, layers: dict, squares: Tensor) -> Tensor:
    """`F [p, p]` in the flat order: `A kron G` for each layer, the squares on the diagonal for everything else."""
    starts, start = {}, 0
    for p in trainable(model):
        starts[p] = start
        start += p.numel()
    F = torch.diag(squares)
    for layer, (A, G) in layers.items():
        o, i = layer.weight.shape[0], layer.weight[0].numel()
        place = starts[layer.weight] + torch.arange(o * i).reshape(o, i)
        if layer.bias is not None:
            place = torch.cat([place, starts[layer.bias] + torch.arange(o)[:, None]], 1)
        place = place.flatten()
        F[place[:, None], place] = torch.kron(G, A)
    return F


# Gradient projection memory (Saha et al., 2021) and its scaled form (Saha and Roy, 2023)


def inputs_of(model: nn.Module, batch, n: int, ask: Callable = ask_pair) -> dict[nn.Module, Tensor]:
    """The representation matrix `R [i, n t]` of every Linear and Conv2d, one sample at a time."""
    rows: dict[nn.Module, list[Tensor]] = {}
    for k in range(n):
        for layer, calls in listened(model, ask, one_sample(batch, k))[1].items():
            rows.setdefault(layer, []).extend(a for a, _ in calls)
    return {layer: torch.cat(found).T for layer, found in rows.items()}


def gpm_directions(M: Tensor, R: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Eq. 8 and 9: the new directions `[i, k]` and their singular values, k the smallest that satisfies the criterion."""
    R_hat = R - M @ M.T @ R
    U, S, _ = np.linalg.svd(R_hat.numpy(), full_matrices=False)
    total = float((R**2).sum())
    held, k = total - float((R_hat**2).sum()), 0
    while held < epsilon * total * (1 - 1e-9):
        held += S[k] ** 2
        k += 1
    return torch.as_tensor(U[:, :k]), torch.as_tensor(S[:k])


def sgp_importance(values: Tensor, alpha: float) -> Tensor:
    """Eq. 6: `(alpha + 1) s / (alpha s + max s)`."""
    return (alpha + 1) * values / (alpha * values + values.max())


def scaled_projection(g: Tensor, M: Tensor, importance: Tensor) -> Tensor:
    """Eq. 5: `g - g M Lambda M^T` of a layer's gradient `[o, i]`; GPM's eq. 7 where Lambda is the identity."""
    return g - g @ M @ torch.diag(importance) @ M.T
