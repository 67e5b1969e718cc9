"""Make an optimizer class from a method: its arguments are the method's settings and what every optimizer takes."""

from inspect import Parameter, Signature
from typing import Any

import torch
from torch import nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.memory.probe import ProbeKind
from fopng.optim.first_task import FirstTask
from fopng.optim.groups import Groups
from fopng.optim.method import Method
from fopng.optim.optimizer import ContinualOptimizer
from fopng.optim.settings import settings_of

MODEL = "the model to train."

RUNTIME: dict[str, tuple[Any, str]] = {
    "first_task": (FirstTask, "the optimizer that steps until the first `end_task`; {start}."),
    "predict": (
        Predict | None,
        "how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default. For a "
        "model with a head for each task, a `fopng.PredictTask`, which takes the task from the batch.",
    ),
    "likelihood": (
        Likelihood | None,
        "what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.",
    ),
    "groups": (Groups | None, "{groups}."),
    "probe": (
        ProbeKind,
        'what stands for old inputs, for `tolerance` and `rehearse`: None for what fits ("moments": numbers drawn from kept '
        'moments; "generated": texts that a causal language model writes), how many samples of each task to keep, a loader, '
        "or a function `draw(n) -> batch`.",
    ),
    "generator": (torch.Generator | None, "draws samples and labels; by default one seeded like torch's own."),
}
"""What every optimizer takes beside its settings: type and meaning; the default is None."""


def explanations_of(method: type[Method[Any, Any]]) -> dict[str, str]:
    """What each argument of a method's optimizer is."""
    needs = method().needs
    words = {
        "start": 'None for plain SGD at 1e-2, "own" for the method itself'
        if needs.plain_start
        else "None for the method itself",
        "groups": 'parameters listed apart, `[{"params": ...}]`; they must share one learning rate'
        if needs.one_rate
        else 'parameters with a learning rate of their own, `[{"params": ..., "lr": ...}]`',
    }
    own = {name: info.means for name, info in settings_of(method).items()}
    runtime = {
        name: means.format(**words) if name in ("first_task", "groups") else means
        for name, (_, means) in RUNTIME.items()
    }
    return {"model": MODEL, "lr": method.lr_means, **own, **runtime}


def signature_of(method: type[Method[Any, Any]]) -> Signature:
    """The arguments of a method's optimizer."""
    rate = Parameter.empty if method.default_lr is None else method.default_lr
    place, keyword = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    own = [
        Parameter(name, keyword, default=info.default, annotation=info.type)
        for name, info in settings_of(method).items()
    ]
    runtime = [Parameter(name, keyword, default=None, annotation=kind) for name, (kind, _) in RUNTIME.items()]
    given = [
        Parameter("model", place, annotation=nn.Module),
        Parameter("lr", place, default=rate, annotation=float),
    ]
    return Signature([*given, *own, *runtime])


def make_optimizer_class(method: type[Method[Any, Any]]) -> type[ContinualOptimizer]:
    """The optimizer class of a method."""
    signature = signature_of(method)

    def __init__(self: ContinualOptimizer, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        values = given.arguments
        chosen = method(**{name: values.pop(name) for name in settings_of(method)})
        ContinualOptimizer.__init__(self, values.pop("model"), values.pop("lr"), chosen, **values)

    __init__.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *signature.parameters.values()]
    )
    __init__.__annotations__ = {name: own.annotation for name, own in signature.parameters.items()} | {"return": None}
    lines = [f"    {name}: {means}" for name, means in explanations_of(method).items()]
    body = {
        "__init__": __init__,
        "__doc__": f"{method.__doc__}\n\nArgs:\n" + "\n".join(lines),
        "__module__": "fopng.optim.optimizers",
        "__signature__": signature,
    }
    return type(method.__name__, (ContinualOptimizer,), body)
