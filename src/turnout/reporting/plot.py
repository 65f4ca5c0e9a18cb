"""Plot single figures of a report from results, in notebooks and scripts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import ConfigurationError, known_name
from turnout.record.query import History
from turnout.reporting import client_figures
from turnout.reporting.class_figures import calibration_figure, confusion_figure
from turnout.reporting.client_figures import gains_figure
from turnout.reporting.curves import curves
from turnout.reporting.progress import BY_IMPORTANCE
from turnout.results.gains import needed
from turnout.results.influence import records_influence
from turnout.results.records import RunRecord, client_split, has_column, recorded_columns
from turnout.results.scored import Scored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OTHERS = {
    "clients": client_figures.client_cdf,
    "weights": client_figures.weights_against_rates,
    "influence": client_figures.influence_figure,
    "gains": gains_figure,
    "confusion": confusion_figure,
    "calibration": calibration_figure,
}
_WHY = {
    "clients": "no accuracies of clients were recorded",
    "weights": "participation rates or weights are unknown, or all weights are alike",
    "influence": "they are not asynchronous",
    **dict.fromkeys(("confusion", "calibration"), "no predictions on test examples were counted"),
}
"""The reason why a run is missing from a plot."""


def plot(runs: Mapping[str, Scored] | Sequence[RunRecord], what: str | None = None) -> Figure:
    """Plot runs in one matplotlib figure, which notebooks show and ``savefig`` writes.

    Args:
        runs: results by name, or the records of `compare`, whose seeds become a mean and a band.
        what: a recorded column such as ``"test_loss"``, against rounds; or ``"clients"`` (distribution of accuracy),
            ``"weights"`` (against participation rates), ``"influence"`` (of clients in asynchronous runs), ``"gains"`` (of
            clients over `turnout.algorithms.local` and `turnout.centralized`), ``"confusion"`` (labels and predictions),
            ``"calibration"`` (accuracy against confidence) or ``"participation"`` (of clients in the first run). None is the
            test accuracy, or the first recorded column of test error, training accuracy and loss. Runs that lack the data
            are left out with a warning.

    Example:
        >>> import turnout as to
        >>> data = to.data.digits().split(to.partition.Iid(), num_clients=10)
        >>> results = {f"lr {lr}": to.Experiment(data=data, model=to.models.Logistic(), rounds=3,
        ...     algorithm=to.fedavg(to.Sgd(lr=lr))).run() for lr in (0.01, 0.1)}
        >>> to.plot(results).axes[0].get_ylabel()
        'test accuracy (%)'

    Raises:
        ConfigurationError: if there are no runs, a plot is unknown, or matplotlib is not installed.
        DataError: if no run recorded the data.
    """
    records = _records(runs)
    recorded = sorted(recorded_columns(records))
    known = [*recorded, *_OTHERS, "participation"]
    default = next((name for name in BY_IMPORTANCE if has_column(records, name)), "local_loss")
    what = default if what is None else known_name("plot", what, known)
    _warn_of_missing(records, what)
    if what == "participation":
        return client_figures.participation_raster(records[0])
    return _OTHERS[what](records) if what in _OTHERS else curves(records, what, smooth=True)


def _warn_of_missing(records: Sequence[RunRecord], what: str) -> None:
    """Warn of runs that a plot leaves out; if it leaves out all, plotting raises an error."""
    if what == "participation":
        others, why = list(records[1:]), "it shows one run"
    else:
        shows = _shows(records, what)
        others, why = [record for record in records if not shows(record)], _WHY.get(what, f"no {what} was recorded")
    if others and len(others) < len(records):
        names = ", ".join(f"{record.algorithm} (seed {record.seed})" for record in others)
        warnings.warn(f"the plot of {what} leaves out {names}: {why}", UserWarning, stacklevel=3)


def _shows(records: Sequence[RunRecord], what: str) -> Callable[[RunRecord], bool]:
    """Return a function that returns whether a run has the data of a plot."""
    if what == "influence":
        return records_influence
    if what in ("confusion", "calibration"):
        return lambda record: bool(len(record.history.predictions))
    if what == "gains":
        names = needed(records).scores
        return lambda record: record.algorithm in names
    if what == "weights":
        points = client_figures.weight_points(records)
        return lambda record: record.algorithm in points
    if what == "clients":
        column = f"{client_split(records)}_accuracy"
        return lambda record: bool(np.isfinite(record.history.client_column(column)).any())
    return lambda record: (
        what in record.history.column_names and bool(np.isfinite(record.history.column(what)[1]).any())
    )


def _records(runs: Mapping[str, Scored] | Sequence[RunRecord]) -> list[RunRecord]:
    """Convert runs to records."""
    if isinstance(runs, Mapping):
        for name, result in runs.items():
            if not isinstance(getattr(result, "history", None), History):
                raise ConfigurationError(
                    f"plot() takes results, which Experiment.run() gives, got {result!r} as {name!r}"
                )
        runs = [RunRecord(name, 0, result.history) for name, result in runs.items()]
    if not runs or not all(isinstance(run, RunRecord) for run in runs):
        raise ConfigurationError(
            f"plot() takes results by name, such as {{'fedau': result}}, or what compare() returned, got {runs!r}"
        )
    return list(runs)
