"""Show the progress of a comparison: a bar for all runs, and one for each that is under way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from turnout.comparison.run import Listener, Update
from turnout.reporting.progress import MINUTE, Drawing, Terminal, cell


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
    """Take in updates: which runs are under way, and how many have ended."""

    def __init__(self, total: int) -> None:
        self._total, self._num_ended, self._running = total, 0, dict[str, Update]()

    def __call__(self, update: Update) -> None:
        """Take in an update."""
        if over := update.status not in ("started", "running"):
            self._running.pop(str(update), None)
            self._num_ended += update.status != "stopped"
        else:
            self._running[str(update)] = update
        self._show(update, over)

    def _show(self, update: Update, over: bool) -> None:
        """Show an update, of a run that is over or under way."""
        raise NotImplementedError


class _Lines(_Runs):
    """Write a line for each run that ends, and every minute one for those under way."""

    def __init__(self, console: Console, total: int) -> None:
        super().__init__(total)
        self._console, self._written = console, time.monotonic()

    def _show(self, update: Update, over: bool) -> None:
        if over:
            self._print(ended(update))
        elif time.monotonic() - self._written >= MINUTE:
            under_way = "; ".join(f"{run}: round {run.done} of {run.rounds}" for run in self._running.values())
            self._print(f"{self._num_ended} of {self._total} runs ended, under way: {under_way}")

    def _print(self, text: str) -> None:
        self._written = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class _Bars(_Runs):
    """Draw a bar for all runs, and one for each that is under way; failures stay."""

    def __init__(self, drawing: Drawing, total: int) -> None:
        super().__init__(total)
        self.drawing = drawing
        self.draw()

    def _show(self, update: Update, over: bool) -> None:  # noqa: ARG002 - of a failure alone more is said
        if update.status == "failed":
            self.drawing.say(ended(update))
        self.draw()

    def draw(self, last: bool = False) -> None:
        """Draw the bars."""
        under_way = [(name, run.done, run.rounds, run.note) for name, run in self._running.items()]
        self.drawing.draw([("all runs", self._num_ended, self._total, ""), *under_way], last)


def ended(update: Update) -> str:
    """Say how a run ended: ``"fedau, seed 0: done, test accuracy 93.1%"``."""
    if update.status == "failed":
        return f"{update} failed: {update.note}"
    if update.status == "stopped":  # the note says so
        return f"{update}: {update.note}"
    return ", ".join(filter(None, [f"{update}: {update.status}", update.note]))
