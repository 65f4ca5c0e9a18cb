"""The live display of a comparison: a bar for all runs, and one for each that is under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TaskID

from turnout.comparison.run import Listener, Update
from turnout.progress import columns


@contextmanager
def display(total: int, progress: bool | Listener, console: Console | None = None) -> Iterator[Listener]:
    """What to tell of every update: the user's own listener, bars, or nothing."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield lambda _: None
    else:
        with Progress(*columns(), console=console, refresh_per_second=4) as bars:
            yield _Bars(bars, total)


class _Bars:
    """Bars that follow the updates; where there is no terminal, a line for each run that ends."""

    def __init__(self, bars: Progress, total: int) -> None:
        self.bars = bars
        self.overall = bars.add_task("all runs", total=total, note="")
        self.tasks: dict[str, TaskID] = {}

    def __call__(self, update: Update) -> None:
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
            self.bars.console.print(f"{update} failed: {update.note}", style="red", highlight=False)
        elif not self.bars.console.is_terminal:
            self.bars.console.print(f"{update}: {update.status}, {update.note}", highlight=False)
