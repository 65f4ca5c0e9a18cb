"""Compute checksums of the source of users' functions and classes, and of files that a run reads."""

from __future__ import annotations

import inspect
import textwrap
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_INSTALLED = ("site-packages", "dist-packages")
_SAMPLE, _MOST_SAMPLES = 1 << 20, 64  # bytes of a sample of a file, and samples of one


def code(things: Iterable[Any]) -> dict[str, Any]:
    """Return checksums of the source of functions and classes of users, by name; empty without any.

    Those of installed packages and of the standard library are left out, and so are those without a file. Functions that
    they call are not followed. Blank lines and lines of comments do not count.
    """
    sums = {thing.__qualname__: source for thing in things if (source := _source(thing)) is not None}
    return {"code": sums} if sums else {}


def _source(thing: Any) -> str | None:
    """Return the checksum of the source of a function or class of a user; None for other objects."""
    if not (inspect.isfunction(thing) or inspect.isclass(thing)) or thing.__module__.partition(".")[0] in _PACKAGES:
        return None
    try:
        file, text = inspect.getsourcefile(thing) or "", textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        return None
    if any(part in _INSTALLED for part in Path(file).parts) or Path(file).is_relative_to(_STANDARD):
        return None
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return f"crc32 {zlib.crc32(chr(10).join(lines).encode()):08x}"


_PACKAGES = ("turnout", "turnout_serve", "turnout_flower")
_STANDARD = Path(inspect.__file__).parent


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
