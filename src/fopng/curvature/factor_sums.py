"""Sums over samples that become the two moments of every weight."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

import torch
from torch import Tensor

from fopng.curvature.factors import (
    WIDE,
    DiagonalFactor,
    Factor,
    LowRankFactor,
    added,
    leading,
    like,
    padded,
    scaled,
    size,
    streamed,
    trace,
)
from fopng.curvature.moments import LayerMoments
from fopng.curvature.sampling import SampleStream
from fopng.gradients.forms import Form
from fopng.gradients.layers import LayerGradients, Names
from fopng.gradients.uses import Use

FormKey: TypeAlias = tuple[int, bool, int]
Weight: TypeAlias = tuple[Names, FormKey]
"""A weight and its bias, and the fields of its form: plain values, which processes can exchange."""

Key: TypeAlias = tuple[Names, FormKey, str]


@final
@dataclass
class FactorSums:
    """What is added up over batches.

    Args:
        stream: the data, whose processes add theirs together.
    """

    stream: SampleStream

    def __post_init__(self) -> None:
        self._sums: dict[Key, Tensor] = {}
        self._wide: dict[Key, LowRankFactor] = {}
        self._squares: dict[str, Tensor] = {}
        self._reached: dict[Weight, tuple[Use, Tensor | None]] = {}

    def see(self, number: int, uses: list[Use], others: Mapping[Names, LayerGradients], n: int) -> None:
        """Add what one signal sends back.

        Args:
            number: of the signal.
            uses: weights with factors.
            others: the gradients of everything else.
            n: the number of samples.
        """
        if number == 0:
            self._reached = {}
        tied = _repeated([use.names[0] for use in uses])
        for use in uses:
            self._see_use(use, n, use.names[0] in tied)
        for name in tied:
            self._see_both([use for use in uses if use.names[0] == name])
        for names, own in others.items():
            for k, name in enumerate(names):
                form = matrix_form(own.shapes[k])
                if form is None:
                    self._add(self._squares, name, own.only([k]).sum_squares()[0])
                else:
                    self._see_matrices(name, form, form.matrices(own.rows(k), len(own.lead) + 1), len(own.lead))

    def end_batch(self) -> None:
        """Add the inputs of the batch: they are the same whatever is sent back, but where nothing is they do not count."""
        for weight, (use, mask) in self._reached.items():
            self._see_inputs(weight, use, mask)
        self._reached = {}

    def _see_use(self, use: Use, n: int, tied: bool) -> None:
        assert use.d is not None
        weight = _weight(use, tied)
        shared = not use.places and (use.positions > 1 or use.d.shape[use.lead] != n)
        rows = use.d.flatten(-3, -2)
        self._add_square(weight, "signals", rows, tied, use.positions if use.places else 1)
        if not use.places:
            self._add(self._sums, (*weight, "lengths"), use.squared_lengths())
        lead = rows.shape[: use.lead - (use.form.groups > 1)]
        self._add(self._sums, (*weight, "shared"), rows.new_full(lead, float(shared)))
        before = self._reached.get(weight, (use, None))[1]
        mask = use.signalled() if shared else None
        self._reached[weight] = use, mask if before is None or mask is None else before | mask

    def _see_both(self, uses: list[Use]) -> None:
        """Add twice the inner products of what a weight's two uses send back, as a table and in a product."""
        tables, products = [use for use in uses if use.words], [use for use in uses if not use.words]
        if len(tables) != 1 or len(products) != 1 or tables[0].a.shape[:-1] != products[0].a.shape[:-2]:
            return
        [table], [product] = tables, products
        assert table.d is not None
        assert product.d is not None
        rows = table.a.unsqueeze(-2).expand(*product.a.shape[:-1], table.positions)
        both = (product.a @ table.d.mT) * product.d.gather(-1, rows)
        self._add(self._sums, (*_weight(product, tied=True), "both"), 2 * both.flatten(product.lead).sum(-1))

    def _see_inputs(self, weight: Weight, use: Use, mask: Tensor | None) -> None:
        if use.words:
            ones = torch.ones_like(use.a) if mask is None else mask.to(use.a)
            counts = ones.new_zeros((*use.a.shape[: use.lead], use.words))
            counts = counts.scatter_add(-1, use.a.flatten(use.lead), ones.flatten(use.lead))
            assert use.d is not None
            self._add(self._sums, (*weight, "diagonal inputs"), counts.to(use.d.dtype))
            return
        rows = use.homogeneous().flatten(-3, -2)
        if mask is not None:
            rows = rows * mask.flatten(-2).unsqueeze(-1)
        self._add_square(weight, "inputs", rows, weight[1][2] < 0, 1)

    def _add_square(self, weight: Weight, side: str, rows: Tensor, tied: bool, divisor: int) -> None:
        """Add `R^T R / divisor` of `R [*lead, m, s]`: in full, or of a wide one the leading directions, or its diagonal."""
        if rows.shape[-1] <= WIDE:
            self._add(self._sums, (*weight, side), rows.mT @ rows / divisor if divisor > 1 else rows.mT @ rows)
        elif tied:
            self._add(self._sums, (*weight, f"diagonal {side}"), rows.square().sum(-2) / divisor)
        else:
            key = (*weight, side)
            self._wide[key] = streamed(rows / divisor**0.5, self._wide.get(key))

    def _see_matrices(self, name: str, form: Form, M: Tensor, lead: int) -> None:
        """Add the partial traces of gradients that are known as matrices alone, `[*lead, n, (groups,) o, i]`."""
        weight = (name,), _form_key(form)
        for side, own in (("signal traces", M), ("input traces", M.mT)):
            if own.shape[-2] <= WIDE:
                self._add(self._sums, (*weight, side), (own @ own.mT).sum(lead))
            else:
                self._add(self._sums, (*weight, f"diagonal {side}"), own.square().sum(-1).sum(lead))

    @staticmethod
    def _add(sums: dict, key: object, value: Tensor) -> None:  # type: ignore[type-arg]
        sums[key] = sums[key] + value if key in sums else value

    def layers(
        self, mean: Callable[[Mapping[Key, Tensor]], dict[Key, Tensor]], count: int
    ) -> dict[Names, LayerMoments]:
        """The moments of every weight, in the order in which they were met."""
        sums: dict[Key, Factor] = dict(mean(self._sums))
        for key, wide in self._gathered().items():
            sums[key] = scaled(wide, 1 / count)
        for key in list(sums):
            if key[2].startswith("diagonal "):
                sums[*key[:2], key[2].removeprefix("diagonal ")] = DiagonalFactor(like(sums.pop(key)))
        weights = list(dict.fromkeys(key[:2] for key in sums))
        both = {key[0][0]: sums.pop(key) for key in list(sums) if key[2] == "both"}
        parts: dict[str, list[tuple[Names, LayerMoments]]] = {}
        for weight in weights:
            own = {side: factor for (names, form, side), factor in sums.items() if (names, form) == weight}
            parts.setdefault(weight[0][0], []).append((weight[0], _moments(_form(weight[1]), own)))
        return dict(_together(own, both.get(name)) for name, own in parts.items())

    def _gathered(self) -> dict[Key, LowRankFactor]:
        """The wide factors of all processes together."""
        mine = [(key, own.rows, own.rest) for key, own in self._wide.items()]
        found: dict[Key, LowRankFactor] = {}
        for process in self.stream.gather_all(mine):
            for key, rows, rest in process:
                old = found.get(key)
                new = LowRankFactor(rows, rest)
                found[key] = new if old is None else leading(torch.cat([old.rows, rows], -2), old.rest + rest)
        return found

    def squares(self) -> dict[str, Tensor]:
        """The sums of squares of everything without factors."""
        return self._squares


def matrix_form(shape: torch.Size) -> Form | None:
    """How a parameter without factors of its own is read as a matrix; None for a vector."""
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if len(wide) < 2:
        return None
    if len(wide) == 3 == len(shape) and shape[0] == min(shape):
        return Form(groups=shape[0], split=2)
    return Form(split=wide[0] + 1)


def _form_key(form: Form) -> FormKey:
    return form.groups, form.transposed, form.split


def _form(key: FormKey) -> Form:
    return Form(key[0], key[1], abs(key[2]))


def _weight(use: Use, tied: bool) -> Weight:
    groups, transposed, split = _form_key(use.form)
    # the sums of a wide tied weight are diagonal: they are kept apart from what is not
    return use.names, (groups, transposed, -split if tied else split)


def _repeated(names: list[str]) -> set[str]:
    return {name for name in names if names.count(name) > 1}


def _moments(form: Form, own: Mapping[str, Factor]) -> LayerMoments:
    """The two moments of one use, from its sums."""
    if "input traces" in own:
        return _from_traces(form, own["input traces"], own["signal traces"])
    A, D = own["inputs"], own["signals"]
    shared, lengths = own["shared"], own.get("lengths")
    assert isinstance(shared, Tensor)
    if not isinstance(lengths, Tensor) or not bool((shared > 0).any()):
        return LayerMoments(A, D, form)
    plain = trace(A) * trace(D)
    plain = plain.sum(-1) if form.groups > 1 else plain
    return LayerMoments(A, scaled(D, _ratio(lengths, plain)), form)


def _from_traces(form: Form, A: Factor, G: Factor) -> LayerMoments:
    """From the partial traces of `E[g g^T]`: the product with the same, its inputs' mean eigenvalue 1."""
    whole = trace(A)
    i = (A if isinstance(A, Tensor) else A.values).shape[-1]
    total = whole.sum(-1, keepdim=True) if form.groups > 1 else whole
    return LayerMoments(scaled(A, i * _ratio(torch.ones_like(total), total)), scaled(G, _ratio(total, whole) / i), form)


def _ratio(over: Tensor, under: Tensor) -> Tensor:
    return torch.where(under > 0, over / under, 0.0)


def _together(uses: list[tuple[Names, LayerMoments]], both: Factor | None) -> tuple[Names, LayerMoments]:
    """The moments of a weight that is used in several ways: the sum of their Fishers' partial traces as one product.

    Args:
        uses: the moments of each use.
        both: what the trace has beside theirs, since gradients of a sample add up before they are squared.
    """
    if len(uses) == 1:
        return uses[0]
    uses = sorted(uses, key=lambda own: (own[1].form.transposed, -len(own[0])))
    names, first = uses[0]
    inputs, signals, total = first.inputs, first.signals, first.traces()
    A, G = scaled(inputs, _ratio(total, trace(inputs))), scaled(signals, _ratio(total, trace(signals)))
    for _, own in uses[1:]:
        sides = (own.inputs, own.signals)
        if own.form.transposed != first.form.transposed:
            sides = sides[::-1]
        new = own.traces()
        A = _joined(A, scaled(sides[0], _ratio(new, trace(sides[0]))))
        G = _joined(G, scaled(sides[1], _ratio(new, trace(sides[1]))))
        total = total + new
    natural = trace(inputs)
    exact = total if not isinstance(both, Tensor) else (total + both).clamp(min=0)
    signals = scaled(scaled(G, _ratio(exact, total)), _ratio(torch.ones_like(natural), natural))
    return names, LayerMoments(scaled(A, _ratio(natural, total)), signals, first.form)


def _joined(one: Factor, other: Factor) -> Factor:
    """The sum of two, of which one may have an input more, for the bias."""
    widest = max(size(one), size(other))
    return added(padded(one, widest - size(one)), padded(other, widest - size(other)))
