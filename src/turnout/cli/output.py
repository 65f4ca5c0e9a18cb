"""Where the command line writes: results to standard output, everything else beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from turnout.cli.settings import Settings
from turnout.comparison import Stopped
from turnout.comparison.display import display
from turnout.comparison.executors import executor_on
from turnout.comparison.run import Listener, Resources
from turnout.core.checks import ConfigurationError, counted
from turnout.core.display import printable
from turnout.data.federated import FederatedData
from turnout.record import storage
from turnout.reporting import RunRecord
from turnout.reporting.progress import dropped

_WIDE = 1 << 16
"""Columns of what goes to a file or a pipe: nothing is wrapped there."""


def say(text: str, style: str = "") -> None:
    """Write a line for whoever watches."""
    console().print(printable(text, 20_000), style=style, markup=False, highlight=False, soft_wrap=True)


def show(result: RenderableType) -> None:
    """Write a result."""
    wide = None if sys.stdout.isatty() else _WIDE
    Console(width=wide, highlight=False, markup=False, emoji=False).print(Printable(result))


@dataclass(frozen=True)
class Printable:
    """Render without control characters in the text: names in folders and answers may be anybody's."""

    result: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self.result, options):
            yield Segment(text if control else printable(text, len(text)), style, control)


def console() -> Console:
    """Return the console beside standard output, for progress and notices."""
    return Console(stderr=True, markup=False, emoji=False)


def introduce(what: str, settings: Iterable[Settings], data: FederatedData) -> None:
    """Say what is about to run, and which clients were asked for but have nothing to train on."""
    tables = [each.table for each in settings]
    names = {
        section: " and ".join(dict.fromkeys(table[section]["name"] for table in tables))
        for section in ("model", "availability", "pace")
    }
    parts = ", ".join(f"{section} {name}" for section, name in names.items())
    holders, examples = counted(data.num_clients, "client"), counted(len(data.train.x), "training example")
    say(f"{what} on {data.name}: {holders}, {examples}, {parts}")
    if dropped := data.recipe.get("dropped_clients"):
        say(f"{dropped} more got no examples and are left out; data.empty=refuse refuses them instead")


@contextmanager
def resources_of(
    jobs: int | None, threads: int, on: str | None, runs_per_job: int | None, folder: Path
) -> Iterator[Resources]:
    """Yield what performs the runs of a comparison: processes of this machine, or the executor that ``--on`` names."""
    if on is None:
        yield Resources(jobs, threads)
        return
    with executor_on(on, folder) as (executor, several):
        yield Resources(1, threads, executor, several if runs_per_job is None else runs_per_job)


def warn_of_dropped(records: Iterable[RunRecord]) -> None:
    """Say which runs dropped updates, how many and in how many rounds."""
    for record in records:
        rounds, numbers = record.history.column("num_dropped")
        if text := dropped(int(numbers.sum()), int((numbers > 0).sum())):
            whose = f"{record.algorithm}, seed {record.seed}"
            of = f"of {len(rounds):,}, for NaN or infinity in them or in their sum"
            say(f"{whose}: {text} {of}: a smaller step size may help, local.lr=...", style="yellow")


@contextmanager
def watched(total: int, quiet: bool) -> Iterator[Listener]:
    """Bars for so many runs, and a word on how to go on where they are stopped."""
    try:
        with display(total, not quiet, console()) as tell:
            yield tell
    except Stopped as stop:
        raise Stopped(f"{stop}. Go on with the same command") from None


def keep(folder: Path, texts: Mapping[str, str]) -> None:
    """Write tables of all runs into the folder that they share, once no other worker does; by the names of the files."""
    with storage.locked(folder, patience=storage.PATIENCE):
        storage.replace_files(
            {folder / name: partial(Path.write_text, data=text, encoding="utf-8") for name, text in texts.items()}
        )


def announce(folder: Path, write: Callable[[], Path]) -> None:
    """Write a report into a folder, once other workers do not, and say where it is, or why there is none."""
    try:
        with storage.locked(folder, patience=storage.PATIENCE):
            path = write()
    except ConfigurationError as error:
        say(f"no report: {error}", style="yellow")
    else:
        typer.echo(f"report: {path}")
