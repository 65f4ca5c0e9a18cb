"""Show the progress of runs, as bars on a terminal or in a notebook and as lines elsewhere."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from turnout.callbacks import Callback
from turnout.core.checks import counted
from turnout.record.schema import HEADLINES, explain
from turnout.results.names import name_of

MINUTE = 60.0

_PAUSE = 0.25
"""The least number of seconds between two updates of a notebook."""

Bar = tuple[str, int, int, str]
"""A description, the completed work, the total work (0 if unknown), and a note."""

BY_IMPORTANCE = tuple(f"{split}_{figure}" for figure in (*HEADLINES, "loss") for split in ("test", "train"))
"""Columns for the result of a run, which uses the first recorded one."""

_DURING_A_RUN = tuple(
    f"{split}_{figure}" for figure in (*HEADLINES, "loss") for split in ("validation", "test", "train")
)
"""Columns for notes during a run: with validation examples, the test examples are for the result alone."""


class Terminal:
    """Progress bars on a terminal, with notes and times.

    Args:
        console: the terminal.
        live: whether rich shows the bars, as it does on a terminal.
    """

    def __init__(self, console: Console, live: bool = True) -> None:
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
        if live:
            self.shown.start()

    def draw(self, bars: Sequence[Bar], last: bool = False) -> None:
        """Replace the bars; `last` ends the display."""
        for gone in self._tasks.keys() - {what for what, *_ in bars}:
            self.shown.remove_task(self._tasks.pop(gone))
        for what, done, total, note in bars:
            if what not in self._tasks:
                self._tasks[what] = self.shown.add_task(what, total=total or None, note="")
            self.shown.update(self._tasks[what], completed=done, total=total or None, note=note)
        if last:
            with suppress(OSError):  # the run continues if the terminal is closed
                self.shown.stop()

    def say(self, text: str) -> None:
        """Write a line above the bars."""
        self.shown.console.print(text, style="red", highlight=False, markup=False, emoji=False)


class Cell(Terminal):
    """Progress bars in the output of a notebook's cell.

    Args:
        output: the result of ``IPython.display.display(..., display_id=True)``.
    """

    def __init__(self, output: Any) -> None:
        # Rich's own display in notebooks needs ipywidgets.
        super().__init__(Console(file=io.StringIO(), record=True, width=110), live=False)
        self._output, self._drawn, self._said = output, -_PAUSE, ""

    def draw(self, bars: Sequence[Bar], last: bool = False) -> None:
        """Replace the bars, unless they were updated a moment ago and these are not the last."""
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
    """Return the display of a notebook; None outside of notebooks."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    if interactive is None or not hasattr(shell, "kernel"):
        return None
    return Cell(interactive.display.display({"text/plain": ""}, raw=True, display_id=True))


class Lines:
    """Progress as lines, one after each tenth of the rounds or minute, for log files."""

    def __init__(self, console: Console) -> None:
        self._console, self._tenth, self._done = console, -1, 0
        self._begun = self._last = time.monotonic()

    def draw(self, bars: Sequence[Bar], last: bool = False) -> None:
        """Write a line for the only bar if it is due; only the note if no further round is completed."""
        ((_, done, total, note),) = bars
        now, advanced = time.monotonic(), done > self._done
        tenth = 10 * done // total if advanced else self._tenth
        if self._tenth < 0 and advanced:  # the earlier tenths of a resumed run are not reported
            self._tenth = 10 * (done - 1) // total
        if not last and (tenth != self._tenth or now - self._last >= MINUTE):
            self._tenth, self._last = tenth, now
            self.say(", ".join(filter(None, [f"round {done:,} of {total:,}" if advanced else "", note])))
        self._done = done

    def say(self, text: str) -> None:
        """Write a line with the elapsed seconds."""
        text = f"{text}, {time.monotonic() - self._begun:,.0f} s"
        with suppress(OSError):  # the run continues if the terminal is closed
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Notes:
    """Make short notes on a run from the rows of its rounds: the latest accuracy, and dropped updates."""

    def __init__(self) -> None:
        self._accuracy, self._dropped, self._rounds = "", 0, 0

    def __call__(self, row: Mapping[str, Any]) -> str:
        """Process a row of the table of rounds, and return the note."""
        self._accuracy = next(
            (quality(name, row[name], 1) for name in _DURING_A_RUN if row.get(name) is not None),
            self._accuracy,
        )
        now = row.get("num_dropped") or 0
        self._dropped, self._rounds = self._dropped + now, self._rounds + (now > 0)
        return ", ".join(filter(None, [self._accuracy, dropped(self._dropped, self._rounds)]))


def dropped(number: int, rounds: int) -> str:
    """Describe dropped updates: ``"56 updates dropped in 5 rounds"``; empty if there are none."""
    return f"{counted(number, 'update')} dropped in {counted(rounds, 'round')}" if number else ""


def quality(metric: str, value: float, decimals: int) -> str:
    """Format a recorded metric and its value: ``test accuracy 93.3%``, ``test RMSE 0.0213``."""
    shown = f"{value:.{decimals}%}" if metric.endswith("accuracy") else f"{value:.{decimals + 2}g}"
    return f"{name_of(metric)} {shown}"


class Progress(Callback):
    """Show the progress of a run: a bar on a terminal or in a notebook, lines elsewhere.

    Args:
        console: None is standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console, self._notes = console or Console(stderr=True), Notes()
        self._display: Terminal | Lines | None = None
        self._bar: Bar = ("rounds", 0, 0, "")

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Open the display."""
        self._bar = ("rounds", 0, config["rounds"], "")
        kind = Terminal if self._console.is_terminal else Lines
        self._display = cell() or kind(self._console)

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Show the number of completed rounds."""
        self._bar = ("rounds", row["round"], self._bar[2], self._notes(row))
        self._draw(self._bar)

    def on_work(self, what: str, done: int, total: int) -> None:
        """Show the progress of long work within a round."""
        self._draw((*self._bar[:3], f"{what}: {done:,} of {total:,} clients"))

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Close the display, and say whether test examples ended the run."""
        if (note := explain(summary.get("stopped_by") or "")) and self._display is not None:
            self._display.say(note)
        self._draw(self._bar, last=True)

    def _draw(self, bar: Bar, last: bool = False) -> None:
        if self._display is not None:
            self._display.draw([bar], last)
