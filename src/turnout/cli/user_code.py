"""Load pieces from Python files, which the command line names as ``FILE.py:NAME``.

A piece is a class that derives from the base class of its family; an algorithm is a function, a recipe like those of
`turnout.algorithms`: it takes ``local: Sgd | None`` and ``also``, may have options of its own, and returns what `compose`
makes. Every process of a comparison runs the file. The settings of a folder may name a file too, which somebody else may
have written: `refuse_code` has the user name it as well.
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

from turnout.core.checks import ConfigurationError, known_name, nearest
from turnout.core.system import same_directory
from turnout.pieces.base.algorithm import ALGORITHMS, Algorithm

if TYPE_CHECKING:
    from turnout.cli.names import Additions
    from turnout.core.registry import Family


def short(name: str) -> str:
    """Return what reports call an algorithm: of ``FILE.py:FUNCTION`` the function."""
    return name.rpartition(":")[2] if ".py:" in name else name


def named(names: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return short names in place of ``FILE.py:FUNCTION``, and a layer of settings that says which recipe each is.

    Raises:
        ConfigurationError: where a short name is that of another algorithm.
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
        ConfigurationError: where there is no such file, it cannot be run, or it holds no such recipe.
    """
    if ".py:" not in name:
        return None
    function = loaded(name)
    if not inspect.isfunction(function) or not {"local", "also"} <= inspect.signature(function).parameters.keys():
        raise ConfigurationError(
            f"{name} is no recipe: write def {name.rpartition(':')[2]}(local: Sgd | None = None, also=())"
        )
    return function


def refuse_code(values: Any, folder: Path, named: Sequence[Path]) -> None:
    """Refuse what a folder says if it names code that the user has not named; ask where there is a terminal.

    Args:
        values: plain values from the folder.
        folder: where they are from.
        named: files that the user has named on the command line.

    Raises:
        ConfigurationError: saying which file to name.
    """
    trusted = {path.resolve() for path in named}
    for name in dict.fromkeys(_code_in(values)):
        file = name.rpartition(":")[0]
        if Path(file).resolve() in trusted:
            continue
        if sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(f"{folder} names code: run {file}?", err=True):
            trusted.add(Path(file).resolve())
            continue
        raise ConfigurationError(
            f"{folder} names code, {name!r}, and whoever sent a folder could run anything with it: read the file, and add "
            f"--code {shlex.quote(file)}"
        )


def _code_in(values: Any) -> Iterator[str]:
    """Yield the names ``FILE.py:NAME`` within plain values, keys of tables among them."""
    if isinstance(values, Mapping):
        values = [*values.keys(), *values.values()]
    if isinstance(values, str):
        if ".py:" in values:
            yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _code_in(value)


def member(known: Family | Additions, name: str, what: str) -> Any:
    """Return the piece that a name means: a member of a family, or what a file holds, as ``FILE.py:NAME``.

    Args:
        known: the family.
        name: as it was written.
        what: what the family is called in messages.

    Raises:
        ConfigurationError: for a name that is not known, with the nearest one, or a file without such a piece.
    """
    if ".py:" not in name:
        return known[known_name(what, name, known)]
    piece = loaded(name)
    if not known.takes(piece):
        raise ConfigurationError(f"{name} is no {what}: needed {known.needs}")
    return piece


def loaded(name: str) -> Any:
    """Return what ``FILE.py:NAME`` names: the file is run, once until it changes, and what it calls NAME is taken.

    Raises:
        ConfigurationError: where there is no such file, it cannot be run, or it holds nothing of that name.
    """
    file, _, attribute = name.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ConfigurationError(f"{name}: there is no file {file}: needed FILE.py:NAME, as seen from {Path.cwd()}")
    status = path.stat()
    module = _run(path.resolve(), file, status.st_mtime_ns, status.st_size)
    if attribute not in vars(module):
        here = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        names = [key for key in here if callable(vars(module)[key])]
        hint = nearest(attribute, names) if names else "it has no functions and no classes"
        raise ConfigurationError(f"{file} has no function or class {attribute!r}: {hint}")
    return getattr(module, attribute)


@cache
def _run(path: Path, file: str, modified: int, size: int) -> ModuleType:
    """Run a file, and return its module; another time stamp or size runs it again."""
    del modified, size
    spec = importlib.util.spec_from_file_location(f"turnout_own.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are looked up there
    try:
        with same_directory():
            spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigurationError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    return module
