"""Plan the runs of one or several settings, check their experiments, and keep their settings in the folders of runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from turnout.cli import user_code
from turnout.cli.options import Table
from turnout.cli.settings import Settings
from turnout.comparison.folders import OtherRuns, check_order, is_finished, run_folder
from turnout.comparison.planned import check_experiments, runs_of
from turnout.comparison.run import Run
from turnout.core.checks import ConfigurationError, DataError
from turnout.data.federated import FederatedData
from turnout.experiment import Experiment
from turnout.record import lock, storage

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
