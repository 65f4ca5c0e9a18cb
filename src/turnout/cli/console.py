"""Write results to standard output, and everything else to standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from turnout.core.display import printable

_WIDE = 1 << 16
"""The width of output to a file or a pipe, so that lines are not wrapped."""


_log: dict[str, Callable[[str, str], None]] = {}


def say_by(log: Callable[[str, str], None] | None) -> None:
    """Pass notices, as text and color, to a function in place of standard error; None ends that."""
    _log.clear()
    if log is not None:
        _log["notices"] = log


def say(text: str, style: str = "") -> None:
    """Write a notice to standard error, or pass it to the function of `say_by`."""
    if _log:
        _log["notices"](text, style)
        return
    console().print(printable(text, 20_000), style=style, markup=False, highlight=False, soft_wrap=True)


def show(result: RenderableType | None) -> None:
    """Write a result to standard output, unless it is None."""
    if result is not None:
        wide = None if sys.stdout.isatty() else _WIDE
        Console(width=wide, highlight=False, markup=False, emoji=False).print(Printable(result))


@dataclass(frozen=True)
class Printable:
    """Remove control characters from text, because names in folders and responses may come from anyone."""

    result: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the segments of the result."""
        for text, style, control in console.render(self.result, options):
            yield Segment(text if control else printable(text, len(text)), style, control)


def console() -> Console:
    """Return the console of standard error, for progress and notices."""
    return Console(stderr=True, markup=False, emoji=False)
