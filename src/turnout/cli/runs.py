"""Perform runs, and write their results, for all commands that train."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from turnout.cli.console import console, say
from turnout.cli.runs_options import RunsOptions
from turnout.cli.settings import Settings
from turnout.comparison.compare import RunsFailed, Stopped, perform_all
from turnout.comparison.display import display
from turnout.comparison.executors import executor_on
from turnout.comparison.run import Resources, Run
from turnout.comparison.update import Listener
from turnout.core.checks import ConfigurationError, counted
from turnout.data.federated import FederatedData
from turnout.protocol.published import Published
from turnout.record import lock, storage
from turnout.reporting.progress import dropped
from turnout.results.records import RunRecord


def introduce(what: str, settings: Iterable[Settings], data: FederatedData) -> None:
    """Print a summary of the runs, and the number of clients without examples.

    With differential privacy the number of examples is left out, because it must not be published.
    """
    several = list(settings)
    tables, published = [run.table for run in several], all(Published(run.algorithm()).data for run in several)
    parts = ", ".join(
        f"{section} {' and '.join(dict.fromkeys(table[section]['name'] for table in tables))}"
        for section in ("model", "availability", "pace")
    )
    held = [counted(data.num_clients, "client"), *[counted(len(data.train.x), "training example")] * published]
    say(f"{what} on {data.name}: {', '.join([*held, parts])}")
    if published and (empty := data.recipe.get("dropped_clients")):
        say(f"{empty} more have no examples and are left out; data.empty=refuse makes this an error")


@contextmanager
def performing(
    options: RunsOptions, resources: Resources, folder: Path, total: int
) -> Iterator[tuple[Resources, Listener]]:
    """Yield the executor of runs, and the listener that shows their progress.

    Args:
        options: options of the command line.
        resources: result of `RunsOptions.resources`, which ``--on`` replaces.
        folder: folder of the runs.
        total: number of runs.

    Raises:
        Stopped: if they were stopped, with advice on how to resume them.
    """
    with (
        resources_on(options, resources, folder) as performers,
        display(total, not options.quiet, console()) as listener,
    ):
        yield performers, listener


@contextmanager
def resources_on(options: RunsOptions, resources: Resources, folder: Path) -> Iterator[Resources]:
    """Yield the executor of ``--on`` in place of `resources`, or these if there is none.

    Raises:
        Stopped: if runs were stopped, with advice on how to resume them.
    """
    try:
        if options.on is None:
            yield resources
            return
        with executor_on(options.on, folder) as (executor, several):
            runs_per_job = several if options.runs_per_job is None else options.runs_per_job
            yield Resources(1, options.threads, executor, runs_per_job, lockstep=options.lockstep)
    except Stopped as stop:
        raise Stopped(f"{stop}. Resume with the same command") from None


def perform(
    options: RunsOptions, runs: Sequence[Run], folder: Path, resources: Resources, conclude: Callable[..., None]
) -> None:
    """Perform runs in parallel, and conclude the finished ones, even if others failed.

    Args:
        options, folder, resources: as in `performing`.
        runs: runs to perform.
        conclude: called with the record of each run, and with a note if some failed.

    Raises:
        RunsFailed: if runs failed, after the others were concluded.
        Stopped: if the user presses Ctrl-C.
    """
    try:
        with performing(options, resources, folder, len(runs)) as (performers, listener):
            records = perform_all(runs, folder, performers, listener)
    except RunsFailed as failed:
        if failed.done:
            conclude(failed.done, f"{len(failed.failures)} of {len(runs)} runs failed")
        raise
    conclude(records)


def warn_of_dropped(records: Iterable[RunRecord]) -> None:
    """Warn of runs that dropped updates, with the numbers of updates and rounds."""
    for record in records:
        rounds, numbers = record.history.column("num_dropped")
        if text := dropped(int(numbers.sum()), int((numbers > 0).sum())):
            whose = f"{record.algorithm}, seed {record.seed}"
            of = f"of {len(rounds):,}, because of NaN or infinity in them or in their sum"
            say(f"{whose}: {text} {of}: a smaller step size may help, local.lr=...", style="yellow")


def write_tables(folder: Path, texts: Mapping[str, str]) -> None:
    """Write text files to the folder of all runs, when no other worker does."""
    with lock.locked(folder, patience=lock.PATIENCE):
        storage.replace_files({folder / name: storage.text_writer(text) for name, text in texts.items()})
    typer.echo(f"runs and tables: {folder}")


def write_page(folder: Path, write: Callable[[Path], Path]) -> None:
    """Write ``report.html`` to the folder of all runs, when no other worker does, and print its path or an error.

    Args:
        folder: folder of the runs.
        write: function that writes the page at a path, and returns the path.
    """
    try:
        with lock.locked(folder, patience=lock.PATIENCE):
            path = write(folder / "report.html")
    except ConfigurationError as error:
        say(f"no report: {error}", style="yellow")
    else:
        typer.echo(f"report: {path}")
