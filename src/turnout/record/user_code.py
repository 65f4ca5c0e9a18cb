"""Compute checksums of the source of users' functions and classes, and of files that a run reads."""

from __future__ import annotations

import inspect
import textwrap
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

_INSTALLED = ("site-packages", "dist-packages")
_PACKAGES = ("turnout", "turnout_serve", "turnout_flower")
_STANDARD = Path(inspect.__file__).parent
_PLAIN = (int, float, str, bytes, type(None))
_SAMPLE, _MOST_SAMPLES = 1 << 20, 64  # bytes of a sample of a file, and samples of one


def code(things: Iterable[Any]) -> dict[str, Any]:
    """Return checksums of the source of functions and classes of users, and what they refer to, by name; empty without any.

    Functions and classes that they refer to are followed, as are numbers and texts of their modules and of other modules
    of users. What installed packages and the standard library define is left out, and so is what has no file. Blank lines
    and lines of comments do not count.
    """
    sums, used, seen = dict[str, str](), defaultdict[str, set[str]](set), set[int]()
    for thing in things:
        if (source := _source(thing)) is not None:
            sums[thing.__qualname__] = source
            _follow(thing, used, seen)
    # Two modules may define one name: the order in which they are found differs between processes.
    others = {name: ", ".join(sorted(used[name])) for name in sorted(used.keys() - sums.keys())}
    return ({"code": sums} if sums else {}) | ({"used": others} if others else {})


def _source(thing: Any) -> str | None:
    """Return the checksum of the source of a function or class of a user; None for other objects."""
    if not (inspect.isfunction(thing) or inspect.isclass(thing)) or not _is_users(thing):
        return None
    try:
        text = textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        return None
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return f"crc32 {zlib.crc32(chr(10).join(lines).encode()):08x}"


def _is_users(thing: Any) -> bool:
    """Return whether a module, function or class is in a file that is no part of a package or of the standard library."""
    try:
        file = Path(inspect.getsourcefile(thing) or "")
    except (OSError, TypeError):  # a class of a notebook has no file
        return False
    name = thing.__name__ if inspect.ismodule(thing) else thing.__module__
    installed = any(part in _INSTALLED for part in file.parts) or file.is_relative_to(_STANDARD)
    return name.partition(".")[0] not in _PACKAGES and not installed


def _follow(thing: Any, used: dict[str, set[str]], seen: set[int]) -> None:
    """Add the sources and plain values that a function or class of a user refers to, by name, but not what was seen."""
    seen.add(id(thing))
    found = [("base", base) for base in thing.__bases__] if inspect.isclass(thing) else []
    for member in vars(thing).values() if inspect.isclass(thing) else [thing]:
        found += _references(getattr(member, "__func__", getattr(member, "fget", member)))
    for name, value in found:
        if isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(part, _PLAIN) for part in value)):
            used[name].add(repr(value))
        elif id(value) not in seen and (source := _source(value)) is not None:
            used[value.__qualname__].add(source)
            _follow(value, used, seen)


def _references(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names in the body of a function with their values, in its module and in modules of users that it names."""
    if not inspect.isfunction(function):
        return
    names = {
        name for name in _names(function.__code__) if not name.startswith("__")
    }  # __file__ differs between machines
    modules = [
        value for name in names if inspect.ismodule(value := function.__globals__.get(name)) and _is_users(value)
    ]
    for space in (function.__globals__, *map(vars, modules)):
        yield from ((name, space[name]) for name in names & space.keys())
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing is in the cell yet
            yield name, cell.cell_contents


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names and attributes in a body, and in functions and comprehensions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _names(constant)


def of_files(paths: Iterable[Path]) -> dict[str, str]:
    """Return checksums of files by name, of those above 64 MiB of their size and of samples."""
    return {path.name: f"crc32 {zlib.crc32(b''.join(_samples(path))):08x}" for path in sorted(paths) if path.is_file()}


def _samples(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    step = max(_SAMPLE, size // _MOST_SAMPLES)
    yield str(size).encode()
    with path.open("rb") as file:
        for start in range(0, size, step):
            file.seek(start)
            yield file.read(_SAMPLE)
