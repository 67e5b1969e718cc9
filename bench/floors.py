"""The least that a step of replicas must do, counted: operations, and bytes through the device's memory."""

from dataclasses import dataclass

from torch import nn

from fopng.lab.benchmarks.models import Network

FLOAT = 4


@dataclass(frozen=True)
class Floor:
    """Of all replicas together."""

    operations: float
    bytes: float

    def shares(self, seconds: float, ceilings: dict[str, float]) -> dict[str, float]:
        """The part of each measured ceiling that a step of so many seconds reaches."""
        bandwidth, arithmetic = ceilings.values()
        return {
            "share of the copy": self.bytes / bandwidth / seconds,
            "share of the product": self.operations / arithmetic / seconds,
        }


def floor_of(model: Network, places: dict[str, int], replicas: int, batch: int, directions: int) -> Floor:
    """Of SGD without stored directions, of FOPNG with some.

    Weights are read forward and backward, the gradient is written and read, the weights are read and written: six passes over
    p numbers. FOPNG reads the inverse Fisher and writes and reads a projected gradient, three more; the stored directions, two
    factors for a Linear layer and a dense gradient for a convolution, are read for `G^T g` and again for `G c`. What lies between
    the layers is not counted.

    Args:
        model: the network; its other tasks' heads do not count.
        places: how many places the output of each convolution has, by name.
        replicas: R.
        batch: samples a step.
        directions: m.
    """
    operations = numbers = stored = 0.0
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d) and n[:6] != "heads."]
    layers += [(n, m) for n, m in model.named_modules() if n == "heads.0"]
    for number, (name, layer) in enumerate(layers):
        weights = layer.weight.numel()
        passes = 3 if number else 2
        operations += passes * 2 * batch * weights * places.get(name, 1) + 4 * directions * weights
        numbers += weights + layer.weight.shape[0]
        stored += weights if isinstance(layer, nn.Conv2d) else sum(layer.weight.shape) + 1
    vectors = (9 if directions else 6) * numbers
    return Floor(replicas * operations, replicas * FLOAT * (vectors + 2 * directions * stored))
