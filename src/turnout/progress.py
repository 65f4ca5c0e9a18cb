"""The live display of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

if TYPE_CHECKING:
    from turnout.simulation.simulation import Simulation

Progress = Callable[["Simulation"], None]
"""What is called with the simulation after every round."""


def columns() -> tuple[TextColumn | BarColumn | MofNCompleteColumn | TimeElapsedColumn | TimeRemainingColumn, ...]:
    """The columns of every progress bar here: what, how far, how well, how long."""
    return (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )


def note(row: Mapping[str, Any]) -> str:
    """The latest accuracy in a few characters."""
    for name in ("test_accuracy", "train_accuracy"):
        if row.get(name) is not None:
            return f"{name.replace('_', ' ')} {row[name]:.1%}"
    return ""


@contextmanager
def bar(rounds: int, progress: bool | Progress, console: Console | None = None) -> Iterator[Progress]:
    """A function to call after every round: the user's own, a bar's (on `console`), or one that does nothing."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield lambda _: None
        return
    with RichProgress(*columns(), console=console, refresh_per_second=4) as display:
        task = display.add_task("rounds", total=rounds, note="")

        def report(simulation: Simulation) -> None:
            display.update(task, completed=simulation.state.version)
            if text := note(simulation.row):
                display.update(task, note=text)

        yield report
