"""Propose the trials of a search with Optuna, and store them in an SQLite file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from turnout.comparison.folders import run_folder
from turnout.core.checks import CheckpointError, count, known_name, refuse
from turnout.core.extras import imported
from turnout.record import lock
from turnout.record.contents import VALUE_ERRORS
from turnout.results.grid import written
from turnout.results.measure import Measure
from turnout.results.range import Range

if TYPE_CHECKING:
    import optuna

FILE = "study.db"
Sampler = Literal["tpe", "random"]
Space = Mapping[str, Range | Sequence[Any]]
"""The range or the values of each axis."""


@dataclass(eq=False)
class Study:
    """Propose trials and record their results, starting from those in the folder.

    Trial n is a function of the seed, of n, and of the results of earlier batches. A study that is killed and resumed
    therefore proposes the same trials.

    Args:
        folder: folder that contains `FILE`.
        space: the range or the values of each axis.
        measure: measure to be optimized.
        seeds: seeds of the runs of each trial.
        sampler: ``"tpe"``, the tree-structured Parzen estimator, or ``"random"``.
        sampler_seed: seed of the sampler.
        trials_at_once: the size of a batch, which is proposed before the results of any of its trials.

    Raises:
        ConfigurationError: if optuna is not installed, or for an unknown sampler.
        CheckpointError: if the folder holds another study, or its file cannot be used, which methods also raise.
    """

    folder: Path
    space: Space
    measure: Measure
    seeds: Sequence[int]
    _: KW_ONLY
    sampler: str = "tpe"
    sampler_seed: int = 0
    trials_at_once: int = 4

    def __post_init__(self) -> None:
        optuna = imported("optuna", "a search", ".[search]")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        from sqlalchemy import URL  # which Optuna brings

        known_name("sampler", self.sampler, get_args(Sampler))
        count("sampler_seed", self.sampler_seed, least=0)
        count("trials_at_once", self.trials_at_once)
        # Another worker may be creating it, too.
        with lock.locked(self.folder, patience=lock.PATIENCE), self._stored():
            self._study = optuna.create_study(
                storage=str(URL.create("sqlite", database=str((self.folder / FILE).resolve()))),
                study_name="turnout",
                direction="minimize" if self.measure.less_is_better else "maximize",
                load_if_exists=True,
            )
            options = {"grid": _written(self.space), "metric": str(self.measure), "seeds": list(self.seeds)}
            options |= {name: getattr(self, name) for name in ("sampler", "sampler_seed", "trials_at_once")}
            self._check_same(options)

    @contextmanager
    def _stored(self) -> Iterator[None]:
        """Convert errors of the database, which is damaged, of another kind, or cannot be written.

        Raises:
            CheckpointError: with the path of the file and the first line of the error.
        """
        from optuna.exceptions import OptunaError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (OptunaError, SQLAlchemyError, *VALUE_ERRORS) as error:
            if isinstance(error, CheckpointError):
                raise
            cause = str(getattr(error, "orig", None) or error.__cause__ or error) or repr(error)
            raise CheckpointError(
                f"{self.folder / FILE} cannot be used ({cause.splitlines()[0]}): free some space, restore it from a copy, "
                "or give another folder"
            ) from error

    def _check_same(self, options: dict[str, Any]) -> None:
        """Save the options of a new study; raise an error if the folder holds a study with other options."""
        attributes = self._study.user_attrs
        for key, value in options.items():
            if key in attributes and attributes[key] != value:
                raise CheckpointError(
                    f"{self.folder / FILE} holds a search with {key} {attributes[key]}, not {value}: give another folder, or "
                    "ask for the same"
                )
            if key not in attributes:
                self._study.set_user_attr(key, value)

    def next(self, num_trials: int) -> dict[str, dict[str, Any]]:
        """Return the next points by name: the rest of a batch, or a new batch; empty once there are `num_trials`."""
        with lock.locked(self.folder, patience=lock.PATIENCE), self._stored():
            known = self._study.get_trials(deepcopy=False)
            waiting = any(not trial.state.is_finished() for trial in known)
            end = -(-len(known) // self.trials_at_once) * self.trials_at_once
            if not waiting and end == len(known):
                end += self.trials_at_once
            for number in range(len(known), min(end, num_trials)):
                self._study.add_trial(self._drawn(number))
            return self._points(finished=False)

    def tell(self, name: str, value: float | None, failure: str = "") -> None:
        """Record the figure of a trial; None, NaN and failures count as the worst."""
        with self._stored():
            if failure:
                self._study.set_user_attr("failures", {**self.failures, name: failure})
            figure = self.measure.worst if value is None or math.isnan(value) else value
            self._study.tell(int(name.removeprefix("trial-")), figure)

    def runs(self, name: str) -> list[Path]:
        """Return the folders of a trial's runs, one per seed."""
        return [run_folder(self.folder, name, seed) for seed in self.seeds]

    @property
    def points(self) -> dict[str, dict[str, Any]]:
        """The trials that have a result, by name."""
        return self._points(finished=True)

    @property
    def failures(self) -> dict[str, str]:
        """The reasons why trials failed, by name."""
        with self._stored():
            return dict(self._study.user_attrs.get("failures", {}))

    def _points(self, finished: bool) -> dict[str, dict[str, Any]]:
        """Return the trials with or without a result, by name."""
        with self._stored():
            trials = [
                trial for trial in self._study.get_trials(deepcopy=False) if trial.state.is_finished() == finished
            ]
            return {f"trial-{trial.number}": self._point(trial.params) for trial in trials}

    def _drawn(self, number: int) -> optuna.trial.FrozenTrial:
        """Return a new trial, to be stored in one transaction.

        Optuna stores the parameters of an asked trial one by one, so that a kill or a full disk leaves an incomplete trial.
        Therefore a copy of the study in memory, with the same earlier trials, is asked for the same trial.
        """
        import optuna

        kind = optuna.samplers.RandomSampler if self.sampler == "random" else optuna.samplers.TPESampler
        # Each trial has a sampler of its own, so that a study that is killed loses no state of it.
        sampler = kind(seed=int(np.random.SeedSequence([self.sampler_seed, number]).generate_state(1)[0]))
        scratch = optuna.create_study(direction=self._study.direction, sampler=sampler)
        scratch.add_trials(self._study.get_trials(deepcopy=False))
        drawn = scratch.ask({axis: _distribution(among) for axis, among in self.space.items()})
        return optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING, params=drawn.params, distributions=drawn.distributions
        )

    def _point(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the parameters of an Optuna trial to values of the axes."""
        point = {}
        for axis, among in self.space.items():
            if isinstance(among, Range):
                point[axis] = among.rounded(params[axis])
            else:
                point[axis] = among[list(map(written, among)).index(params[axis])]
        return point


def space_of(grid: Any) -> Space:
    """Return a grid as a search space, after checks.

    Raises:
        ConfigurationError: if a grid has no axes, an axis is neither a range nor values, or a value is repeated.
    """
    if not isinstance(grid, Mapping) or not grid:
        raise refuse(
            "grid", given=grid, needed="a range or values for at least one setting, such as {'local.lr': [0.01, 0.1]}"
        )
    for axis, among in grid.items():
        if isinstance(among, Range):
            continue
        if not isinstance(among, list | tuple) or not among:
            raise refuse(f"grid {axis}", given=among, needed="a list of values, or a range")
        if len(set(map(written, among))) < len(among):
            raise refuse(f"grid {axis}", given=among, needed="each value once")
    return grid


def corners(space: Space) -> list[dict[str, Any]]:
    """Return points that cover every value and both ends of every range, as many as the longest axis has values."""
    ends = {
        axis: (among.low, among.high) if isinstance(among, Range) else tuple(among) for axis, among in space.items()
    }
    most = max(map(len, ends.values()))
    return [{axis: values[i % len(values)] for axis, values in ends.items()} for i in range(most)]


def _written(space: Space) -> dict[str, str | list[str]]:
    """Return the axes as texts, by which a study recognizes them."""
    return {
        axis: str(among) if isinstance(among, Range) else list(map(written, among)) for axis, among in space.items()
    }


def _distribution(among: Range | Sequence[Any]) -> optuna.distributions.BaseDistribution:
    """Return the Optuna distribution of an axis; values are represented by their text, which a database can hold."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(among, Range):
        return CategoricalDistribution(list(map(written, among)))
    if among.whole:
        return IntDistribution(int(among.low), int(among.high), log=among.log)
    return FloatDistribution(among.low, among.high, log=among.log)
