"""Public constructors and functions with arguments made at random; whatever they take, two tasks can be learnt with it."""

import math
import random
import warnings
from typing import Any, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import fopng
from chaos.tally import demand
from fopng.optim import METHOD_NAMES
from fopng.optim.settings import settings_of

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 7, 10**30, -0.0, 0.5, 1.0, 1e-3, 1e-300, 1e300, math.nan, math.inf, -math.inf),
    *("", "diagonal", "x", b"1", [], [1], (), (0.9, 0.999), (0.9,), {}, {"lr": 1}, object(), print, 1j),
    *(np.float32(0.1), np.int64(3), np.array([1.0, 2.0])),
)
"""Values that fit nowhere, or only where nobody would think of."""

REFUSALS = (ValueError, TypeError)
"""What a wrong argument may raise, with a sentence."""


def model(chance: random.Random) -> nn.Module:
    """A small model."""
    torch.manual_seed(chance.randrange(1000))
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def _batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(4, 4), torch.randint(3, (4,))) for _ in range(2)]


def optimizer(chance: random.Random, place: int) -> None:
    """A method with settings of which some may be wrong."""
    name = METHOD_NAMES[place % len(METHOD_NAMES)]
    kind = getattr(fopng, name)
    own = settings_of(type(kind(model(chance), 0.01).method))
    words: dict[str, Any] = {}
    for setting in chance.sample(list(own), min(len(own), chance.randint(1, 3))):
        words[setting] = _value(own[setting], chance)
    for other in ("first_task", "predict", "likelihood", "groups", "generator"):
        if chance.random() < 0.04:
            words[other] = chance.choice(HOSTILE)
    lr = chance.choice(HOSTILE) if chance.random() < 0.1 else 0.01
    subject = chance.choice(HOSTILE) if chance.random() < 0.02 else model(chance)
    made = _told(f"{name}({words}, lr={lr!r})", lambda: kind(subject, lr, **words))
    if made is not None:
        _told(f"two tasks with {name}({words}, lr={lr!r})", lambda: _learn(made, subject))


def _value(info: Any, chance: random.Random) -> Any:
    if chance.random() < 0.4:
        return chance.choice(HOSTILE)
    if info.choices:
        return chance.choice(info.choices)
    kinds = (info.type, *get_args(info.type))
    return chance.choice(
        [1, 2, 5, 100] if int in kinds else [True, False] if bool in kinds else [0.0, 0.1, 0.9, 1.0, 10.0]
    )


def _told(what: str, act: Any) -> Any:
    """What an act gives; None where it was refused with a sentence. Any other error goes through, with its act."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return act()
        except REFUSALS as error:
            demand("Expected" in str(error), f"{what}: {type(error).__name__}: {error}")
        except (FloatingPointError, MemoryError):
            return None  # numbers that are no longer finite; a size beyond any memory
        except Exception as error:
            demand(False, f"{what}: {type(error).__name__}: {error}")
    return None


def _learn(made: Any, subject: nn.Module) -> None:
    for task in range(2):
        batches = _batches()
        made.begin_task(task)
        made.refresh(batches)
        for x, y in batches:
            made.zero_grad()
            F.cross_entropy(subject(x), y).backward()
            made.step()
        made.end_task(batches)


def calls(chance: random.Random, place: int) -> None:
    """Calls of an optimizer in any order, with anything."""
    name = METHOD_NAMES[place % len(METHOD_NAMES)]
    subject = model(chance)
    made = getattr(fopng, name)(subject, 0.01)
    said = []
    for _ in range(chance.randint(2, 6)):
        call = chance.choice(
            ("begin_task", "refresh", "end_task", "step", "load_state_dict", "diagnose", "adopt_parameters")
        )
        given = _given(call, chance, made)
        said.append(f"{call}({', '.join(repr(each)[:40] for each in given)})")
        try:
            _called(f"{name}: {'; '.join(said)}", lambda call=call, given=given: getattr(made, call)(*given))
        except FloatingPointError:
            return


def _called(what: str, act: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            act()
        except (ValueError, TypeError, RuntimeError) as error:
            told = ("Expected", "Call ", "has not been ended", "has been ended")
            demand(any(words in str(error) for words in told), f"{what}: {type(error).__name__}: {error}")
        except Exception as error:
            demand(False, f"{what}: {type(error).__name__}: {error}")


def _given(call: str, chance: random.Random, made: Any) -> list[Any]:
    if call in ("refresh", "end_task"):
        return [_batches() if chance.random() < 0.6 else chance.choice((None, [], 3, [1], [(1, 2)], iter([]), {}, "x"))]
    if call == "begin_task":
        return [] if chance.random() < 0.3 else [chance.choice((0, 1, "a", None, 1.5, [], object()))]
    if call == "load_state_dict":
        return [spoilt(made.state_dict(), chance) if chance.random() < 0.8 else chance.choice((None, {}, [], 3))]
    return []


def spoilt(state: Any, chance: random.Random) -> Any:
    """A state with a member that is gone, or is something else; mostly somewhere deep."""
    if isinstance(state, dict) and state and chance.random() < 0.85:
        key = chance.choice(list(state))
        kept = dict(state)
        if chance.random() < 0.15:
            del kept[key]
        else:
            kept[key] = spoilt(state[key], chance)
        return kept
    if isinstance(state, list) and state and chance.random() < 0.8:
        kept_list = list(state)
        at = chance.randrange(len(kept_list))
        kept_list[at] = spoilt(kept_list[at], chance)
        return kept_list
    return chance.choice(
        (None, 0, -1, "x", [], {}, 1.5, torch.zeros(2), torch.full((3,), math.nan), {"node": "Vector"})
    )


KINDS = {"constructors of methods, and two tasks": optimizer, "calls in any order, states included": calls}
"""Each kind and its case."""
