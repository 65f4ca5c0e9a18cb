"""Load pieces from Python files, written ``FILE.py:NAME`` on the command line.

A piece is a class that derives from the base class of its family. An algorithm is a function like those of
`turnout.algorithms`: it takes ``local: Sgd | None`` and ``also``, may have further options, and returns the result of
`compose`. Every process of a comparison runs the file. The settings of a folder may also name a file, which may come from
someone else, so `refuse_code` asks for confirmation.
"""

from __future__ import annotations

import importlib.util
import inspect
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import typer

from turnout.base.algorithm import ALGORITHMS, Algorithm
from turnout.core.checks import ConfigurationError, known_name, nearest
from turnout.core.system import same_directory
from turnout.data.names import Names, names_read, note

if TYPE_CHECKING:
    from turnout.cli.names import Additions
    from turnout.core.registry import Family


def short(name: str) -> str:
    """Return the name of an algorithm in reports: the function of ``FILE.py:FUNCTION``."""
    return name.rpartition(":")[2] if ".py:" in name else name


def named(names: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return short names of ``FILE.py:FUNCTION``, and a layer of settings with the recipe of each.

    Raises:
        ConfigurationError: if a short name is that of another algorithm.
    """
    files = {short(name): name for name in names if ".py:" in name}
    for label, name in files.items():
        if label in ALGORITHMS or [short(other) for other in names].count(label) > 1:
            raise ConfigurationError(
                f"{name}: there is another algorithm called {label}: give the function another name"
            )
    return [*map(short, names)], {"algorithms": {label: {"algorithm": name} for label, name in files.items()}}


def recipe(name: str) -> Callable[..., Algorithm] | None:
    """Return the recipe that ``FILE.py:FUNCTION`` names; None for any other name.

    Raises:
        ConfigurationError: if the file is missing, fails, or has no such recipe.
    """
    if ".py:" not in name:
        return None
    function = loaded(name)
    if not inspect.isfunction(function) or not {"local", "also"} <= inspect.signature(function).parameters.keys():
        raise ConfigurationError(
            f"{name} is not a recipe: write def {name.rpartition(':')[2]}(local: Sgd | None = None, also=())"
        )
    return function


def refuse_code(values: Any, folder: Path, named: Sequence[Path]) -> None:
    """Raise an error if values of a folder name untrusted code, after asking for confirmation on a terminal.

    Args:
        values: plain values from the folder.
        folder: folder of the values.
        named: trusted files, from the command line.

    Raises:
        ConfigurationError: if a file is not trusted.
    """
    trusted = {path.resolve() for path in named}
    for name in dict.fromkeys(text for _, text in texts(values) if ".py:" in text):
        file = name.rpartition(":")[0]
        if Path(file).resolve() in trusted:
            continue
        if sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(f"{folder} names code: run {file}?", err=True):
            trusted.add(Path(file).resolve())
            continue
        raise ConfigurationError(
            f"{folder} names code, {name!r}, which can run anything on this machine: read the file, and add --code "
            f"{shlex.quote(file)}"
        )


def texts(values: Any, setting: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts in plain values, including keys of tables, each after the dotted name of its setting."""
    if isinstance(values, str):
        yield setting, values
    elif isinstance(values, Mapping):
        for key, value in values.items():
            yield setting or "settings", str(key)
            yield from texts(value, f"{setting}.{key}" if setting else str(key))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from texts(value, setting)


def member(known: Family | Additions, name: str) -> Any:
    """Return a member of a family by its name, or a piece of a file, ``FILE.py:NAME``.

    Args:
        known: the family.
        name: name of the piece.

    Raises:
        ConfigurationError: if a name is unknown, with the nearest one, or a file has no such piece.
    """
    if ".py:" not in name:
        return known[known_name(known.noun, name, known)]
    piece = loaded(name)
    if not known.takes(piece):
        raise ConfigurationError(f"{name} is no {known.noun}: needed {known.needs}")
    return piece


def loaded(name: str) -> Any:
    """Run the file of ``FILE.py:NAME``, once unless it changes, and return its attribute NAME.

    Raises:
        ConfigurationError: if the file is missing, fails, or has no such attribute.
    """
    file, _, attribute = name.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ConfigurationError(f"{name}: there is no file {file}: needed FILE.py:NAME, as seen from {Path.cwd()}")
    status = path.stat()
    module, read = _run(path.resolve(), file, status.st_mtime_ns, status.st_size)
    for names in read:  # also if the file ran before
        note(names)
    if attribute not in vars(module):
        here = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        names = [key for key in here if callable(vars(module)[key])]
        hint = nearest(attribute, names) if names else "it has no functions and no classes"
        raise ConfigurationError(f"{file} has no function or class {attribute!r}: {hint}")
    return getattr(module, attribute)


@cache
def _run(path: Path, file: str, modified: int, size: int) -> tuple[ModuleType, list[Names]]:
    """Run a file, and return its module and the names that it read; a changed time stamp or size runs it again."""
    del modified, size
    spec = importlib.util.spec_from_file_location(f"turnout_own.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are looked up there
    try:
        with same_directory(), names_read() as read:
            spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigurationError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    return module, read
