"""Search among settings: run batches of trials with every seed until there are enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from turnout.comparison.compare import RunsFailed, perform_all
from turnout.comparison.display import display
from turnout.comparison.folders import is_finished, load_record, save_order
from turnout.comparison.run import Listener, Resources, Run
from turnout.comparison.study import Study
from turnout.core.checks import CheckpointError
from turnout.experiment import Experiment
from turnout.record import lock
from turnout.reporting.grid import Search
from turnout.reporting.range import Range
from turnout.reporting.records import RunRecord, by_algorithm

Points = Mapping[str, Mapping[str, Any]]
_T = TypeVar("_T")


def search(
    study: Study,
    num_trials: int,
    runs: Callable[[Points], Sequence[Run]],
    make: Callable[[str, Mapping[str, Any]], Callable[[int], Experiment]],
    to_accuracy: float | None,
    *,
    resources: Resources,
    progress: bool | Listener,
) -> Search:
    """Propose, run and judge trials until the study has so many.

    A trial whose run fails counts as the worst, and the search goes on; where all trials of a batch fail, it ends.

    Args:
        study: what proposes.
        num_trials: how many trials.
        runs: returns the runs of points, in folders ``POINT/seed-SEED`` below that of the study.
        make: returns what makes the experiment of a point, given its name, for a seed.
        to_accuracy: the accuracy to reach, where costs until then decide.
        resources: what performs the runs.
        progress: as in `compare`.

    Raises:
        RunsFailed: where all trials of a batch failed. The same call tries them again.
        Stopped: on Ctrl-C; the same call goes on with what was begun.
        CheckpointError: where the trials so far were of other experiments, or of other rounds.
    """
    _check_same(study, make)
    left = max(num_trials - len(study.points), 0)
    with display(left * len(study.seeds), progress) as tell:
        # Other workers may run the same batch: `perform_all` shares its runs, and `_tell` skips what another has told.
        while batch := _with(study, lambda: study.next(num_trials)):
            failures: dict[str, str] = {}
            try:
                done = perform_all(runs(batch), study.folder, resources, tell)
                records = list(done.values())
            except RunsFailed as failed:
                failures = {
                    failure.name: f"seed {failure.seed}: {failure.note}" for failure in reversed(failed.failures)
                }
                if failures.keys() >= batch.keys():
                    raise
                records = failed.records
            result = _sorted(study, batch, records, to_accuracy, failures)
            _with(study, lambda result=result, failures=failures: _tell(study, result, failures))
        folders = [run for name in study.points if name not in study.failures for run in study.runs(name)]
        _with(study, lambda: save_order(study.folder, folders))
    return _sorted(study, study.points, [load_record(run) for run in folders], to_accuracy, study.failures)


def _with(study: Study, function: Callable[[], _T]) -> _T:
    """Call a function that reads or changes a study while no other worker does."""
    with lock.locked(study.folder, patience=lock.PATIENCE):
        return function()


def _tell(study: Study, result: Search, failures: Mapping[str, str]) -> None:
    """Give a study the figures of trials, except of those that another worker has told it."""
    for name in result.points.keys() - study.points.keys():
        score = result.scores.get(name)
        study.tell(name, None if score is None else score.value, failures.get(name, ""))


def _check_same(study: Study, make: Callable[[str, Mapping[str, Any]], Callable[[int], Experiment]]) -> None:
    """Refuse to add to trials of other experiments: holds the first of them against what it would be now."""
    for name, point in study.points.items():
        if name in study.failures:
            continue
        experiment, folder = make(name, point)(study.seeds[0]), study.runs(name)[0]
        experiment = replace(experiment, algorithm=experiment.algorithm.named(name))
        if not is_finished(folder, experiment):
            ended = load_record(folder).history.last_round
            raise CheckpointError(
                f"{study.folder} holds a search whose runs have {ended} rounds, not {experiment.rounds}: give another "
                "folder, or ask for as many rounds"
            )
        return


def _sorted(
    study: Study,
    points: Points,
    records: Sequence[RunRecord],
    to_accuracy: float | None,
    failures: Mapping[str, str],
) -> Search:
    """Return the runs of trials, trial by trial; those of trials that failed are left out."""
    groups = by_algorithm(records)
    axes = {
        axis: tuple(sorted({point[axis] for point in points.values()})) if isinstance(among, Range) else tuple(among)
        for axis, among in study.space.items()
    }
    by_point = {name: groups.get(name, []) if name not in failures else [] for name in points}
    return Search(axes, points, by_point, study.measure, to_accuracy, space=study.space, failures=failures)
