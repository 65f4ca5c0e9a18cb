"""Progress bars in notebooks, which redraw the output of a cell."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from html import escape
from typing import Any

_PAUSE = 0.25
"""Seconds between two drawings: a notebook keeps up with so many."""

Bar = tuple[str, int, int, str]
"""What a bar is about, how much is done, of how much, and what else to say; 0 of 0 is not known yet."""


class Cell:
    """Draw bars in the output of a notebook's cell, in place of those drawn before.

    Args:
        shown: what ``IPython.display.display(..., display_id=True)`` returned.
    """

    def __init__(self, shown: Any) -> None:
        self._shown, self._drawn = shown, -_PAUSE
        self._lines: list[Bar] = []

    def say(self, text: str) -> None:
        """Add a line below the bars."""
        self._lines.append((text, 0, 0, ""))

    def draw(self, bars: Sequence[Bar], last: bool = False) -> None:
        """Draw them, unless others were drawn a moment ago and these are not the last."""
        now = time.monotonic()
        if last or now - self._drawn >= _PAUSE:
            self._drawn, bars = now, [*bars, *self._lines]
            self._shown.update({"text/html": html(bars), "text/plain": plain(bars)}, raw=True)


def cell() -> Cell | None:
    """Return where to draw, in a notebook; None anywhere else."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    if interactive is None or not hasattr(shell, "kernel"):
        return None
    return Cell(interactive.display.display({"text/plain": ""}, raw=True, display_id=True))


def html(bars: Sequence[Bar]) -> str:
    """Return bars as a table.

    Example:
        >>> html([("rounds", 3, 10, "")])
        '<table><tr><td>rounds</td><td><progress value="3" max="10"></progress></td><td>3 / 10</td><td></td></tr></table>'
    """
    rows = (
        f"<tr><td>{escape(what)}</td><td><progress{_extent(done, total)}></progress></td>"
        f"<td>{_of(done, total)}</td><td>{escape(note)}</td></tr>"
        for what, done, total, note in bars
    )
    return f"<table>{''.join(rows)}</table>"


def plain(bars: Sequence[Bar]) -> str:
    """Return bars as lines of text.

    Example:
        >>> plain([("rounds", 3, 10, "test accuracy 50.0%")])
        'rounds 3 / 10 test accuracy 50.0%'
    """
    return "\n".join(" ".join(filter(None, [what, _of(done, total), note])) for what, done, total, note in bars)


def _extent(done: int, total: int) -> str:
    """Return how far a bar goes; one that does not say so moves to and fro."""
    return f' value="{done}" max="{total}"' if total else ""


def _of(done: int, total: int) -> str:
    """Return how far it is, in numbers."""
    return f"{done:,} / {total:,}" if total else ""
