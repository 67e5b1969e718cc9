"""Families of methods that are not rivals: what a method may keep decides whom it is compared with."""

from enum import Enum
from typing import final

from fopng.optim.registry import METHODS


@final
class Family(Enum):
    """What methods keep of old tasks, in the words and in the order of a report."""

    WITHOUT_DATA = "Methods that keep no data of old tasks"
    WITH_DATA = "Methods that keep data of old tasks"
    REFERENCE = "References: all tasks learnt together"
    UNKNOWN = "Methods that this version does not know"

    @property
    def ranked(self) -> bool:
        """Whether its members are rivals; a reference is a bound that nobody is meant to beat."""
        return self is not Family.REFERENCE


def family_of(method: str) -> Family:
    """The family of a method, by what the catalogue says that it keeps.

    >>> family_of("fopng").name, family_of("joint").name
    ('WITHOUT_DATA', 'REFERENCE')
    """
    entry = METHODS.get(method)
    if entry is None:
        return Family.UNKNOWN
    if entry.joint:
        return Family.REFERENCE
    return Family.WITH_DATA if entry.about.keeps_data else Family.WITHOUT_DATA
