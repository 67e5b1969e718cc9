"""Record each operation that a parameter reaches, and add a zero to what it returned.

The derivative of a score with respect to those zeros is the signal at each operation's output: one backward pass for a whole batch,
no hooks, nothing left on the model, whatever module or function makes the call, and it runs under `torch.func.vmap`.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from types import FunctionType
from typing import Any, TypeAlias, cast, final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fopng.core.batch import tensors_of
from fopng.gradients.operations import OPERATIONS, Operation, describe
from fopng.gradients.places import Place, Places
from fopng.gradients.rules import Rule, SharedLookupRule, SpreadRule
from fopng.gradients.unfused import UNFUSED


@dataclass(frozen=True)
class Site:
    """One use of parameters: its rule, and where they lie.

    Args:
        rule: the operation's.
        weight: what the rule calls so; None where that is no parameter to differentiate.
        bias: likewise.
    """

    rule: Rule
    weight: Place | None
    bias: Place | None

    @cached_property
    def places(self) -> tuple[Place | None, Place | None]:
        """Of weight and bias."""
        return self.weight, self.bias

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters in it, weight first."""
        return tuple(place.name for place in self.places if place is not None)


@dataclass(frozen=True)
class SiteCall:
    """One call of a site: what was recorded, and the zero that was added to its output.

    Args:
        site: what was called.
        record: what its rule wants of the inputs, `[*lead, ...]`.
        zero: `[*lead, ...]`, of the output's shape.
    """

    site: Site
    record: Tensor
    zero: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the call that have a part for each sample, inputs first."""
        return (self.record, self.zero) if self.site.rule.sampled else (self.zero,)


@final
class Inside:
    """A function is run step by step."""


@final
class Shared:
    """Rows of a table are looked up that are the same for all samples."""


Decision: TypeAlias = Site | type[Inside] | type[Shared] | None
"""What is done about a call; None where it is left alone."""


class Capture(TorchFunctionMode):
    """Sees every call of a torch function while the context lasts.

    Attributes:
        calls: of sites, in order.
        script: what was decided, call by call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[SiteCall] = []
        self.script: list[Decision] = []
        self._lookups: list[tuple[Tensor, Tensor, Any]] = []

    @abstractmethod
    def decide(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Decision:
        """What to do about a call."""

    @abstractmethod
    def zero(self, output: Tensor) -> Tensor:
        """What to add to an output."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in OPERATIONS and func not in UNFUSED and not isinstance(func, FunctionType):
            self.watch(args, kwargs)
            return func(*args, **kwargs)
        decision = self.decide(func, args, kwargs)
        self.script.append(decision)
        if decision is None:
            return func(*args, **kwargs)
        if decision is Inside:
            with cast(AbstractContextManager[object], self):
                return _inside(func)(*args, **kwargs)
        if isinstance(decision, Site):
            return self._record(decision, func, args, kwargs)
        output = func(*args, **kwargs)
        self.looked_up(output, args, kwargs)
        return output

    def watch(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Look at a call that is of no interest in itself."""

    def looked_up(self, output: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Keep which rows of a table were looked up, for when they are added to something."""
        rows: Tensor = kwargs["input"] if "input" in kwargs else args[0]
        self._lookups.append((output, rows, self._table(args, kwargs)))

    def _table(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return None

    def _record(self, site: Site, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
        if isinstance(site.rule, SharedLookupRule):
            record = self._rows_in(args)
        else:
            operation = describe(func, args, kwargs)
            assert operation is not None
            record = operation.record()
        output: Tensor = func(*args, **kwargs)
        zero = self.zero(output)
        self.calls.append(SiteCall(site, record.detach(), zero))
        return output + zero

    def _rows_in(self, args: Sequence[Any]) -> Tensor:
        found = [rows for output, rows, _ in self._lookups if any(output is own for own in args)]
        return found[0]


@final
class FirstCapture(Capture):
    """Finds the parameters in the calls of one replica, and decides.

    Args:
        places: the parameters to differentiate.
        shared: whether rows that are looked up are the same for all samples.

    Attributes:
        touched: the parameters that any call was given.
    """

    def __init__(self, places: Places, shared: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self._places, self._shared = places, shared
        self.touched: set[str] = set()

    def watch(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        for tensor in tensors_of((args, kwargs)):
            owner = self._places.owner(tensor)
            if owner is not None:
                self.touched.add(owner)

    def zero(self, output: Tensor) -> Tensor:
        return torch.zeros((), dtype=output.dtype, device=output.device, requires_grad=True).expand(output.shape)

    def decide(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Decision:
        self.watch(args, kwargs)
        operation = describe(func, args, kwargs) if func in OPERATIONS else None
        if operation is not None:
            return self._decide_operation(func, operation, args)
        if func in OPERATIONS or not any(map(self._places.owner, tensors_of((args, kwargs)))):
            return None
        return Inside

    def _decide_operation(self, func: Any, operation: Operation, args: Sequence[Any]) -> Decision:
        weight, bias = (None if t is None else self._places.find(t) for t in (operation.weight, operation.bias))
        rule = operation.rule
        if isinstance(rule, SpreadRule):
            return self._decide_spread(rule, operation, weight, args)
        if weight is None and bias is None:
            return None
        if func is F.embedding and self._shared(operation.record()):
            return Shared
        return Site(rule, weight, bias)

    def _decide_spread(
        self, rule: SpreadRule, operation: Operation, weight: Place | None, args: Sequence[Any]
    ) -> Decision:
        if weight is not None:
            other = [t for t in args if isinstance(t, Tensor) and t is not operation.weight]
            return None if any(map(self._places.owner, other)) else Site(rule, weight, None)
        for output, _, table in self._lookups:
            if output is operation.weight and not rule.times:
                return Site(SharedLookupRule(rule, table.shape[0], tuple(output.shape)), table, None)
        return None

    def _table(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._places.find(kwargs["weight"] if "weight" in kwargs else args[1])


@final
class ReplayedCapture(Capture):
    """Does for all replicas at once, under `vmap`, what was decided for the first.

    Args:
        script: that.
        zeros: what to add to the outputs, in order.
    """

    def __init__(self, script: Sequence[Decision], zeros: Sequence[Tensor]) -> None:
        super().__init__()
        self._decisions, self._zeros = iter(script), iter(zeros)

    def decide(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Decision:
        return next(self._decisions)

    def zero(self, output: Tensor) -> Tensor:
        return next(self._zeros)


@cache
def _inside(func: Any) -> Callable[..., Any]:
    """A function as written in Python, that does not ask torch's modes before it starts; or what a fused one is made of."""
    if func in UNFUSED:
        return UNFUSED[func]
    asks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names = {**func.__globals__, **dict.fromkeys(asks, lambda *_: False)}
    made = FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    made.__kwdefaults__ = func.__kwdefaults__
    return made
