"""Plain stochastic gradient descent, with the life cycle of the others."""

from typing import ClassVar, final

from fopng.optim.method import About, Method, Needs, Running, State
from fopng.optim.settings import settings


@final
@settings
class SGD(Method[State, Running]):
    """Plain stochastic gradient descent, `v = eta g`: nothing is kept of old tasks."""

    about: ClassVar[About] = About("sgd", "Stochastic gradient descent", 1951, "Robbins, Monro", "nothing")

    @property
    def needs(self) -> Needs:
        return Needs(data=False)
