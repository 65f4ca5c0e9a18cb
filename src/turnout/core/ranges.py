"""Types of options that have a range, which is checked when a piece is made.

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
from typing import Annotated, Any, get_args, get_origin

from turnout.core.checks import count, decay, not_negative, positive, probability

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

Decay = Annotated[float, decay]
"""A number in [0, 1)."""


def check_ranges(piece: type, options: Mapping[str, Any]) -> None:
    """Check the values of options whose types have a range; None is accepted by a type such as ``Positive | None``.

    Raises:
        ConfigurationError: if a value is out of its range.
    """
    ranges = _ranges_of(piece)
    for name in ranges.keys() & options.keys():
        check, is_optional = ranges[name]
        if not (is_optional and options[name] is None):
            check(name, options[name])


@cache
def _ranges_of(piece: type) -> dict[str, tuple[Callable[[str, Any], None], bool]]:
    """Return the check of each option whose type has a range, and whether it may be None."""
    ranges = {}
    for owner in reversed(piece.__mro__):
        for name, hint in inspect.get_annotations(owner).items():
            members = _members(hint, owner)
            checks = [get_args(member)[1] for member in members if get_origin(member) is Annotated]
            if checks:
                ranges[name] = checks[0], type(None) in members
    return ranges


def _members(hint: Any, owner: type) -> tuple[Any, ...]:
    """Return the alternatives of an annotation of a class; none for a type that is imported only for type checkers."""
    if isinstance(hint, str):
        try:
            hint = eval(hint, vars(sys.modules[owner.__module__]))
        except (KeyError, NameError):
            return ()
    return (hint,) if get_origin(hint) is Annotated else (hint, *get_args(hint))
