"""Build and check experiments, perform runs, and write results, for all commands that train."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import typer

from turnout.cli import user_code
from turnout.cli.console import console, say
from turnout.cli.options import Table
from turnout.cli.runs_options import RunsOptions
from turnout.cli.settings import Settings
from turnout.comparison.checks import check_experiments
from turnout.comparison.compare import RunsFailed, Stopped, perform_all, runs_of
from turnout.comparison.display import display
from turnout.comparison.executors import executor_on
from turnout.comparison.folders import OtherRuns, check_order, is_finished, run_folder
from turnout.comparison.run import Resources, Run
from turnout.comparison.update import Listener
from turnout.core.checks import ConfigurationError, DataError, counted
from turnout.data.federated import FederatedData
from turnout.experiment import Experiment
from turnout.protocol.published import Published
from turnout.record import lock, storage
from turnout.reporting.progress import dropped
from turnout.results.records import RunRecord

SETTINGS = "settings.json"
"""The file of settings in the folder of a run."""


def save(settings: Settings, folder: Path) -> None:
    """Save the settings of a run in its folder, unless they are already there, because another worker may use it."""
    path = folder / SETTINGS
    if not storage.is_whole(path) or _recorded(folder) != settings.table:
        with lock.locked(folder, patience=lock.PATIENCE):
            storage.save(folder, {SETTINGS: storage.json_writer(settings.table)})


def saved(folder: Path, code: Sequence[Path] = ()) -> Table:
    """Load the settings of the run in a folder, for use.

    Args:
        folder: folder of the run.
        code: trusted files that the settings may name.

    Raises:
        CheckpointError: if the folder has none.
        ConfigurationError: if they name untrusted code.
    """
    table = _recorded(folder)
    user_code.refuse_code(table, folder, code)
    return table


def _recorded(folder: Path) -> Table:
    """Load the settings of the run in a folder, for comparison only, because they may name untrusted code."""
    return storage.read_json(
        folder / SETTINGS, instead="give the folder of a run that `turnout run` or `turnout compare` made"
    )


@contextmanager
def about(name: str) -> Iterator[None]:
    """Prefix errors about settings and data with a name."""
    try:
        yield
    except (ConfigurationError, DataError) as error:
        raise type(error)(f"{name}: {error}") from error


@dataclass(frozen=True, eq=False)
class Plan:
    """Planned runs: one for each of several settings and each seed.

    Attributes:
        settings: settings by name.
        seeds: seeds of the runs of each setting.
        folder: output folder.
        group: second part of their name, such as the panel of a reproduction.
    """

    settings: Mapping[str, Settings]
    seeds: list[int]
    folder: Path
    group: str = ""

    def experiments(self, seed: int) -> dict[str, Experiment]:
        """Build the experiments with a seed; those with the same data share them.

        Raises:
            ConfigurationError: if settings are invalid, with their names.
            ConfigurationError, DataError: if data cannot be loaded.
        """
        loaded: dict[str, FederatedData] = {}
        made: dict[str, Experiment] = {}
        for name, settings in self.settings.items():
            seeded = settings.seeded(seed)
            key = json.dumps(seeded.table["data"], sort_keys=True)
            if key not in loaded:
                loaded[key] = seeded.data()  # its errors name the data, and concern all experiments on them
            with about(name):
                made[name] = seeded.experiment(loaded[key])
        return made

    def check(self, metric: str | None = None, target: bool = False) -> FederatedData:
        """Check experiments before anything is trained, and return the data of the first run.

        Args:
            metric: a column or cost that all have to record.
            target: whether there is a target accuracy.

        Raises:
            ConfigurationError, DataError: if an experiment is invalid.
        """
        first = self.experiments(self.seeds[0])
        check_experiments({name: lambda made=made: made for name, made in first.items()}, metric, target)
        return next(iter(first.values())).data

    def placed(self, fits: Callable[[Plan], None], *, numbered: bool) -> Plan:
        """Return the plan, in the next folder with a number if `numbered` and its own folder has other runs.

        Args:
            fits: `check_folder` or `check_order`.
            numbered: whether the folder may change.

        Raises:
            OtherRuns: if its folder has other runs and is not `numbered`.
        """
        for number in count(1):
            plan = replace(self, folder=Path(f"{self.folder}-{number}") if number > 1 else self.folder)
            try:
                fits(plan)
                return plan
            except OtherRuns:
                if not numbered:
                    raise
        raise AssertionError("unreachable")

    def check_folder(self) -> None:
        """Check that the folder has no other runs. Only experiments whose folder has a run are built.

        Raises:
            OtherRuns: if it has.
        """
        for seed in self.seeds:
            folders = {name: run_folder(self.folder, name, seed) for name in self.settings}
            begun = {name: self.settings[name] for name, run in folders.items() if (run / "config.json").exists()}
            for name, experiment in replace(self, settings=begun).experiments(seed).items():
                is_finished(folders[name], experiment)
        self.check_order()

    def check_order(self) -> None:
        """Check that the folder is not that of another comparison."""
        runs = [run_folder(self.folder, name, seed) for name in self.settings for seed in self.seeds]
        check_order(self.folder, [str(run.relative_to(self.folder)) for run in runs])

    def runs(self, checkpoint_every: int | None = None) -> list[Run]:
        """Save the settings of every run in its folder, for `turnout run --resume` and reports, and return the runs."""
        runs = runs_of(self.settings, self.seeds, self.folder, checkpoint_every, self.group)
        for run in runs:
            save(self.settings[run.name].seeded(run.seed), run.folder)
        return runs


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
        storage.replace_files(
            {folder / name: partial(Path.write_text, data=text, encoding="utf-8") for name, text in texts.items()}
        )
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
