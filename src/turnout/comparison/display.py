"""The live display of a comparison: a bar for all runs, and one for each that is under way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TaskID

from turnout.comparison.run import Listener, Update
from turnout.reporting import notebook
from turnout.reporting.progress import MINUTE, bars


@contextmanager
def display(total: int, progress: bool | Listener, console: Console | None = None) -> Iterator[Listener]:
    """Yield what to tell of every update: the user's own listener, bars on a terminal or in a notebook, lines
    elsewhere, or nothing.
    """
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield lambda _: None
    elif console is None and (cell := notebook.cell()) is not None:
        with _in_cell(cell, total) as shown:
            yield shown
    elif not (console := console or Console(stderr=True)).is_terminal:
        yield _Lines(console, total)
    else:
        with bars(console) as shown:
            yield _Bars(shown, total)


@contextmanager
def _in_cell(cell: notebook.Cell, total: int) -> Iterator[Listener]:
    """Yield what draws a bar for all runs in a notebook, and one for each that is under way; failures stay below."""
    running, failed, done = dict[str, Update](), list[Update](), 0

    def bars() -> list[notebook.Bar]:
        under_way = [(key, run.done, run.rounds, run.note) for key, run in running.items()]
        return [("all runs", done, total, ""), *under_way, *((ended(run), 0, 0, "") for run in failed)]

    def tell(update: Update) -> None:
        nonlocal done
        if update.status in ("started", "running"):
            running[str(update)] = update
        else:
            running.pop(str(update), None)
            done += update.status != "stopped"
            failed.extend([update] * (update.status == "failed"))
        cell.draw(bars())

    try:
        yield tell
    finally:
        cell.draw(bars(), last=True)


class _Lines:
    """A line for each run that ends, and every minute one for those under way."""

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
    """Bars that follow the updates."""

    def __init__(self, shown: Progress, total: int) -> None:
        self.bars = shown
        self.overall = shown.add_task("all runs", total=total, note="")
        self.tasks: dict[str, TaskID] = {}

    def __call__(self, update: Update) -> None:
        """Take in an update."""
        key = str(update)
        if update.status in ("started", "running"):
            if key not in self.tasks:
                self.tasks[key] = self.bars.add_task(key, total=update.rounds or None, note="")
            self.bars.update(
                self.tasks[key], completed=update.done, total=update.rounds or None, note=update.note, refresh=False
            )
            return
        if key in self.tasks:
            self.bars.remove_task(self.tasks.pop(key))
        self.bars.update(self.overall, advance=update.status != "stopped")
        if update.status == "failed":
            self.bars.console.print(ended(update), style="red", highlight=False, markup=False, emoji=False)


def ended(update: Update) -> str:
    """Say how a run ended: ``"fedau, seed 0: done, test accuracy 93.1%"``."""
    if update.status == "failed":
        return f"{update} failed: {update.note}"
    if update.status == "stopped":  # the note says so
        return f"{update}: {update.note}"
    return ", ".join(filter(None, [f"{update}: {update.status}", update.note]))
