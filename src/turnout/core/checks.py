"""Check values of users: an error states the value, the requirement and, if possible, what to write instead."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class TurnoutError(Exception):
    """Base class of all errors of this package, with messages for users."""


class ConfigurationError(TurnoutError, ValueError):
    """An invalid value or combination of pieces."""


class DataError(TurnoutError, ValueError):
    """Data that are missing, damaged or inconsistent."""


class CheckpointError(TurnoutError, RuntimeError):
    """A checkpoint that is missing, damaged or of another run."""


class Diverged(TurnoutError, ArithmeticError):
    """Training in which several consecutive steps had no finite update."""


class BudgetSpent(TurnoutError, RuntimeError):
    """A step that would exceed the privacy budget of the run."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``"1 round"``, ``"2 rounds"``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def refuse(what: str, *, given: Any, needed: str, instead: str = "") -> ConfigurationError:
    """Return the error for an invalid value: ``raise refuse("cutoff", given=0, needed="a whole number >= 1, or None")``."""
    message = f"{what}: got {shown(given)}, needed {needed}"
    return ConfigurationError(message + (f". {instead}" if instead else ""))


def shown(value: Any) -> str:
    """Return the text of a value for messages: its `repr`, in at most 300 characters.

    >>> shown(0.5), shown("x"), shown(10**400)
    ('0.5', "'x'", 'a number of about 400 digits')
    """
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of about {round(value.bit_length() * math.log10(2))} digits"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # deeply nested values, or integers of thousands of digits
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= 300 else f"{text[:297]}..."


def wrong_field(error: ValidationError, whole: str) -> str:
    """Format the first error of pydantic: the field, and its value if it has one.

    Args:
        error: the error of pydantic.
        whole: the name of the object, for errors that concern no single field.
    """
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or whole
    if first["type"] == "missing":
        return f"{where} is missing"
    wrong = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("dict_type", "model_type", "model_attributes_type"):
        wrong = "needed an object"
    return f"{where} is {shown(first['input'])[:80]}: {wrong[0].lower()}{wrong[1:]}"


def check_plain(value: Any, depth: int) -> None:
    """Check that parsed JSON is nested at most `depth` levels deep, and that UTF-8 can encode its strings.

    Raises:
        ValueError: if either fails.
    """
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("holds half of a surrogate pair")
    elif isinstance(value, dict | list):
        if depth == 0:
            raise ValueError("is nested too deeply")
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            check_plain(inner, depth - 1)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the most similar known name, or a list of the known names."""
    names = sorted(set(known))
    listed = f"known: {', '.join(names)}"
    close = min(names, key=lambda other: _dissimilarity(name, other), default="")
    return f"did you mean {close!r}? ({listed})" if close and _dissimilarity(name, close) <= 0.5 else listed


def _dissimilarity(name: str, known: str) -> float:
    """Return the edit distance of a name to a known one, or to its beginning or last words, over the number of letters."""
    words = known.split("_")
    parts = [known[: len(name)], *("_".join(words[i:]) for i in range(1, len(words)))]
    whole = _distance(name, known) / max(len(name), len(known), 1)
    return min([whole, *((_distance(name, part) + 1) / max(len(name), len(part), 1) for part in parts)])


def _distance(one: str, other: str) -> int:
    """Return the optimal string alignment distance: insertions, deletions, substitutions and transpositions of letters.

    By Wagner and Fischer's table: ``fedua`` is 1 from ``fedau``, 2 from ``fednu``.
    """
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        last, before, row = before, row, [i]
        for j, wanted in enumerate(other, start=1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and (letter, one[i - 2]) == (other[j - 2], wanted):
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]


def known_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is one of `known`; otherwise raise an error that suggests the most similar one.

    Args:
        kind: what it names, a noun: ``"algorithm"``, or ``"value of sampling"`` for an option.
        name: the name, or another plain value.
        known: the known ones.

    >>> known_name("value of sampling", "pas", ("pass", "fresh"))
    Traceback (most recent call last):
    ...
    turnout.core.checks.ConfigurationError: unknown value of sampling 'pas': did you mean 'pass'? (known: fresh, pass)
    """
    names = list(known)
    # Arrays and tensors are not compared, because the result is not one truth value.
    if isinstance(name, str | Real) and name in names:
        return name
    are_texts = all(isinstance(text, str) for text in (name, *names))
    hint = nearest(name, names) if are_texts else f"known: {', '.join(map(str, names))}"
    raise ConfigurationError(f"unknown {kind} {shown(name)}: {hint}")


def read_number(text: str) -> int | float | None:
    """Parse an int or a float; None for other texts."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return None


def is_finite(value: Any) -> bool:
    """Return True for an int or float, not a bool, within the range of floats."""
    # Not math.isfinite, which raises for integers beyond the range of floats.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def in_range(needed: str, holds: Callable[[float], bool], instead: str = "") -> Callable[[str, float], None]:
    """Return a check that a named number is finite and in a range.

    Args:
        needed: the range, for the message.
        holds: function that returns whether a finite number is in the range.
        instead: what to write instead, for the message.
    """

    def check(name: str, value: float) -> None:
        if not is_finite(value) or not holds(value):
            raise refuse(name, given=value, needed=needed, instead=instead)

    return check


positive = in_range("a finite number > 0", lambda value: value > 0)
"""Check that a number is finite and > 0."""

not_negative = in_range("a finite number >= 0", lambda value: value >= 0)
"""Check that a number is finite and >= 0."""

probability = in_range("a probability, 0 <= value <= 1", lambda value: 0 <= value <= 1)
"""Check that a number is in [0, 1]."""

below_one = in_range("a number >= 0 and < 1", lambda value: 0 <= value < 1)
"""Check that a number lies in [0, 1), such as the decay of a moving average, or a part of the examples."""

share = in_range("a number > 0 and <= 1", lambda value: 0 < value <= 1)
"""Check that a number lies in (0, 1]."""

LARGEST_COUNT = 2**63 - 1
"""The largest integer of int64 arrays."""


def count(name: str, value: int, *, least: int = 1, most: int = LARGEST_COUNT, instead: str = "") -> None:
    """Check that a value is an integer of at least `least` and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise refuse(name, given=value, needed=f"a whole number >= {least}", instead=instead)
    if value > most:
        raise refuse(name, given=value, needed=f"a whole number of at most {most}", instead=instead)


def check_seed(seed: int) -> None:
    """Check a seed. Keys of random numbers have 64 bits, so that a larger seed would repeat a smaller one."""
    count("seed", seed, least=0, most=2**64 - 1)
