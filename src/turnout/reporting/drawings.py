"""Make the figures of a report, each with a title, a caption and an alternative text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.record.schema import HEADLINES
from turnout.reporting import class_figures, client_figures, curves
from turnout.reporting.client_figures import gains_figure
from turnout.reporting.curves import styles
from turnout.reporting.page import Drawing, draw
from turnout.reporting.partition_figure import partition_figure
from turnout.reporting.progress import BY_IMPORTANCE
from turnout.results.column import APPEAL, column_of
from turnout.results.measure import Target, accuracy_target
from turnout.results.names import name_of
from turnout.results.records import RunRecord, client_split, has_column, recorded_columns
from turnout.results.significance import Row
from turnout.results.table import by_labels

if TYPE_CHECKING:
    from turnout.data.federated import FederatedData


def split_name(records: Sequence[RunRecord]) -> str:
    """Return the examples on which clients are compared: ``"test"`` or ``"training"``."""
    return {"test": "test", "train": "training"}[client_split(records)]


def training(records: Sequence[RunRecord], rows: Sequence[Row]) -> list[Drawing]:
    """Plot accuracy and loss against rounds."""
    drawn, recorded = [], _metrics(records)
    for metric in BY_IMPORTANCE:
        if metric.partition("_")[2] in (*recorded, "loss"):
            ending = [row for row in rows if metric in row.figures]
            ends = ", ".join(f"{row.algorithm} {column_of(metric).show(row.figures[metric])}" for row in ending)
            drawn.append(_curve(records, metric, _title(metric), f" Final values: {ends}." if ends else ""))
    return sorted(drawn, key=lambda drawing: not drawing.svg)


def _title(column: str) -> str:
    """Return the display name of a column, with a capital."""
    return name_of(column)[0].upper() + name_of(column)[1:]


def _curve(records: Sequence[RunRecord], metric: str, title: str, note: str = "", smooth: bool = True) -> Drawing:
    """Plot one column against rounds."""
    alt = f"{title} against rounds, one line per algorithm.{note}"
    return draw(title, "", alt, lambda: curves.curves(records, metric, smooth))


def of_labels(records: Sequence[RunRecord], rows: Sequence[Row]) -> list[Drawing]:
    """Plot the accuracy of each group of labels against rounds."""
    return [_curve(records, key, column_of(key).title.removesuffix(" (%)").capitalize()) for key in by_labels(rows)]


def requirements(records: Sequence[RunRecord]) -> list[Drawing]:
    """Plot the recorded columns about the requirements of clients against rounds."""
    recorded = recorded_columns(records)
    names = [name for keys in APPEAL.values() for name in keys if name in recorded]
    return [_curve(records, name, _title(name), smooth=False) for name in names]


def of_clients(records: Sequence[RunRecord], rows: Sequence[Row]) -> dict[str, Drawing]:
    """Plot the accuracy, weights and participation of clients."""
    split, names = split_name(records), ", ".join(row.algorithm for row in rows)
    shown = next((record for record in records if len(record.history.participation)), records[0])
    color = styles(records)[shown.algorithm]["color"]
    order = "realized" if shown.known_rates is None else "known"
    accuracy = draw(
        "Accuracy by client",
        f"Share of clients with at most this {split} accuracy: further right is better, steeper is fairer.",
        f"Cumulative distribution over clients of {split} accuracy, for {names}.",
        lambda: client_figures.client_cdf(records),
    )
    return {
        **({"cdf": accuracy} if "accuracy" in _metrics(records) else {}),
        "weights": draw(
            "Weights against participation rates",
            "One dot per client. On the dashed diagonal the weight is the inverse of the client's true participation rate. "
            "Algorithms with equal weights are not shown.",
            "Scatter plot of client weights against inverse participation rates, with the diagonal.",
            lambda: client_figures.weights_against_rates(records),
        ),
        "raster": draw(
            "Participation of clients",
            f"{shown.algorithm}, seed {shown.seed}. Clients are ordered by {order} rate, the highest on top; right: the "
            "share of rounds in which each took part (shaded) and its known rate, if any (line).",
            f"Raster of participation, clients against rounds, of {shown.algorithm}, seed {shown.seed}.",
            lambda: client_figures.participation_raster(shown, color),
        ),
    }


def gains(records: Sequence[RunRecord]) -> Drawing:
    """Plot the score of each client with each algorithm."""
    return draw(
        "Clients with and without federation",
        "A row of dots for each client, ordered by the gain of the first algorithm.",
        "Dot plot of the score of each client, in the federation and with the baselines.",
        lambda: gains_figure(records),
    )


def of_classes(records: Sequence[RunRecord]) -> list[Drawing]:
    """Plot labels against predicted classes, and accuracy against confidence."""
    return [
        draw(
            "Predicted classes",
            "Share of the test examples of each label (row) that were predicted as each class (column), over all seeds.",
            "Confusion matrix of each algorithm.",
            lambda: class_figures.confusion_figure(records),
        ),
        draw(
            "Calibration",
            "Accuracy of the predictions in each of 15 bins of confidence, over all seeds. On the dashed diagonal "
            "predictions are as often right as the model says; below it the model is overconfident.",
            "Accuracy against confidence, one line per algorithm, with the diagonal.",
            lambda: class_figures.calibration_figure(records),
        ),
    ]


def influence(records: Sequence[RunRecord]) -> Drawing:
    """Plot the influence of each client."""
    return draw(
        "Influence of clients",
        "One dot per client. On the dotted diagonal influence is proportional to the number of reports, on the dashed line "
        "it is equal.",
        "Scatter plot of each client's share of the weights against its share of the reports, both in fair shares.",
        lambda: client_figures.influence_figure(records),
    )


def _metrics(records: Sequence[RunRecord]) -> list[str]:
    """Return the recorded metrics among `HEADLINES`; accuracy if there are none."""
    names = {name for record in records for name in record.history.summary()}
    recorded = {name.partition("_")[2] for name in names if name.startswith(("test_", "train_"))}
    return [metric for metric in HEADLINES if metric in recorded] or ["accuracy"]


def cost(records: Sequence[RunRecord], target: Target | None) -> Drawing:
    """Plot accuracy, or else the loss, against rounds, bytes and simulated time."""
    if target is None and "accuracy" not in _metrics(records):
        tested = has_column(records, "test_loss")
        metric = "test_loss" if tested else "train_loss"
    else:
        metric = (target or accuracy_target(records, 1.0)).metric
    caption = "Lines are means over seeds, bands one standard deviation." + (" Dashed: the target." if target else "")
    alt = f"{name_of(metric)} of each algorithm against rounds, bytes sent so far, and simulated time if there is any."
    title = f"{name_of(metric).capitalize()} against rounds and costs"
    return draw(title, caption, alt, lambda: curves.cost_figure(records, metric, target))


def holdings(records: Sequence[RunRecord], data: FederatedData | None) -> Drawing | None:
    """Plot the classes that clients hold; None without the data, or if a run has differential privacy."""
    if data is None or not data.has_labels or any(record.history.is_private for record in records):
        return None
    caption = f"Examples of each class at each of the {data.num_clients:,} clients of {data.name}."
    return draw(
        "Data of clients", caption, caption, lambda: partition_figure(data.name, data.label_counts(), data.client_names)
    )
