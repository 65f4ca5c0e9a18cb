"""Load algorithms from Python files: a recipe that the command line names as ``FILE.py:FUNCTION``.

The function is a recipe like those of `turnout.algorithms`: it takes ``local: Sgd | None`` and ``also``, may have options of
its own, and returns what `compose` makes. Every process of a comparison runs the file. The settings of a folder may name a
file too, which somebody else may have written: `refuse_code` has the user name it as well.
"""

from __future__ import annotations

import importlib.util
import inspect
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import typer

from turnout.algorithms import ALGORITHMS
from turnout.cli.options import Table
from turnout.core.checks import ConfigurationError, nearest
from turnout.pieces.base.algorithm import Algorithm


def short(name: str) -> str:
    """Return what reports call an algorithm: of ``FILE.py:FUNCTION`` the function."""
    return name.rpartition(":")[2] if ".py:" in name else name


def named(names: Sequence[str]) -> tuple[list[str], Table]:
    """Short names in place of ``FILE.py:FUNCTION``, and a layer of settings that says which recipe each is.

    Raises:
        ConfigurationError: where a short name is that of another algorithm.
    """
    own = {short(name): name for name in names if ".py:" in name}
    for label, name in own.items():
        if label in ALGORITHMS or [short(other) for other in names].count(label) > 1:
            raise ConfigurationError(
                f"{name}: there is another algorithm called {label}: give the function another name"
            )
    return [*map(short, names)], {"algorithms": {label: {"algorithm": name} for label, name in own.items()}}


@cache
def recipe(name: str) -> Callable[..., Algorithm] | None:
    """Return the recipe that ``FILE.py:FUNCTION`` names; None for any other name.

    Raises:
        ConfigurationError: where there is no such file, it cannot be run, or it holds no such recipe.
    """
    if ".py:" not in name:
        return None
    found, function = loaded(name), name.rpartition(":")[2]
    if not inspect.isfunction(found) or not {"local", "also"} <= inspect.signature(found).parameters.keys():
        raise ConfigurationError(f"{name} is no recipe: write def {function}(local: Sgd | None = None, also=())")
    return found


def refuse_code(found: Any, folder: Path, named: Sequence[Path]) -> None:
    """Refuse what a folder says if it names code that the user has not named; ask where there is a terminal.

    Args:
        found: plain values from the folder.
        folder: where they are from.
        named: files that the user has named on the command line.

    Raises:
        ConfigurationError: saying which file to name.
    """
    trusted = {path.resolve() for path in named}
    for name in dict.fromkeys(_code_in(found)):
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


def _code_in(found: Any) -> Iterator[str]:
    """Yield the names ``FILE.py:NAME`` within plain values."""
    if isinstance(found, Mapping):
        found = [*found.keys(), *found.values()]
    if isinstance(found, str):
        if ".py:" in found:
            yield found
    elif isinstance(found, list | tuple):
        for value in found:
            yield from _code_in(value)


def loaded(name: str) -> Any:
    """Return what ``FILE.py:NAME`` names: the file is run, and what it calls NAME is taken.

    Raises:
        ConfigurationError: where there is no such file, it cannot be run, or it holds nothing of that name.
    """
    file, _, wanted = name.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ConfigurationError(f"{name}: there is no file {file}: needed FILE.py:FUNCTION, as seen from {Path.cwd()}")
    spec = importlib.util.spec_from_file_location(f"turnout_own.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigurationError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    names = [key for key, value in vars(module).items() if getattr(value, "__module__", spec.name) == spec.name]
    if wanted not in vars(module):
        functions = [key for key in names if inspect.isfunction(vars(module)[key])]
        hint = nearest(wanted, functions) if functions else "it has no functions"
        raise ConfigurationError(f"{file} has no function {wanted!r}: {hint}")
    return getattr(module, wanted)
