"""The methods written out: dense matrices, float64, one sample at a time, from the paper's equations in `oracle`.

A twin lives the same life as an optimizer: the same calls, the same draws from a generator of its own.
"""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from oracle import (
    average_fisher,
    average_logit,
    class_gradients,
    damped,
    diagonal_fisher,
    ewc_penalty,
    exact_fisher,
    flat_parameters,
    gpm_directions,
    ground_truth_logit,
    inputs_of,
    layerwise_fisher,
    log_likelihood,
    moments,
    orthogonal_projection,
    prefisher_projection,
    sample_gradients,
    scaled_projection,
    sgp_importance,
    trainable,
    trust_region,
    with_parameters,
)

SCORES = {"ground-truth": ground_truth_logit, "average": average_logit, "log-likelihood": log_likelihood}
ELASTIC = ("EWC", "OnlineEWC")
KRONECKER = ("KroneckerFOPNG", "NCL")
INPUTS = ("GPM", "SGP")
EUCLIDEAN = ("SGD", "Adam", "OGD", *ELASTIC, *KRONECKER, *INPUTS)
PROJECTED = ("OGD", "ONG", "NaturalOGD", "FOPNG", "FOPNGPreFisher")


def sent_back(outputs: Tensor, back: Tensor) -> Tensor:
    """A score whose derivative at the outputs is `back`."""
    return (outputs * back).sum()


def split_damping(A: Tensor, G: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Martens and Grosse, section 6.3."""
    pi = ((A.trace() / len(A)) / (G.trace() / len(G))).sqrt()
    return damped(A, pi * lam**0.5), damped(G, lam**0.5 / pi)


def nearest_rows(rows: Tensor, rank: int) -> Tensor:
    """The rows of the nearest matrix of a rank, up to a rotation."""
    _, S, Vt = torch.linalg.svd(rows, full_matrices=False)
    return S[:rank, None] * Vt[:rank]


class Dense:
    """A method by name, its settings with the defaults of the issue, and a model of its own to move."""

    def __init__(self, name: str, model: nn.Module, lr: float, ask, generator: torch.Generator, **settings) -> None:
        self.name, self.model, self.lr, self.ask, self.generator = name, model, lr, ask, generator
        self.damping, self.alpha, self.momentum, self.strength = 1e-3, 0.5, 0.0, 100.0
        self.decay = 0.95 if name == "OnlineEWC" else 1.0
        self.gram_damping = self.max_directions = None
        self.projection, self.labels, self.score, self.prefisher = "printed", "observed", "ground-truth", "diagonal"
        self.gradients_per_task, self.when_full, self.kept_energy = 80, "thin", 1.0
        self.fisher_rank, self.low = 16, {}  # the diagonal and the rows of a low-rank Fisher, new and old
        self.metric = "kfac" if name == "NCL" else "diagonal"
        self.mixed, self.lost = 0, (0.0, 0.0)  # how many directions are combinations; length held, share lost for good
        self.signals, self.evenness = "sampled", 0.0 if name == "NCL" else 0.5
        self.strength = {"NCL": 10_000.0, "KroneckerFOPNG": 30.0}.get(name, self.strength)
        self.threshold, self.threshold_growth, self.input_samples, self.importance_scale = 0.95, 0.0, 300, 10.0
        self.spaces: dict[nn.Module, tuple[Tensor, Tensor]] = {}  # directions and importance of each layer's inputs
        self.frozen = torch.zeros(len(flat_parameters(model)), dtype=torch.bool)
        self.fisher_samples = 2000 if name in KRONECKER else None
        self.first_task = None if name in ("SGD", "Adam", *ELASTIC, *KRONECKER, *INPUTS) else 1e-2
        for setting, value in settings.items():
            setattr(self, {"fisher_weight": "alpha"}.get(setting, setting), value)
        self.first_task = None if self.first_task == "own" else self.first_task
        self.layers: dict[nn.Module, tuple[Tensor, Tensor]] = {}  # A and G of each layer, over all tasks
        self.blocks: list[Tensor] = []  # each task's own gradients, [p, k]
        self.weights: list[Tensor] = []  # each task's own Fisher, [p]
        self.f_old = self.f_new = self.anchor = self.old_pair = None
        self.sum, self.done = torch.zeros_like(flat_parameters(model)), 0
        self.moments = [torch.zeros_like(self.sum), torch.zeros_like(self.sum)]
        self.count = torch.zeros_like(self.sum)

    # What is known of a task

    def draw(self, batch, count: int | None):
        if count is None:
            return batch
        x, *rest = batch
        order = torch.randperm(len(x), generator=self.generator)[:count].sort().values
        return tuple(part[order] if isinstance(part, Tensor) else part for part in (x, *rest))

    def fisher(self, batch) -> Tensor:
        """Eq. 7 on a random subset, with the labels asked for."""
        x, y, *rest = self.draw(batch, self.fisher_samples)
        if self.labels == "expected":
            return exact_fisher(*class_gradients(self.model, (x, y, *rest), len(x), self.ask)).diagonal()
        if self.labels == "sampled":
            p = self.ask(self.model, (x, y, *rest))[0].detach().float().softmax(-1)
            u = torch.rand(len(p), generator=self.generator)
            y = torch.tensor([int((row.cumsum(0) < draw).sum()) for row, draw in zip(p, u, strict=True)])
        return diagonal_fisher(sample_gradients(self.model, (x, y, *rest), len(x), log_likelihood, self.ask))

    def refresh(self, batch) -> None:
        if self.name not in EUCLIDEAN and not self.first_steps:
            self.f_new = self.estimate(batch)

    def estimate(self, batch) -> Tensor:
        """A Fisher as the metric approximates it: `[p]`, or `[p, p]` with the moments that it is made of in `self.pair`."""
        if self.metric == "diagonal":
            return self.fisher(batch)
        batch = self.draw(batch, self.fisher_samples)
        outputs, y = self.ask(self.model, batch)
        self.signals = self.labels
        backs = self.backs(outputs.detach(), y)
        if self.metric == "low-rank":
            return self.low_rank(batch, backs)
        if self.metric == "full":
            rows = [sample_gradients(self.model, (*batch[:1], back), len(back), sent_back, self.ask) for back in backs]
            return sum(r.T @ r / len(r) for r in rows)
        layers, squares = moments(self.model, batch, backs, self.ask)
        self.pair = layers, squares
        return layerwise_fisher(self.model, layers, squares)

    def low_rank(self, batch, backs: list[Tensor]) -> Tensor:
        """Leading rows of the gradients so far, `fisher_rank` samples at a time; the diagonal is exact."""
        n, k = len(backs[0]), self.fisher_rank
        kept, squares = torch.zeros(0, len(flat_parameters(self.model)), dtype=torch.float64), 0
        for start in range(0, n, k):
            for back in backs:
                part = slice(start, start + k)
                pieces = [each[part] if isinstance(each, Tensor) else each for each in batch[:1]]
                rows = sample_gradients(self.model, (*pieces, back[part]), len(back[part]), sent_back, self.ask)
                squares = squares + rows.square().sum(0) / n
                kept = nearest_rows(torch.cat([kept, rows / n**0.5]), k)
        self.low["new"] = squares, kept
        return torch.diag(squares - kept.square().sum(0)) + kept.T @ kept

    def averaged_low_rank(self) -> Tensor:
        """The average of old and new, brought back to the rank."""
        squares, kept = self.low["new"]
        if "old" in self.low:
            a, (before, rows) = self.alpha, self.low["old"]
            squares = (1 - a) * before + a * squares
            kept = nearest_rows(torch.cat([(1 - a) ** 0.5 * rows, a**0.5 * kept]), self.fisher_rank)
        self.low["old"] = squares, kept
        return torch.diag(squares - kept.square().sum(0)) + kept.T @ kept

    def damped_new(self, part: Tensor) -> Tensor:
        """`F_new + lam I`; KFAC's damping is split between the factors."""
        if self.metric == "diagonal":
            return damped(torch.diag(self.f_new[part]), self.damping)
        if self.metric == "kfac":
            layers, squares = self.pair
            split = {layer: split_damping(A, G, self.damping) for layer, (A, G) in layers.items()}
            return layerwise_fisher(self.model, split, squares + self.damping)[part][:, part]
        return damped(self.f_new[part][:, part], self.damping)

    def end_task(self, batch) -> None:
        if self.name in (*ELASTIC, "FOPNG") or (self.name == "FOPNGPreFisher" and self.prefisher != "empirical"):
            f = self.estimate(batch) if self.prefisher == "metric" or self.name == "FOPNG" else self.fisher(batch)
            self.weights = [self.decay * old for old in self.weights] + [f]
            self.f_old = f if self.f_old is None else average_fisher(self.f_old, f, self.alpha)
            if self.name == "FOPNG" and self.metric == "low-rank":
                self.f_old = self.averaged_low_rank()
            if self.name == "FOPNG" and self.metric == "kfac":
                self.f_old = self.averaged_moments()
        if self.name in PROJECTED:
            chosen = self.draw(batch, self.gradients_per_task)
            rows = sample_gradients(self.model, chosen, len(chosen[0]), SCORES[self.score], self.ask)
            self.blocks.append(rows.T)
            self.thin() if self.when_full == "thin" else self.compress(batch)
        if self.name in KRONECKER:
            self.remember(batch)
        if self.name in INPUTS:
            self.look(batch)
        self.anchor = flat_parameters(self.model)
        self.done += 1

    def remember(self, batch) -> None:
        """Add this task's moments to those of the others."""
        batch = self.draw(batch, self.fisher_samples)
        outputs, y = self.ask(self.model, batch)
        layers, squares = moments(self.model, batch, self.backs(outputs.detach(), y), self.ask)
        layers = {} if self.metric == "diagonal" and self.name == "NCL" else layers
        inside = {id(p) for layer in {*layers, *self.layers} for p in layer.parameters()}
        outside = torch.cat([torch.full((p.numel(),), id(p) not in inside) for p in trainable(self.model)])
        squares = squares * outside
        unit = self.unit(layers, squares)
        for layer, (A, G) in layers.items():
            G = G / unit
            before = self.layers.get(layer, (torch.zeros_like(A), torch.zeros_like(G)))
            weights = before[0].trace(), A.trace()
            self.layers[layer] = before[0] + A, (weights[0] * before[1] + weights[1] * G) / sum(weights)
        self.weights.append(squares / unit)

    def unit(self, layers, squares):
        """The mean of the diagonal of a task's Fisher over the parameters it used; NCL takes the Fisher as it is."""
        if self.name == "NCL":
            return 1.0
        return layerwise_fisher(self.model, layers, squares).trace() / self.reached(layers, squares).sum()

    def look(self, batch) -> None:
        """Add the main directions of what each layer was given; whatever else the task used is frozen."""
        chosen = self.draw(batch, self.input_samples)
        self.draw(batch, 1)
        outputs = self.ask(self.model, chosen)[0]
        layers, _ = moments(self.model, chosen, [torch.ones_like(outputs)], self.ask)
        found = inputs_of(self.model, chosen, len(chosen[0]), self.ask)
        for layer in layers:
            R = found[layer]
            M, old = self.spaces.get(layer, (R[:, :0], R[0, :0]))
            new, S = gpm_directions(M, R, min(1.0, self.threshold + self.threshold_growth * self.done))
            importance = torch.ones(M.shape[1] + len(S), dtype=R.dtype)
            if self.name == "SGP":
                seen = torch.cat([(M.T @ R).norm(dim=1), S])
                importance = (sgp_importance(seen, self.importance_scale) + torch.cat([old, 0 * S])).clamp(max=1)
            self.spaces[layer] = torch.cat([M, new], 1), importance
        covered = {id(p) for layer in self.spaces for p in layer.parameters()}
        used = torch.autograd.grad(outputs.sum(), trainable(self.model), allow_unused=True)
        pairs = zip(trainable(self.model), used, strict=True)
        self.frozen |= torch.cat([torch.full((p.numel(),), g is not None and id(p) not in covered) for p, g in pairs])

    def kept(self, g: Tensor, part: Tensor) -> Tensor:
        """What is left of a gradient, layer by layer."""
        whole = torch.zeros(len(part), dtype=g.dtype)
        whole[part] = g
        sizes = [p.numel() for p in trainable(self.model)]
        named = dict(zip(trainable(self.model), whole.split(sizes), strict=True))
        moves = {p: bool(own.any()) for p, own in zip(trainable(self.model), part.split(sizes), strict=True)}
        for layer, (M, importance) in self.spaces.items():
            owned = [p for p in (layer.weight, layer.bias) if p is not None]
            blocks = [named[p].reshape(len(layer.weight), -1) for p in owned]
            rows = torch.cat([torch.full((b.shape[1],), moves[p]) for p, b in zip(owned, blocks, strict=True)])
            if M.shape[1] and not rows.all():
                # directions of what moves alone: those that its rows of M span
                U, s, Vh = torch.linalg.svd(M * rows[:, None], full_matrices=False)
                M = U[:, s > 1e-6] @ Vh[s > 1e-6]
            left = scaled_projection(torch.cat(blocks, 1), M, importance)
            named |= {
                p: own.flatten() for p, own in zip(owned, left.split([b.shape[1] for b in blocks], 1), strict=True)
            }
        return torch.where(self.frozen, 0.0, torch.cat(list(named.values())))[part]

    def backs(self, outputs: Tensor, y: Tensor) -> list[Tensor]:
        """What is sent back from the outputs."""
        if self.signals == "normal":
            u = torch.rand(outputs.shape, dtype=torch.float64, generator=self.generator)
            return [2**0.5 * torch.erfinv(2 * u - 1)]
        p = outputs.softmax(-1)
        hot = torch.eye(outputs.shape[-1], dtype=outputs.dtype)
        if self.signals == "expected":
            return [p[:, [c]].sqrt() * (hot[c] - p) for c in range(len(hot))]
        if self.signals == "sampled":
            u = torch.rand(len(p), generator=self.generator)
            y = torch.tensor([int((row.cumsum(0) < draw).sum()) for row, draw in zip(p.float(), u, strict=True)])
        return [hot[y] - p]

    def averaged_moments(self) -> Tensor:
        """`F_old` of averaged factors: those of KFAC are averaged, not their product."""
        new, old = self.pair, self.old_pair
        if old is not None:
            alpha, layers = self.alpha, {}
            for layer in {**old[0], **new[0]}:
                some = old[0].get(layer, new[0].get(layer))
                nothing = tuple(torch.zeros_like(m) for m in some)
                pairs = zip(old[0].get(layer, nothing), new[0].get(layer, nothing), strict=True)
                layers[layer] = tuple((1 - alpha) * a + alpha * b for a, b in pairs)
            new = layers, (1 - alpha) * old[1] + alpha * new[1]
        self.old_pair = new
        inside = {id(p) for layer in new[0] for p in layer.parameters()}
        outside = torch.cat([torch.full((p.numel(),), id(p) not in inside) for p in trainable(self.model)])
        return layerwise_fisher(self.model, new[0], new[1] * outside)

    def thin(self) -> None:
        """Every task keeps the same share, evenly spaced; what does not divide goes to the first tasks."""
        while self.max_directions is not None and sum(b.shape[1] for b in self.blocks) > self.max_directions:
            shares = [0] * len(self.blocks)
            while sum(shares) < self.max_directions:
                room = [k for k, b in enumerate(self.blocks) if shares[k] < b.shape[1]]
                shares[min(room, key=lambda k: shares[k])] += 1
            kept = [
                [(j * b.shape[1]) // share for j in range(share)] for b, share in zip(self.blocks, shares, strict=True)
            ]
            self.blocks = [b[:, rows] for b, rows in zip(self.blocks, kept, strict=True)]

    def compress(self, batch) -> None:
        """The leading singular vectors of `F^-1/2 B` on the parameters that the task reaches; of a factored weight, one term."""
        if sum(b.shape[1] for b in self.blocks) <= self.max_directions:
            return
        if self.name not in EUCLIDEAN and self.f_new is None:
            self.f_new = self.fisher(batch)
        sizes = [p.numel() for p in trainable(self.model)]
        here = torch.cat([(g != 0).any().expand(len(g)) for g in self.blocks[-1].split(sizes)])
        flat = self.name in ("OGD", "ONG")
        half = torch.ones(int(here.sum())) if flat else (self.f_new[here] + self.damping).rsqrt()
        B = self.basis()
        seen = half[:, None] * B[here]
        values, vectors = torch.linalg.eigh(seen.T @ seen)
        order = values.argsort(descending=True)
        shares = values[order].cumsum(0) / values.sum()
        count = min(self.max_directions, int((shares < self.kept_energy - 1e-12).sum()) + 1)
        C = torch.zeros(B.shape[1], self.max_directions, dtype=B.dtype)
        C[:, :count] = vectors[:, order[:count]]
        made = (torch.cat(self.blocks, 1) if self.name == "FOPNG" else B) @ C
        lengths = torch.ones_like(self.sum) if flat else (self.f_new + self.damping).rsqrt()
        lengths = lengths * (self.f_old if self.name == "FOPNG" else 1)
        for p, part, w in zip(trainable(self.model), made.split(sizes), lengths.split(sizes), strict=True):
            if p.dim() == 2 and sum(p.shape) <= p.numel():
                squares = w.reshape(p.shape) ** 2
                squares = squares if squares.any() else torch.ones_like(squares)
                margins = squares.mean(1, keepdim=True).sqrt() * squares.mean(0, keepdim=True).sqrt()
                u, s, vt = torch.linalg.svd(part.T.reshape(-1, *p.shape) * margins, full_matrices=False)
                part.copy_(((u[..., :1] * s[:, None, :1] @ vt[:, :1]) / margins).flatten(1).T)
        self.blocks, self.weights, self.mixed = [made], [torch.ones(len(made))], self.max_directions
        N = half[:, None] * self.basis()[here]
        left = (seen - N @ torch.linalg.pinv(N, rtol=1e-7) @ seen).square().sum(0)
        k = self.mixed if self.lost[0] else 0
        old = seen[:, :k].square().sum() / (1 - self.lost[1]) + seen[:, k:].square().sum()
        kept = seen.square().sum() - left.sum()
        self.lost = (float(kept), float(1 - kept / old))

    # A step

    @property
    def first_steps(self) -> bool:
        return self.first_task is not None and self.done == 0

    def basis(self) -> Tensor:
        if self.name == "FOPNG" and self.metric != "diagonal":
            return self.f_old @ torch.cat(self.blocks, 1)
        if self.name == "FOPNG":
            return self.f_old[:, None] * torch.cat(self.blocks, 1)
        if self.name == "FOPNGPreFisher" and self.prefisher == "metric" and self.metric != "diagonal":
            return torch.cat([f @ b for f, b in zip(self.weights, self.blocks, strict=True)], 1)
        if self.name == "FOPNGPreFisher" and self.prefisher == "empirical":
            mixed = [self.mixed > 0, *[False] * len(self.blocks)]
            return torch.cat(
                [b if done else b @ b.T @ b / b.shape[1] for b, done in zip(self.blocks, mixed, strict=False)], 1
            )
        if self.name == "FOPNGPreFisher":
            return torch.cat([f[:, None] * b for f, b in zip(self.weights, self.blocks, strict=True)], 1)
        return torch.cat(self.blocks, 1)

    def project(self, g: Tensor, F: Tensor, part: Tensor) -> Tensor:
        """P g in the metric F, with the basis restricted to the parameters that take part."""
        if not self.blocks:
            return g
        B = self.basis()[part]
        if self.name in ("FOPNG", "FOPNGPreFisher") and self.projection == "printed":
            eps = self.damping if self.gram_damping is None else self.gram_damping
            return prefisher_projection(B, F, eps) @ g
        return orthogonal_projection(B, F, 1e-6 if self.gram_damping is None else self.gram_damping) @ g

    def update(self, g: Tensor, part: Tensor) -> Tensor:
        eye = torch.eye(len(g), dtype=g.dtype)
        if self.name in ("SGD", *ELASTIC):
            return self.lr * g
        if self.name == "OGD":
            return self.lr * self.project(g, eye, part)
        if self.name in KRONECKER:
            return self.lr * (self.held_back(g, part) + self.pull()[part])
        if self.name in INPUTS:
            return self.lr * self.kept(g, part)
        F = self.damped_new(part)
        if self.name == "FNG":
            return trust_region(F, g, self.lr)
        return trust_region(F, self.project(g, eye if self.name == "ONG" else F, part), self.lr)

    def held_back(self, g: Tensor, part: Tensor) -> Tensor:
        """`(I + s F_old)^-1 g`, with F_old written out."""
        if not self.done:
            return g
        layers = {layer: (A, self.counted(G)) for layer, (A, G) in self.layers.items()}
        F = layerwise_fisher(self.model, layers, sum(self.weights))
        # NCL takes the sum over tasks, FOPNG-K the mean
        strength = self.strength if self.name == "NCL" else self.strength / self.done
        # of what moves, whatever else there is
        return torch.linalg.solve(damped(strength * F, 1.0)[part][:, part], g)

    def counted(self, G: Tensor) -> Tensor:
        """`(1 - e) G + e (tr G / o) I`."""
        return (1 - self.evenness) * G + self.evenness * G.trace() / len(G) * torch.eye(len(G), dtype=G.dtype)

    def reached(self, layers, squares) -> Tensor:
        """The parameters that are in one of these layers, or have a square."""
        inside = {id(p) for layer in layers for p in layer.parameters()}
        held = torch.cat([torch.full((p.numel(),), id(p) in inside) for p in trainable(self.model)])
        return held | (squares > 0)

    def pull(self) -> Tensor:
        """NCL's, to what old tasks have used: `(theta - theta*) / s`."""
        theta = flat_parameters(self.model)
        if self.name != "NCL" or not self.done:
            return torch.zeros_like(theta)
        return (theta - self.anchor) * self.reached(self.layers, sum(self.weights)) / self.strength

    def adam(self, g: Tensor, part: Tensor) -> Tensor:
        """Kingma and Ba, algorithm 1; a parameter counts the steps that it takes part in."""
        betas = (0.9, 0.999)
        self.count[part] += 1
        hats = []
        for moment, beta, value in zip(self.moments, betas, (g, g**2), strict=True):
            moment[part] = beta * moment[part] + (1 - beta) * value
            hats.append(moment[part] / (1 - beta ** self.count[part]))
        return self.lr * hats[0] / (hats[1].sqrt() + 1e-8)

    def step(self, loss: Tensor, without: Collection[int] = ()) -> None:
        """One step along the gradient of a loss of the model; parameters it does not reach take no part.

        Args:
            loss: of a batch.
            without: the numbers of more parameters that take none.
        """
        reached = torch.autograd.grad(loss, trainable(self.model), allow_unused=True)
        found = [None if k in without else g for k, g in enumerate(reached)]
        pairs = list(zip(trainable(self.model), found, strict=True))
        part = torch.cat([torch.full((p.numel(),), g is not None) for p, g in pairs])
        g = torch.cat([g.flatten() for g in found if g is not None])
        theta = flat_parameters(self.model)
        if self.first_steps:
            v = self.first_task * g
        else:
            if self.name in ELASTIC and self.anchor is not None:
                moving = theta.clone().requires_grad_()
                penalty = ewc_penalty(moving, self.anchor, sum(self.weights), self.strength)
                g = g + torch.autograd.grad(penalty, moving)[0][part]
            self.sum[part] = self.momentum * self.sum[part] + g
            g = self.sum[part]
            v = self.adam(g, part) if self.name == "Adam" else self.update(g, part)
        theta[part] -= v
        with_parameters(self.model, theta)
