"""Show the progress of a comparison: a bar for all runs, and one for each run in progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from turnout.comparison.update import Listener, Update
from turnout.reporting.progress import MINUTE, Terminal, cell


@contextmanager
def display(total: int, progress: bool | Listener, console: Console | None = None) -> Iterator[Listener]:
    """Yield a function that takes every update.

    Args:
        total: the number of runs.
        progress: True for bars on a terminal or in a notebook and lines elsewhere, False for nothing, or the function.
        console: None is standard error.
    """
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield lambda _: None
    else:
        output, console = cell() if console is None else None, console or Console(stderr=True)
        if output is None and not console.is_terminal:
            yield _Lines(console, total)
            return
        bars = _Bars(output or Terminal(console), total)
        try:
            yield bars
        finally:
            bars.draw(last=True)


class _Runs:
    """Track the runs in progress, and count those that have ended."""

    def __init__(self, total: int) -> None:
        self._total, self._num_ended, self._running = total, 0, dict[str, Update]()

    def __call__(self, update: Update) -> None:
        """Process an update."""
        if over := update.status not in ("started", "running"):
            self._running.pop(str(update), None)
            self._num_ended += update.status != "stopped"
        else:
            self._running[str(update)] = update
        self._show(update, over)

    def _show(self, update: Update, over: bool) -> None:
        """Show an update; `over` is True for the last one of a run."""
        raise NotImplementedError


class _Lines(_Runs):
    """Write a line for each run that ends, and every minute one for those in progress."""

    def __init__(self, console: Console, total: int) -> None:
        super().__init__(total)
        self._console, self._written = console, time.monotonic()

    def _show(self, update: Update, over: bool) -> None:
        if over:
            self._print(ended(update))
        elif time.monotonic() - self._written >= MINUTE:
            running = "; ".join(f"{run}: round {run.done} of {run.rounds}" for run in self._running.values())
            self._print(f"{self._num_ended} of {self._total} runs ended, in progress: {running}")

    def _print(self, text: str) -> None:
        self._written = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class _Bars(_Runs):
    """Draw a bar for all runs, and one for each run in progress; messages of failures stay."""

    def __init__(self, drawing: Terminal, total: int) -> None:
        super().__init__(total)
        self.drawing = drawing
        self.draw()

    def _show(self, update: Update, over: bool) -> None:
        if update.status == "failed":
            self.drawing.say(ended(update))
        self.draw()

    def draw(self, last: bool = False) -> None:
        """Draw the bars."""
        running = [(name, run.done, run.rounds, run.note) for name, run in self._running.items()]
        self.drawing.draw([("all runs", self._num_ended, self._total, ""), *running], last)


def ended(update: Update) -> str:
    """Describe how a run ended: ``"fedau, seed 0: done, test accuracy 93.1%"``."""
    if update.status == "failed":
        return f"{update} failed: {update.note}"
    if update.status == "stopped":  # which the note repeats
        return f"{update}: {update.note}"
    return ", ".join(filter(None, [f"{update}: {update.status}", update.note]))
