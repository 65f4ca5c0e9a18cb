"""The live display of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from turnout.callbacks import Callback
from turnout.core.checks import counted
from turnout.record.schema import METRICS
from turnout.reporting import notebook

MINUTE = 60.0

BY_IMPORTANCE = tuple(f"{split}_{figure}" for figure in (*METRICS, "loss") for split in ("test", "train"))
"""By what a run is judged in a few words: the first of these columns that it has."""


def columns() -> tuple[TextColumn | BarColumn | MofNCompleteColumn | TimeElapsedColumn | TimeRemainingColumn, ...]:
    """Return the columns of every progress bar here: what, how far, how well, how long."""
    return (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )


def bars(console: Console | None) -> RichProgress:
    """Return an empty display of bars."""
    return RichProgress(*columns(), console=console, refresh_per_second=4)


class Notes:
    """Say in a few characters how a run does, from what its rounds recorded: the latest accuracy, and updates dropped."""

    def __init__(self) -> None:
        self._accuracy, self._dropped, self._rounds = "", 0, 0

    def __call__(self, row: Mapping[str, Any]) -> str:
        """Take in a round's row of the table of rounds, and return the note."""
        self._accuracy = next(
            (quality(name.replace("_", " "), row[name], 1) for name in BY_IMPORTANCE if row.get(name) is not None),
            self._accuracy,
        )
        now = row.get("num_dropped") or 0
        self._dropped, self._rounds = self._dropped + now, self._rounds + (now > 0)
        return ", ".join(filter(None, [self._accuracy, dropped(self._dropped, self._rounds)]))


def dropped(number: int, rounds: int) -> str:
    """Return what to say of updates that were dropped: ``"56 updates dropped in 5 rounds"``; nothing if none was."""
    return f"{counted(number, 'update')} dropped in {counted(rounds, 'round')}" if number else ""


class _Log:
    """Write a line whenever a tenth of the rounds or a minute has gone by, for whoever reads it later."""

    def __init__(self, rounds: int, console: Console) -> None:
        self._rounds, self._console, self._tenth = rounds, console, -1
        self._begun = self._last = time.monotonic()

    def __call__(self, done: int, note: str) -> None:
        """Tell that so many rounds are done."""
        now, tenth = time.monotonic(), 10 * done // self._rounds
        if self._tenth < 0:  # a run that goes on has not done its earlier tenths just now
            self._tenth = 10 * (done - 1) // self._rounds
        if tenth == self._tenth and now - self._last < MINUTE:
            return
        self._tenth, self._last = tenth, now
        self._print(f"round {done:,} of {self._rounds:,}", note)

    def work(self, note: str) -> None:
        """Tell of long work within a round, once a minute."""
        if time.monotonic() - self._last >= MINUTE:
            self._last = time.monotonic()
            self._print(note)

    def _print(self, *parts: str) -> None:
        """Write a line, with the seconds so far."""
        text = ", ".join(filter(None, [*parts, f"{time.monotonic() - self._begun:,.0f} s"]))
        with suppress(OSError):  # of a terminal that is closed: the run goes on
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def quality(metric: str, value: float, decimals: int) -> str:
    """Return a metric and its value as a few words: ``test accuracy 93.3%``, ``test RMSE 0.0213``."""
    shown = f"{value:.{decimals}%}" if metric.endswith("accuracy") else f"{value:.{decimals + 2}g}"
    return f"{metric.replace('rmse', 'RMSE')} {shown}"


class Progress(Callback):
    """Show how far a run is: by a bar on a terminal or in a notebook, by lines elsewhere.

    Args:
        console: where to; None is standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console, self._notes = console or Console(stderr=True), Notes()
        self._display: RichProgress | None = None
        self._log: _Log | None = None
        self._cell: notebook.Cell | None = None
        self._bar: notebook.Bar = ("rounds", 0, 0, "")

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Open the display."""
        del folder
        self._bar = ("rounds", 0, config["rounds"], "")
        if (cell := notebook.cell()) is not None:
            self._cell = cell
            return
        if not self._console.is_terminal:
            self._log = _Log(config["rounds"], self._console)
            return
        self._display = bars(self._console)
        self._display.start()
        self._task = self._display.add_task("rounds", total=config["rounds"], note="")

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Show how far it is."""
        note = self._notes(row)
        self._bar = ("rounds", row["round"], self._bar[2], note)
        if self._cell is not None:
            self._cell.draw([self._bar])
        elif self._log is not None:
            self._log(row["round"], note)
        elif self._display is not None:
            self._display.update(self._task, completed=row["round"], note=note)

    def on_work(self, what: str, done: int, total: int) -> None:
        """Show how far long work within a round is."""
        note = f"{what}: {done:,} of {total:,} clients"
        if self._cell is not None:
            self._cell.draw([(*self._bar[:3], note)])
        elif self._log is not None:
            self._log.work(note)
        elif self._display is not None:
            self._display.update(self._task, note=note)

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Close the display."""
        del summary
        if self._cell is not None:
            self._cell.draw([self._bar], last=True)
        if self._display is not None:
            with suppress(OSError):
                self._display.stop()
