"""Show the progress of runs: as bars on a terminal or in a notebook, as lines elsewhere."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from turnout.callbacks import Callback
from turnout.core.checks import counted
from turnout.record.schema import METRICS

MINUTE = 60.0

_PAUSE = 0.25
"""Seconds between two drawings in a notebook, which keeps up with so many."""

Bar = tuple[str, int, int, str]
"""A description, the work that is done, the whole work (0 if it is not known yet), and a note."""

BY_IMPORTANCE = tuple(f"{split}_{figure}" for figure in (*METRICS, "loss") for split in ("test", "train"))
"""Columns from which the score of a run is taken for short notes: the first that it has."""


class Drawing(Protocol):
    """Draw bars in place of those drawn before."""

    def draw(self, bars: Sequence[Bar], last: bool = False) -> None:
        """Draw them; the last ones stay."""
        ...

    def say(self, text: str) -> None:
        """Write a line that stays."""
        ...


class Terminal:
    """Draw bars on a terminal: what, how far, how well, how long."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.shown = RichProgress(*columns, console=console, refresh_per_second=4)
        self._tasks: dict[str, TaskID] = {}
        self.start()

    def start(self) -> None:
        """Begin to draw."""
        self.shown.start()

    def draw(self, bars: Sequence[Bar], last: bool = False) -> None:
        """Draw them; the last ones stay."""
        for gone in self._tasks.keys() - {what for what, *_ in bars}:
            self.shown.remove_task(self._tasks.pop(gone))
        for what, done, total, note in bars:
            if what not in self._tasks:
                self._tasks[what] = self.shown.add_task(what, total=total or None, note="")
            self.shown.update(self._tasks[what], completed=done, total=total or None, note=note)
        if last:
            with suppress(OSError):  # of a terminal that is closed: the run goes on
                self.shown.stop()

    def say(self, text: str) -> None:
        """Write a line above the bars."""
        self.shown.console.print(text, style="red", highlight=False, markup=False, emoji=False)


class Cell(Terminal):
    """Draw bars in the output of a notebook's cell.

    Args:
        output: what ``IPython.display.display(..., display_id=True)`` returned.
    """

    def __init__(self, output: Any) -> None:
        super().__init__(Console(file=io.StringIO(), record=True, width=110))
        self._output, self._drawn, self._said = output, -_PAUSE, ""

    def start(self) -> None:
        """Draw nothing yet: rich redraws a notebook's output with ipywidgets alone, which few have."""

    def draw(self, bars: Sequence[Bar], last: bool = False) -> None:
        """Draw them, unless others were drawn a moment ago and these are not the last."""
        super().draw(bars)
        now, console = time.monotonic(), self.shown.console
        if last or now - self._drawn >= _PAUSE:
            self._drawn = now
            console.print(self.shown.get_renderable(), self._said, markup=False, highlight=False, emoji=False)
            html = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>", clear=False)
            self._output.update({"text/html": html, "text/plain": console.export_text()}, raw=True)

    def say(self, text: str) -> None:
        """Add a line below the bars."""
        self._said += f"{text}\n"


def cell() -> Cell | None:
    """Return where to draw, in a notebook; None anywhere else."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    if interactive is None or not hasattr(shell, "kernel"):
        return None
    return Cell(interactive.display.display({"text/plain": ""}, raw=True, display_id=True))


class Lines:
    """Write a line whenever a tenth of the rounds or a minute has gone by, for whoever reads it later."""

    def __init__(self, console: Console) -> None:
        self._console, self._tenth, self._done = console, -1, 0
        self._begun = self._last = time.monotonic()

    def draw(self, bars: Sequence[Bar], last: bool = False) -> None:
        """Write a line for the only bar, if it is time for one; the note alone where no further round is done."""
        ((_, done, total, note),) = bars
        now, advanced = time.monotonic(), done > self._done
        tenth = 10 * done // total if advanced else self._tenth
        if self._tenth < 0 and advanced:  # a run that goes on has not done its earlier tenths just now
            self._tenth = 10 * (done - 1) // total
        if not last and (tenth != self._tenth or now - self._last >= MINUTE):
            self._tenth, self._last = tenth, now
            self.say(", ".join(filter(None, [f"round {done:,} of {total:,}" if advanced else "", note])))
        self._done = done

    def say(self, text: str) -> None:
        """Write a line, with the seconds so far."""
        text = f"{text}, {time.monotonic() - self._begun:,.0f} s"
        with suppress(OSError):  # of a terminal that is closed: the run goes on
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


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
        self._drawing: Drawing | None = None
        self._bar: Bar = ("rounds", 0, 0, "")

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Open the display."""
        del folder
        self._bar = ("rounds", 0, config["rounds"], "")
        kind = Terminal if self._console.is_terminal else Lines
        self._drawing = cell() or kind(self._console)

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Show how far it is."""
        self._bar = ("rounds", row["round"], self._bar[2], self._notes(row))
        self._draw(self._bar)

    def on_work(self, what: str, done: int, total: int) -> None:
        """Show how far long work within a round is."""
        self._draw((*self._bar[:3], f"{what}: {done:,} of {total:,} clients"))

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Close the display."""
        del summary
        self._draw(self._bar, last=True)

    def _draw(self, bar: Bar, last: bool = False) -> None:
        if self._drawing is not None:
            self._drawing.draw([bar], last)
