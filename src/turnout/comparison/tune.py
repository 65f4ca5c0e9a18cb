"""Tune every experiment of a comparison with the same budget, before it is compared on other seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from turnout.comparison.compare import RunsFailed, perform_all
from turnout.comparison.folders import run_folder
from turnout.comparison.planned import numbers_of
from turnout.comparison.run import Resources, Run
from turnout.comparison.tuning import Outcome, Search, Trial, Tuned
from turnout.comparison.update import Listener
from turnout.core.checks import ConfigurationError, count, refuse
from turnout.experiment import Experiment
from turnout.record import storage
from turnout.record.schema import CHOOSING, less_is_better
from turnout.results.records import RunRecord

Make = Callable[..., Experiment]
"""A function of the seed and of one argument for each axis."""

FILE = "tuned.json"
"""The file of the chosen values and costs in the folder of a comparison."""


@dataclass(frozen=True)
class Tune:
    """Tune the experiments of a comparison, all of them with the same budget (see `compare`).

    The candidates of an experiment are raced on the same seeds and compared by validation examples, the range grows until
    the best point lies inside, and no seed of the search is reported. The runs are in ``FOLDER-tuning``, where the same call
    resumes.

    Args:
        budget: client updates for each experiment, after which no further trial begins.
        axes: ascending values > 0 of each axis, for each experiment by name.
        seeds: seeds of the search.

    Raises:
        ConfigurationError: if the budget is below 1.

    Example:
        >>> Tune(budget=100_000, axes={"fedau": {"lr": (0.05, 0.1, 0.2)}}).seeds
        (100, 101, 102)
    """

    budget: int
    axes: Mapping[str, Mapping[str, Sequence[float]]]
    seeds: Sequence[int] = (100, 101, 102)

    def __post_init__(self) -> None:
        count("tune budget", self.budget)

    def choose(
        self,
        experiments: Mapping[str, Make],
        reported: int | Iterable[int],
        folder: Path,
        resources: Resources,
        progress: bool | Listener = False,
    ) -> dict[str, Tuned]:
        """Tune every experiment, save the choices in ``folder/tuned.json``, and return them by name.

        Args:
            experiments: a function of the seed and of the axes, for each name.
            reported: seeds of the comparison.
            folder: folder of the comparison; the runs of the search are beside it.
            resources, progress: as in `perform_all`.

        Raises:
            ConfigurationError: if an experiment has no axes or no validation examples, or a seed is reported as well.
            RunsFailed: if all candidates fail.
        """
        if both := sorted({*numbers_of(self.seeds)} & {*numbers_of(reported)}):
            raise ConfigurationError(f"seeds: {both} both choose and are reported: give the search other seeds")
        for name, make in experiments.items():
            self._check(name, make)
        beside, tuned = folder.with_name(f"{folder.name}-tuning"), {}
        for name, make in experiments.items():
            trials = _Trials(name, make, beside / name, resources, progress)
            rounds = make(self.seeds[0]).rounds
            tuned[name] = Search(self.axes[name], rounds, tuple(self.seeds), self.budget, trials)()
        storage.save(folder, {FILE: storage.json_writer({name: asdict(each) for name, each in tuned.items()})})
        return tuned

    def _check(self, name: str, make: Make) -> None:
        """Check that an experiment can be tuned."""
        if not (axes := self.axes.get(name)):
            raise refuse(
                f"axes of {name}", given=axes, needed="values of at least one axis, such as {'lr': (0.05, 0.1)}"
            )
        experiment = make(self.seeds[0], **{axis: values[0] for axis, values in axes.items()})
        if not isinstance(experiment, Experiment):
            raise refuse(f"experiments[{name!r}]", given=experiment, needed="a function that returns an Experiment")
        if not experiment.data.is_validated:
            raise ConfigurationError(
                f"{name}: tuning needs validation examples, so that test examples do not choose: write "
                "validation_fraction=0.2 in split"
            )


@dataclass
class _Trials:
    """Performs the steps of the search of one experiment, each in a folder of its own."""

    name: str
    make: Make
    folder: Path
    resources: Resources
    progress: bool | Listener
    num_steps: int = 0

    def __call__(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Perform trials, and return their outcomes; a run that diverges is the worst."""
        if not trials:
            return []
        self.num_steps += 1
        folder = self.folder / f"step-{self.num_steps}"
        runs = [self._run(trial, folder) for trial in trials]
        try:
            done = perform_all(runs, folder, self.resources, self.progress)
        except RunsFailed as failed:
            if not failed.done and len(runs) > 1:
                raise
            done = failed.done
        return [_outcome(done[run]) if run in done else Outcome(-math.inf, 0) for run in runs]

    def _run(self, trial: Trial, folder: Path) -> Run:
        """Return the run of a trial."""
        values = "_".join(f"{axis}-{value:.6g}" for axis, value in trial.values.items())
        name = f"{self.name}_{values}"
        make = partial(_shortened, self.make, dict(trial.values), trial.rounds)
        return Run(name, trial.seed, make, run_folder(folder, name, trial.seed))


def _shortened(make: Make, values: Mapping[str, float], rounds: int, seed: int) -> Experiment:
    """Return the experiment of a trial, which is evaluated at its end alone."""
    return replace(make(seed, **values), rounds=rounds, evaluate_every=rounds)


def _outcome(record: RunRecord) -> Outcome:
    """Return the validation figure of a run, the larger the better, and its client updates.

    Raises:
        ConfigurationError: if the run recorded none.
    """
    history = record.history
    names = [name for name in (CHOOSING[0], "validation_loss", *history.column_names) if name.startswith("validation_")]
    name = next((name for name in names if name in history.column_names and history.has_values(name)), None)
    if name is None:
        raise ConfigurationError(
            f"{record.algorithm}: tuning needs a figure of validation examples, such as an accuracy"
        )
    figure = float(history.column(name)[1][-1])
    updates = int(history.column("num_participants")[1].sum())
    figure = -figure if less_is_better(name) else figure
    return Outcome(-math.inf if math.isnan(figure) else figure, updates)
