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
        bars = output or (Terminal(console) if console.is_terminal else None)
        runs = _Runs(total, console, bars)
        try:
            yield runs
        finally:
            runs.draw(last=True)


class _Runs:
    """Show the runs in progress, and count those that have ended.

    Args:
        total: the number of runs.
        console: takes a line for each run that ends, and every minute one for those in progress, if there are no bars.
        bars: a bar for all runs, and one for each run in progress; messages of failures stay.
    """

    def __init__(self, total: int, console: Console, bars: Terminal | None) -> None:
        self._total, self._num_ended, self._running = total, 0, dict[str, Update]()
        self._console, self.drawing, self._written = console, bars, time.monotonic()
        self.draw()

    def __call__(self, update: Update) -> None:
        """Process an update."""
        if over := update.status not in ("started", "running"):
            self._running.pop(str(update), None)
            self._num_ended += update.status != "stopped"
        else:
            self._running[str(update)] = update
        if self.drawing is not None:
            if update.status == "failed":
                self.drawing.say(ended(update))
            self.draw()
        elif over:
            self._print(ended(update))
        elif time.monotonic() - self._written >= MINUTE:
            running = "; ".join(f"{run}: round {run.done} of {run.rounds}" for run in self._running.values())
            self._print(f"{self._num_ended} of {self._total} runs ended, in progress: {running}")

    def draw(self, last: bool = False) -> None:
        """Draw the bars."""
        if self.drawing is not None:
            running = [(name, run.done, run.rounds, run.note) for name, run in self._running.items()]
            self.drawing.draw([("all runs", self._num_ended, self._total, ""), *running], last)

    def _print(self, text: str) -> None:
        self._written = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def ended(update: Update) -> str:
    """Describe how a run ended: ``"fedau, seed 0: done, test accuracy 93.1%"``."""
    if update.status == "failed":
        return f"{update} failed: {update.note}"
    if update.status == "stopped":  # which the note repeats
        return f"{update}: {update.note}"
    return ", ".join(filter(None, [f"{update}: {update.status}", update.note]))
