"""A memory of gradients whose directions are spread over the processes of a run: each holds m / W of them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import final

import torch
from torch import Tensor

from fopng.core.batch import NotFinite
from fopng.core.layout import ParamLayout
from fopng.gradients.layers import LayerGradients, SampleGradients
from fopng.gradients.segments import Names
from fopng.gradients.sharded_gram import in_order, joined, spread_gram
from fopng.gradients.stored import Pieces, StoredGradients, apart
from fopng.memory.gradients import GradientMemory
from fopng.parallel.collectives import Peers


def new_memory(layout: ParamLayout, *, capacity: int | None, peers: Peers) -> StoredGradients:
    """A memory with nothing in it, for one process or for several."""
    if peers.count == 1:
        return GradientMemory(layout, capacity=capacity)
    return SpreadMemory(layout, capacity=capacity, peers=peers)


@final
class SpreadMemory(StoredGradients):
    """`G` by parts: `G^T x` takes a sum of m numbers over the processes, `G c` one of p.

    Gradients that are appended say which of the task's they are (`SampleGradients.rows`). All that computes or changes something
    must be called in every process.

    Args:
        layout: the flat order of the parameters.
        capacity: the most directions kept, of all processes together; None for no limit.
        peers: the processes.
    """

    def __init__(self, layout: ParamLayout, *, capacity: int | None, peers: Peers) -> None:
        super().__init__(layout, capacity)
        self.peers = peers
        self._local = GradientMemory(layout)
        self._owned: list[list[int]] = [[] for _ in range(peers.count)]
        self._reached: list[Names] = []
        self._latest: frozenset[str] = frozenset()
        self._like = torch.empty(0)
        self._places: Tensor | None = None

    def _view(self, local: GradientMemory, reached: list[Names]) -> "SpreadMemory":
        view = SpreadMemory(self.layout, capacity=None, peers=self.peers)
        view._local, view._reached, view._like = local, reached, self._like
        if reached:
            view.shares, view._owned = self.shares, self._owned
        return view

    @property
    def own(self) -> list[int]:
        """The numbers of the directions that this process holds."""
        return self._owned[self.peers.number]

    @property
    def nbytes(self) -> int:
        return self._local.nbytes

    @property
    def layers(self) -> tuple[Names, ...]:
        return tuple(self._reached)

    @property
    def weighted(self) -> bool:
        return not self.peers.everywhere(not self._local.weighted)

    @property
    def latest(self) -> frozenset[str]:
        return self._latest

    @property
    def terms(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for own in self.peers.gather(self._local.terms):
            for name, terms in own.items():
                found[name] = max(terms, found.get(name, terms)) if terms and found.get(name, 1) else 0
        return found

    @property
    def like(self) -> Tensor:
        return self._like

    def empty(self, layout: ParamLayout) -> "SpreadMemory":
        return SpreadMemory(layout, capacity=self.capacity, peers=self.peers)

    def turns(self, count: int) -> range:
        return self.peers.turns(count)

    def append(self, *gradients: SampleGradients, weight: Tensor | None = None) -> None:
        self.check_room()
        self._check_together(gradients, weight)
        self._store(gradients, weight)
        names = list(dict.fromkeys(names for block in gradients for names in block.layers))
        dealt, reached = zip(*self.peers.gather(([row for g in gradients for row in g.rows], names)), strict=True)
        start = self.count
        self._places = None
        self._owned = [own + [start + row for row in rows] for own, rows in zip(self._owned, dealt, strict=True)]
        new = {layer for own in reached for layer in own}
        self._latest = frozenset(name for layer in new for name in layer)
        self._reach({*self._reached, *new})
        self.shares.append(sum(map(len, dealt)))
        keep = self.thinned()
        if keep is not None:
            self._keep(keep)

    def _store(self, gradients: Sequence[SampleGradients], weight: Tensor | None) -> None:
        some = next(iter(gradients[0].layers.values()))
        self._like = next(iter(some.tensors().values())).new_empty(0)
        blocks = [block for block in gradients if block.count]
        if blocks:
            self._local.append(*blocks, weight=weight)

    def _check_together(self, gradients: Sequence[SampleGradients], weight: Tensor | None) -> None:
        """Raise everywhere for what cannot be appended anywhere: the others would wait for ever."""
        if any(len(block.rows) != block.count for block in gradients):
            raise ValueError("Expected gradients that say which of the task's they are, got some that do not.")
        problem = ""
        try:
            self._local.check(gradients, weight)
        except NotFinite as failure:
            problem = str(failure)
        problems = [each for each in self.peers.gather(problem) if each]
        if problems:
            raise NotFinite(problems[0])

    def _reach(self, layers: Collection[Names]) -> None:
        self._reached = sorted(layers, key=lambda names: (self.layout.span(names).start, names))

    def _keep(self, rows: list[int]) -> None:
        """Keep some of all directions, by their numbers."""
        self._places = None
        new = {old: number for number, old in enumerate(rows)}
        self._local.select([k for k, row in enumerate(self.own) if row in new])
        self._owned = [[new[row] for row in own if row in new] for own in self._owned]

    def rmatvec(self, x: Tensor) -> Tensor:
        out = x.new_zeros(*x.shape[:-1], self.count)
        out[..., self._index(x)] = self._local.rmatvec(x)
        return self.peers.sum(out)

    def matvec(self, c: Tensor) -> Tensor:
        return self.peers.sum(self._local.matvec(c[..., self._index(c)]))

    def _index(self, like: Tensor) -> Tensor:
        """The numbers of the directions here, where they are needed: twice a step, so they stay there."""
        if self._places is None or self._places.device != like.device:
            self._places = torch.tensor(self.own, dtype=torch.int64, device=like.device)
        return self._places

    def gram(self, weights: Tensor | None) -> Tensor:
        root = None if weights is None else weights.sqrt()

        def slab(columns: slice) -> Tensor:
            dense = self._slab(columns)
            return dense if root is None else dense.mul_(root[columns])

        return spread_gram(slab, self.size, self._owned, self.peers)

    def _slab(self, columns: slice) -> Tensor:
        held = len(self._local.layers) > 0
        return self._local.slab(columns) if held else self._like.new_zeros(len(self.own), columns.stop - columns.start)

    def dense(self) -> Tensor:
        return in_order(torch.cat(self.peers.gather(self._slab(slice(0, self.size)))), self._owned, 0)

    def only(self, names: Collection[str]) -> "SpreadMemory":
        reached = [layer for layer in self._reached if any(name in names for name in layer)]
        local = self._local.only(names)
        local.shares = self._local.shares
        return self._view(local, reached)

    def mapped(self, change: Callable[[Names, LayerGradients], LayerGradients]) -> "SpreadMemory":
        return self._view(self._local.mapped(change), self._reached)

    def blocks(self) -> Iterator[tuple[Names, Pieces]]:
        pieces = dict(self._local.blocks())
        for names in self._reached:
            own = [(self.own[rows], g.tensors(), weight) for rows, g, weight in pieces.get(names, [])]
            span = self.layout.span(names)
            found = [piece for each in self.peers.gather(own) for piece in each]
            segments = joined(found, span.stop - span.start, self.shares)
            yield names, [(segment.rows, segment.gradients, segment.weight) for segment in segments]

    def saved(self, tensor: Tensor) -> Tensor:
        # all directions together may be more than the device can hold
        return tensor.cpu()

    def relayout(self, layout: ParamLayout) -> None:
        self._local.relayout(layout)
        self.layout = layout
        self._reach({part for names in self._reached for part in apart(names, layout)})

    def load_state_dict(self, state: dict[str, Tensor], like: Tensor | None = None) -> None:
        whole = GradientMemory(self.layout)
        whole.load_state_dict(state)
        self.shares, self.dropped = whole.shares, whole.dropped
        self.error = whole.error if whole.error is None or like is None else whole.error.to(like)
        self._reach(whole.layers)
        starts = [sum(self.shares[:task]) for task in range(len(self.shares))]
        dealt = [
            (start + k, k % self.peers.count) for start, n in zip(starts, self.shares, strict=True) for k in range(n)
        ]
        self._owned = [[row for row, process in dealt if process == own] for own in range(self.peers.count)]
        self._like = whole.like.new_empty(0) if whole.layers else self._like
        self._local = whole
        self._local.select(self.own)
        if like is not None:
            self._local.load_state_dict(self._local.state_dict(), like)
            self._like = self._like.to(like)
