"""The state of a drop-in optimizer as it is saved, and what a state must be to be taken over."""

from typing import TYPE_CHECKING, Any

from fopng.core.tree import to_plain
from fopng.optim.placement import whole

if TYPE_CHECKING:
    from fopng.optim.optimizer import ContinualOptimizer


def saved(optimizer: "ContinualOptimizer") -> dict[str, Any]:
    """Everything that is not in the groups: what `torch.load(weights_only=True)` knows."""
    pipeline, first = optimizer.pipeline, optimizer._first_at_work
    trained = optimizer._trained
    return {
        "method": type(optimizer).__name__,
        "variant": optimizer.method.variant,
        "layout": {name: list(shape) for name, shape in optimizer.layout.shapes.items()},
        "state": to_plain(whole(pipeline.state, optimizer.communicator, trained.some.device)),
        "running": to_plain(pipeline.running),
        "kind": trained.blank_before.cpu(),
        "tasks_done": optimizer.tasks_done,
        "steps": optimizer.steps,
        "steps_before": optimizer._steps_before,
        "open": optimizer._open,
        "task": optimizer._task,
        "generator": optimizer.generator.get_state(),
        "first_task": None if first is None else first.state_dict(trained.names_by_id()),
    }


def checked(optimizer: "ContinualOptimizer", state_dict: dict[str, Any]) -> dict[str, Any]:
    """What `saved` gave; raises for a state of another method, or of other settings."""
    own: dict[str, Any] | None = state_dict.get("fopng")
    name, variant = type(optimizer).__name__, optimizer.method.variant
    if own is None:
        raise ValueError(f"Expected the state of a {name}, got one of a plain torch optimizer.")
    if own["method"] != name:
        raise ValueError(f"Expected the state of a {name}, got one of a {own['method']}.")
    if own["variant"] != variant:
        raise ValueError(f"Expected a state with {variant}, got one with {own['variant']}.")
    return own
