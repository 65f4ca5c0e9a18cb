"""Validate the contents of files of runs.

The folder of a run may come from somebody else, so its files are untrusted input: each reader checks the types of
their values, and errors name the file and the field.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turnout.core.checks import LARGEST_COUNT, CheckpointError, TurnoutError, check_plain, wrong_field
from turnout.core.earlier_names import with_present_names
from turnout.core.system import BINARY, check_path, too_long

Whole = Annotated[int, Field(strict=True, ge=0, le=LARGEST_COUNT)]
"""A non-negative integer within the range of an array's size."""
Text = Annotated[str, Field(strict=True)]
"""A string; bytes are not converted."""
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number."""

VALUE_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""The exceptions that code raises when it computes from unchecked values."""

_DEPTH = 100  # levels of nesting; functions that traverse the values recurse once per level

_LARGE = 1 << 30  # bytes of a file that takes seconds to read
_MOST_TEXT = 1 << 28  # bytes of a file of text


class Contents(BaseModel):
    """The fields of a file that its readers need. Other fields are ignored."""

    model_config = ConfigDict(frozen=True)


class Name(Contents):
    """The name in the description of a piece, a recipe or a data set."""

    name: str


class DataSummary(Contents):
    """The description of the data of a run."""

    name: str | None = None
    num_clients: Whole | None = None
    num_examples: Whole | None = None
    num_classes: Whole | None = None


class RunConfig(Contents):
    """``config.json``: the configuration of the experiment."""

    algorithm: Name
    rounds: Whole
    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 64)]
    data: DataSummary | None = None


class Environment(Contents):
    """``environment.json``: the versions of software that the run used."""

    turnout: str
    turnout_commit: str | None
    sources: dict[str, str] | None = None


Form = TypeVar("Form", bound=Contents)


_REMEDY = "restore it from a copy, or run again"


class Unreadable(CheckpointError):
    """The system cannot read a file now, which says nothing of its contents."""

    @classmethod
    def of(cls, source: object, error: OSError) -> Unreadable:
        """Create the error for a file and the error of the system."""
        return cls(f"{source} cannot be read ({error.strerror}): check the disk and the permissions, and try again")


def damaged(source: object, why: object, instead: str = _REMEDY) -> CheckpointError:
    """Create the error for a file with invalid contents, or for one that cannot be read.

    Args:
        source: the file.
        why: the invalid field, the defect of the file as a whole, or the error of reading it.
        instead: the remedy that the message suggests.
    """
    if isinstance(why, OSError) and why.errno:
        return Unreadable.of(source, why)
    return CheckpointError(f"{source} is damaged ({why}): {instead}")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Convert errors of the system to one that names the file; that of a missing file is left as it is.

    Raises:
        Unreadable: if the file cannot be read.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable.of(path, error) from error


@contextmanager
def writable(paths: Iterable[Path]) -> Iterator[None]:
    """Convert errors of the system to an error that names the files.

    Raises:
        ConfigurationError: if the system does not accept a path.
        CheckpointError: if files cannot be written.
    """
    paths = list(paths)
    for path in paths:
        check_path(path)
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # of a temporary file, whose name is longer
            raise too_long(max(paths, key=lambda path: len(path.name))) from error
        names = ", ".join(str(path) for path in paths)
        raise CheckpointError(
            f"cannot write {names}: {error}. The previous files are unchanged: free some space or give another folder"
        ) from error


def check_regular(path: Path) -> None:
    """Check that an existing path leads to a regular file. Reading a pipe or a device could take forever, or all memory.

    Raises:
        CheckpointError: if it does not.
    """
    if path.exists() and (why := _irregular(path.stat())) is not None:
        raise damaged(path, why)


def _irregular(facts: os.stat_result) -> str | None:
    """Return why a file is not read, from what the system says of it; None where it is a regular file with content."""
    if not stat.S_ISREG(facts.st_mode):
        return "it is not a regular file"
    stored = getattr(facts, "st_blocks", None)  # of 512 bytes; Windows has none
    if facts.st_size > _LARGE and stored is not None and 512 * stored < facts.st_size / 1000:
        return f"nearly all of its {facts.st_size:,} bytes are a hole"
    return None


class Irregular(CheckpointError):
    """Report a pipe, a device, a folder or a hole in place of a file."""


def open_regular(path: Path) -> BufferedReader:
    """Open a file of a folder that may come from somebody else. What is no regular file is neither waited for nor read.

    Raises:
        Irregular: if it is a pipe, a device or a folder, a link to one, or a large file without content.
        FileNotFoundError: if there is no such file.
        OSError: if it cannot be opened.
    """
    number = os.open(path, os.O_RDONLY | BINARY | getattr(os, "O_NONBLOCK", 0))
    if (why := _irregular(os.fstat(number))) is not None:
        os.close(number)
        raise Irregular(str(damaged(path, why)))
    return os.fdopen(number, "rb")


def read_text(path: Path) -> bytes:
    """Read a file of text as `open_regular` opens it.

    Raises:
        CheckpointError: if it has more bytes than any that a run writes.
        FileNotFoundError, OSError: see `open_regular`.
    """
    with open_regular(path) as file:
        text = file.read(_MOST_TEXT + 1)
    if len(text) > _MOST_TEXT:
        raise damaged(path, f"it has more than {_MOST_TEXT:,} bytes")
    return text


def parse(text: bytes | str) -> dict[str, Any]:
    """Parse a JSON object. Names of earlier versions are replaced.

    Raises:
        ValueError: if a text is not a JSON object, is nested more than 100 levels deep, or contains strings which UTF-8
            cannot encode.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    try:
        check_plain(value, _DEPTH)
    except ValueError as error:
        raise ValueError(f"it {error}") from None
    return with_present_names(value)


def check(source: object, form: type[Form], values: Any) -> Form:
    """Validate the values of a file against a form.

    Args:
        source: the name of the file in error messages.
        form: the required fields and their types.
        values: the parsed contents of the file.

    Raises:
        CheckpointError: if a field is missing or invalid. The message names the first one.

    Example:
        >>> check("environment.json", Environment, {"turnout": "0.1.0", "turnout_commit": None, "threads": 2})
        Environment(turnout='0.1.0', turnout_commit=None, sources=None)
    """
    try:
        return form.model_validate(values)
    except ValidationError as error:
        raise damaged(source, wrong_field(error, "the file")) from None


@contextmanager
def restoring(source: object, part: str, instead: str = _REMEDY) -> Iterator[None]:
    """Convert errors of restoring an object from a file into errors that name the file.

    Values may each have a valid type and still not fit together: a missing key, or a size that differs from another.

    The body should compute from the values of the file alone, because every error in it is attributed to the file.

    Args:
        source: the name of the file in error messages.
        part: the name of the object that is restored.
        instead: the remedy that the message suggests.

    Raises:
        CheckpointError: in place of an error of the body. The message names the part.
    """
    try:
        yield
    except VALUE_ERRORS as error:
        if isinstance(error, TurnoutError) and not isinstance(error, ValueError):  # its message is clear already
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        why = f"it lacks {lines[0]}" if isinstance(error, KeyError) else lines[0]
        raise damaged(source, f"{part}: {why}", instead) from error
