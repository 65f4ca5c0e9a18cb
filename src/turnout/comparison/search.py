"""Search over settings: run batches of trials with every seed until their number is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnout.comparison.compare import RunsFailed, perform_all
from turnout.comparison.display import display
from turnout.comparison.folders import is_finished, load_record, save_order
from turnout.comparison.run import Resources, Run
from turnout.comparison.study import Study
from turnout.comparison.update import Listener
from turnout.core.checks import CheckpointError
from turnout.experiment import Experiment
from turnout.record import lock, outer
from turnout.results.grid import Search
from turnout.results.range import Range
from turnout.results.records import RunRecord, by_algorithm

Points = Mapping[str, Mapping[str, Any]]
"""The values of each axis, by the name of the trial."""


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
    """Propose, run and score trials until the study has `num_trials` of them.

    A trial with a failed run counts as the worst, and the search continues; it ends where all trials of a batch fail.

    Args:
        study: proposes the trials.
        num_trials: number of trials in total.
        runs: function that returns the runs of points, in folders ``POINT/seed-SEED`` below that of the study.
        make: function that returns the function of the seed that makes the experiment of a named point.
        to_accuracy: the target, if the costs of reaching it decide.
        resources: resources for the runs.
        progress: as in `compare`.

    Raises:
        RunsFailed: if all trials of a batch failed. The same call tries them again.
        Stopped: if the user presses Ctrl-C; the same call resumes.
        CheckpointError: if the folder holds trials of other experiments or with another number of rounds.
    """
    _check_same(study, make)
    left = max(num_trials - len(study.points), 0)
    with outer.watched(study.folder), display(left * len(study.seeds), progress) as tell:
        # Other workers may run the same batch: `perform_all` divides its runs among them, and `_record` skips the trials
        # that another worker has recorded.
        while batch := study.next(num_trials):
            failures: dict[str, str] = {}
            try:
                earlier = [run for name in study.points for run in study.runs(name)]
                done = perform_all(runs(batch), study.folder, resources, tell, earlier)
                records = list(done.values())
            except RunsFailed as failed:
                failures = {
                    failure.name: f"seed {failure.seed}: {failure.note}" for failure in reversed(failed.failures)
                }
                if failures.keys() >= batch.keys():
                    raise
                records = failed.records
            _record(study, _result(study, batch, records, to_accuracy, failures), failures)
        folders = [run for name in study.points if name not in study.failures for run in study.runs(name)]
        save_order(study.folder, folders)
    return _result(study, study.points, [load_record(run) for run in folders], to_accuracy, study.failures)


def _record(study: Study, result: Search, failures: Mapping[str, str]) -> None:
    """Record the figures of trials, except of those that another worker has recorded."""
    with lock.locked(study.folder, patience=lock.PATIENCE):
        for name in result.points.keys() - study.points.keys():
            score = result.scores.get(name)
            study.tell(name, None if score is None else score.value, failures.get(name, ""))


def _check_same(study: Study, make: Callable[[str, Mapping[str, Any]], Callable[[int], Experiment]]) -> None:
    """Raise an error if the first recorded trial was of another experiment than it would be now."""
    points = study.points
    if (name := next((name for name in points if name not in study.failures), None)) is None:
        return
    experiment, folder = make(name, points[name])(study.seeds[0]), study.runs(name)[0]
    experiment = replace(experiment, algorithm=experiment.algorithm.named(name))
    if not is_finished(folder, experiment):
        ended = load_record(folder).history.last_round
        raise CheckpointError(
            f"{study.folder} holds a search whose runs have {ended} rounds, not {experiment.rounds}: give another "
            "folder, or ask for as many rounds"
        )


def _result(
    study: Study,
    points: Points,
    records: Sequence[RunRecord],
    to_accuracy: float | None,
    failures: Mapping[str, str],
) -> Search:
    """Group the runs of trials by trial; those of failed trials are left out."""
    groups = by_algorithm(records)
    axes = {
        axis: tuple(sorted({point[axis] for point in points.values()})) if isinstance(among, Range) else tuple(among)
        for axis, among in study.space.items()
    }
    by_point = {name: groups.get(name, []) if name not in failures else [] for name in points}
    return Search(axes, points, by_point, study.measure, to_accuracy, space=study.space, failures=failures)
