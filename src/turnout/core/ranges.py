"""Types of options that have a range, which is checked when a piece is made, as are the values of a ``Literal``.

>>> from dataclasses import dataclass
>>> from turnout.core.other_names import ExplainsArguments
>>> @dataclass(frozen=True)
... class Momentum(ExplainsArguments):
...     beta: Decay = 0.9
>>> Momentum(beta=1.0)
Traceback (most recent call last):
...
turnout.core.checks.ConfigurationError: beta: got 1.0, needed a number >= 0 and < 1
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from turnout.core.checks import below_one, count, known_name, not_negative, positive, probability, share
from turnout.core.earlier_names import present

Count = Annotated[int, count]
"""An integer >= 1."""

Whole = Annotated[int, partial(count, least=0)]
"""An integer >= 0."""

Positive = Annotated[float, positive]
"""A finite number > 0."""

NotNegative = Annotated[float, not_negative]
"""A finite number >= 0."""

Probability = Annotated[float, probability]
"""A number in [0, 1]."""

Decay = Annotated[float, below_one]
"""A number in [0, 1)."""

Share = Annotated[float, share]
"""A number in (0, 1]."""


def check_ranges(piece: type, options: Mapping[str, Any]) -> None:
    """Check the values of options whose types have a range or are a ``Literal``, or None if that is an alternative.

    Raises:
        ConfigurationError: if a value is out of its range.
    """
    ranges = _ranges_of(piece)
    for name in ranges.keys() & options.keys():
        check, is_optional = ranges[name]
        if not (is_optional and options[name] is None):
            check(name, options[name])


@cache
def _ranges_of(piece: type) -> dict[str, tuple[Callable[[str, Any], object], bool]]:
    """Return the check of each option whose type has a range, and whether it may be None."""
    ranges = {}
    for owner in reversed(piece.__mro__):
        for name, hint in inspect.get_annotations(owner).items():
            members = _members(hint, owner)
            checks = [check for member in members if (check := _check_of(member, members)) is not None]
            if checks:
                ranges[name] = checks[0], NoneType in members
    return ranges


def _members(hint: Any, owner: type) -> tuple[Any, ...]:
    """Return the alternatives of an annotation of a class; none for a type that is imported only for type checkers."""
    if isinstance(hint, str):
        try:
            hint = eval(hint, vars(sys.modules[owner.__module__]))
        except (KeyError, NameError):
            return ()
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _check_of(member: Any, members: tuple[Any, ...]) -> Callable[[str, Any], object] | None:
    """Return the check of an alternative: its range, or its values if None is the only other alternative."""
    if get_origin(member) is Annotated:
        return get_args(member)[1]
    if get_origin(member) is Literal and {*members} <= {member, NoneType}:
        return lambda name, value: known_name(f"value of {name}", present(value), get_args(member))
    return None
