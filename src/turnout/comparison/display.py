"""Show the progress of a comparison: a bar for all runs, and one for each that is under way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from turnout.comparison.run import Listener, Update
from turnout.reporting import notebook
from turnout.reporting.progress import MINUTE, Drawing, Terminal


@contextmanager
def display(total: int, progress: bool | Listener, console: Console | None = None) -> Iterator[Listener]:
    """Yield what to tell of every update: the user's own listener, bars on a terminal or in a notebook, lines
    elsewhere, or nothing.
    """
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield lambda _: None
    else:
        console, cell = console or Console(stderr=True), notebook.cell() if console is None else None
        if cell is None and not console.is_terminal:
            yield _Lines(console, total)
            return
        bars = _Bars(cell or Terminal(console), total)
        try:
            yield bars
        finally:
            bars.draw(last=True)


class _Lines:
    """Write a line for each run that ends, and every minute one for those under way."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._ended = console, total, 0
        self._told, self._running = time.monotonic(), dict[str, Update]()

    def __call__(self, update: Update) -> None:
        """Take in an update."""
        key = str(update)
        if update.status in ("started", "running"):
            self._running[key] = update
            if time.monotonic() - self._told >= MINUTE:
                under_way = "; ".join(f"{run}: round {run.done} of {run.rounds}" for run in self._running.values())
                self._print(f"{self._ended} of {self._total} runs ended, under way: {under_way}")
            return
        self._running.pop(key, None)
        self._ended += update.status != "stopped"
        self._print(ended(update))

    def _print(self, text: str) -> None:
        self._told = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class _Bars:
    """Draw a bar for all runs, and one for each that is under way; failures stay."""

    def __init__(self, drawing: Drawing, total: int) -> None:
        self.drawing, self._total, self._ended = drawing, total, 0
        self._running: dict[str, Update] = {}
        self.draw()

    def __call__(self, update: Update) -> None:
        """Take in an update."""
        if update.status in ("started", "running"):
            self._running[str(update)] = update
        else:
            self._running.pop(str(update), None)
            self._ended += update.status != "stopped"
            if update.status == "failed":
                self.drawing.say(ended(update))
        self.draw()

    def draw(self, last: bool = False) -> None:
        """Draw the bars."""
        under_way = [(name, run.done, run.rounds, run.note) for name, run in self._running.items()]
        self.drawing.draw([("all runs", self._ended, self._total, ""), *under_way], last)


def ended(update: Update) -> str:
    """Say how a run ended: ``"fedau, seed 0: done, test accuracy 93.1%"``."""
    if update.status == "failed":
        return f"{update} failed: {update.note}"
    if update.status == "stopped":  # the note says so
        return f"{update}: {update.note}"
    return ", ".join(filter(None, [f"{update}: {update.status}", update.note]))
