"""The torch optimizer that trains the first task, before there is anything to forget."""

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, Literal, TypeAlias, final

import torch
from torch import nn

from fopng.optim.settings import require

FirstTask: TypeAlias = torch.optim.Optimizer | Literal["own"] | None
"""What trains the first task: an optimizer, the method itself ("own"), or the method's default (None)."""

FIRST_TASK_LR = 1e-2
"""The learning rate of the plain SGD that trains the first task by default."""


@final
class FirstOptimizer:
    """An optimizer whose state is kept by the names of the parameters: the model may have more of them later.

    Args:
        optimizer: anyone's torch optimizer.
        ours: whether it is the default, whose rates follow the schedulers of the optimizer around it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, *, ours: bool = False) -> None:
        self.optimizer, self._ours = optimizer, ours

    @classmethod
    def choose(
        cls, first: FirstTask, groups: Sequence[Mapping[str, Any]], own_start: bool, model: nn.Module
    ) -> "FirstOptimizer | None":
        """Turn the setting into an optimizer; None where the method itself starts.

        Args:
            first: the setting.
            groups: those of the optimizer around it.
            own_start: whether the method itself starts unless something else is asked for.
            model: the model.
        """
        if (first is None and own_start) or (isinstance(first, str) and first == "own"):
            return None
        if first is None:
            return cls(
                torch.optim.SGD([{"params": list(own["params"])} for own in groups], lr=FIRST_TASK_LR), ours=True
            )
        if not isinstance(first, torch.optim.Optimizer):
            raise TypeError(f"Expected first_task to be a torch optimizer, 'own' or None, got {first!r}.")
        _check_trains(first, model)
        return cls(first)

    @property
    def kind(self) -> str:
        """The name of its class."""
        return type(self.optimizer).__name__

    def follow_schedule(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Scale the default's rates as schedulers have scaled those of the optimizer around it; one's own has its own schedulers.

        Args:
            groups: those of the optimizer around it.
        """
        if self._ours:
            for own, group in zip(self.optimizer.param_groups, groups, strict=False):
                if group.get("initial_lr"):
                    own["lr"] = FIRST_TASK_LR * group["lr"] / group["initial_lr"]

    def add(self, parameters: Sequence[nn.Parameter]) -> None:
        """Train these, too."""
        held = self.held
        self.optimizer.param_groups[0]["params"].extend(p for p in parameters if id(p) not in held)

    @property
    def held(self) -> set[int]:
        """The `id` of each parameter that it trains."""
        return {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}

    def state_dict(self, names: dict[int, str]) -> dict[str, Any]:
        """Its state, with the names of its parameters.

        Args:
            names: the model's parameters, by `id`.
        """
        return {"kind": self.kind, "names": self._names(names), "state": self.optimizer.state_dict()}

    def load_state_dict(self, saved: dict[str, Any], names: dict[int, str]) -> None:
        """Take a state over, parameter by parameter; `ValueError` for a damaged one, and then nothing has changed."""
        try:
            self._load(saved, names)
        except (KeyError, TypeError, AttributeError, IndexError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"Expected the state of a first_task of the kind {self.kind}, got another: {error}"
            ) from error

    def _load(self, saved: dict[str, Any], names: dict[int, str]) -> None:
        groups, own = saved["state"]["param_groups"], self._names(names)
        require(
            len(groups) == len(own),
            f"Expected a state whose first_task has {len(own)} parameter groups, got {len(groups)}.",
        )
        made, fresh = [], sum(len(group["params"]) for group in groups)
        for group, old, new in zip(groups, saved["names"], own, strict=True):
            numbers = dict(zip(old, group["params"], strict=True))
            made.append({**group, "params": [numbers.get(name, fresh + k) for k, name in enumerate(new)]})
            fresh += len(new)
        self.optimizer.load_state_dict({**saved["state"], "param_groups": made})

    def _names(self, names: dict[int, str]) -> list[list[str]]:
        """Group by group; a parameter that is not the model's goes by its number."""
        groups = [group["params"] for group in self.optimizer.param_groups]
        return [[names.get(id(p), str(k)) for k, p in enumerate(group)] for group in groups]


def _check_trains(first: torch.optim.Optimizer, model: nn.Module) -> None:
    """Raise where an optimizer would train nothing here, or cannot be stepped as the others are."""
    own = {id(parameter) for parameter in model.parameters()}
    if not any(id(parameter) in own for group in first.param_groups for parameter in group["params"]):
        raise ValueError(
            "Expected first_task to train this model, got an optimizer of other parameters. Make it from the parameters of the "
            "model that is passed here."
        )
    closure = signature(first.step).parameters.get("closure")
    if closure is not None and closure.default is Parameter.empty:
        raise TypeError(
            f"Expected a first_task that takes a step from the gradients alone, got {type(first).__name__}, which needs a closure."
        )


def check_first(own: FirstOptimizer | None, saved: dict[str, Any] | None) -> None:
    """Raise where a state was saved while another optimizer trained the first task."""
    expected, found = "'own'" if own is None else own.kind, "'own'" if saved is None else saved.get("kind")
    require(found == expected, f"Expected a state whose first_task is {expected}, got {found}. Pass the same one.")
