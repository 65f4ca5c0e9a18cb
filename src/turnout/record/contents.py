"""Check the contents of files against declared types: anybody may have written the folder of a run that somebody sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turnout.core.checks import LARGEST_COUNT, CheckpointError, TurnoutError, check_plain, wrong_field

Whole = Annotated[int, Field(strict=True, ge=0, le=LARGEST_COUNT)]
"""A whole number from 0 on that arrays can hold."""

OF_VALUES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Errors of code that computes from values which nobody has checked."""

_DEPTH = 100  # of nested values; code that walks through them calls itself at each level


class Contents(BaseModel):
    """The values that readers need of a file. There may be others beside them."""

    model_config = ConfigDict(frozen=True)


class Name(Contents):
    """The description of a piece, a recipe or a data set by its name."""

    name: str


class DataSummary(Contents):
    """The description of the data of a run."""

    name: str | None = None
    num_clients: Whole | None = None
    num_examples: Whole | None = None
    num_classes: Whole | None = None


class RunConfig(Contents):
    """``config.json``: the experiment of a run as plain values."""

    algorithm: Name
    rounds: Whole
    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 64)]
    data: DataSummary | None = None


class Environment(Contents):
    """``environment.json``: what a run ran on."""

    turnout: str
    turnout_commit: str | None


Form = TypeVar("Form", bound=Contents)


def damaged(source: object, why: object, instead: str = "restore it from a copy, or run again") -> CheckpointError:
    """Return the error for a file that does not hold what it should.

    Args:
        source: the file.
        why: the field that is wrong, or what is wrong with the whole.
        instead: what to do.
    """
    return CheckpointError(f"{source} is damaged ({why}): {instead}")


def parse(text: bytes | str) -> dict[str, Any]:
    """Parse an object of JSON.

    Raises:
        ValueError: for what is none, is nested more than 100 levels deep, or holds text that no UTF-8 can.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    try:
        check_plain(value, _DEPTH)
    except ValueError as error:
        raise ValueError(f"it {error}") from None
    return value


def check(source: object, form: type[Form], values: Any) -> Form:
    """Check the plain values of a file.

    Args:
        source: the file, as errors name it.
        form: what it has to hold.
        values: what it holds.

    Raises:
        CheckpointError: with the first field that is missing or wrong.

    Example:
        >>> check("environment.json", Environment, {"turnout": "0.1.0", "turnout_commit": None, "threads": 2})
        Environment(turnout='0.1.0', turnout_commit=None)
    """
    try:
        return form.model_validate(values)
    except ValidationError as error:
        raise damaged(source, wrong_field(error, "the file")) from None


@contextmanager
def restoring(source: object, part: str) -> Iterator[None]:
    """Refuse a file whose values cannot be restored, though each is of its type: names that lack, numbers that do not fit.

    Only code that computes from these values alone belongs inside, because all its errors are taken for theirs.

    Args:
        source: the file, as errors name it.
        part: what is being restored.

    Raises:
        CheckpointError: with the part, in place of any other error.
    """
    try:
        yield
    except OF_VALUES as error:
        if isinstance(error, TurnoutError) and not isinstance(error, ValueError):  # it says what is wrong by itself
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        why = f"it lacks {lines[0]}" if isinstance(error, KeyError) else lines[0]
        raise damaged(source, f"{part}: {why}") from error
