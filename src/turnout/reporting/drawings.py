"""Draw the figures of a report, each with a title, a caption and a description for readers who do not see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.record.schema import METRICS
from turnout.reporting import client_figures, curves
from turnout.reporting.column import APPEAL, COLUMNS, column_of
from turnout.reporting.page import Drawing, draw
from turnout.reporting.partition_figure import partition_figure
from turnout.reporting.records import RunRecord, client_split, has_column
from turnout.reporting.style import name_of, styles
from turnout.reporting.table import Row, by_labels
from turnout.reporting.target import Target, accuracy_target

if TYPE_CHECKING:
    from turnout.data.federated import FederatedData


def split_name(records: Sequence[RunRecord]) -> str:
    """Return on whose examples clients are compared: ``"test"`` or ``"training"``."""
    return {"test": "test", "train": "training"}[client_split(records)]


def training(records: Sequence[RunRecord], rows: Sequence[Row]) -> list[Drawing]:
    """Draw accuracy and loss against rounds."""
    titles = {
        "test_accuracy": "Test accuracy",
        "train_accuracy": "Training accuracy",
        "test_rmse": "Test RMSE",
        "train_rmse": "Training RMSE",
        "test_loss": "Test loss",
        "train_loss": "Training loss",
    }
    drawn, recorded = [], _metrics(records)
    for metric, title in titles.items():
        if metric.partition("_")[2] in (*recorded, "loss"):
            ending = [row for row in rows if metric in COLUMNS and metric in row.figures]
            ends = ", ".join(f"{row.algorithm} {COLUMNS[metric].show(row.figures[metric])}" for row in ending)
            drawn.append(_curve(records, metric, title, f" Final values: {ends}." if ends else ""))
    return sorted(drawn, key=lambda drawing: not drawing.svg)


def _curve(records: Sequence[RunRecord], metric: str, title: str, note: str = "", smooth: bool = True) -> Drawing:
    """Draw one column against rounds."""
    alt = f"{title} against rounds, one line per algorithm.{note}"
    return draw(title, "", alt, lambda: curves.curves(records, metric, smooth))


def of_labels(records: Sequence[RunRecord], rows: Sequence[Row]) -> list[Drawing]:
    """Draw the accuracy of each group of labels against rounds."""
    return [_curve(records, key, column_of(key).title.removesuffix(" (%)").capitalize()) for key in by_labels(rows)]


def standing(records: Sequence[RunRecord]) -> list[Drawing]:
    """Return what clients require, against rounds: the columns that some run recorded."""
    recorded = {name for record in records for name in record.history.column_names}
    names = [name for keys in APPEAL.values() for name in keys if name in recorded]
    return [_curve(records, name, name_of(name)[0].upper() + name_of(name)[1:], smooth=False) for name in names]


def of_clients(records: Sequence[RunRecord], rows: Sequence[Row]) -> dict[str, Drawing]:
    """Draw how well clients are served, what they weigh, when they came."""
    split, names = split_name(records), ", ".join(row.algorithm for row in rows)
    seen = next((record for record in records if len(record.history.participation)), records[0])
    colour = styles(records)[seen.algorithm]["color"]
    order = "realised" if seen.known_rates is None else "known"
    accuracy = draw(
        "Accuracy client by client",
        f"Share of clients whose {split} accuracy is at most that: further right is better, steeper is fairer.",
        f"Cumulative distribution over clients of {split} accuracy, for {names}.",
        lambda: client_figures.client_cdf(records),
    )
    return {
        **({"cdf": accuracy} if "accuracy" in _metrics(records) else {}),
        "weights": draw(
            "Weights against participation rates",
            "One dot per client. On the dashed diagonal the weight is the inverse of the client's true participation rate. "
            "Algorithms that weigh all clients alike are left out.",
            "Scatter plot of client weights against inverse participation rates, with the diagonal.",
            lambda: client_figures.weights_against_rates(records),
        ),
        "raster": draw(
            "Who took part when",
            f"{seen.algorithm}, seed {seen.seed}. Clients from the highest {order} rate (top) to the lowest; right: the "
            "share of rounds each took part in (shaded) and its known rate, if it has one (line).",
            f"Raster of participation, clients against rounds, of {seen.algorithm}, seed {seen.seed}.",
            lambda: client_figures.participation_raster(seen, colour),
        ),
    }


def influence(records: Sequence[RunRecord]) -> Drawing:
    """Draw how much each client is heard."""
    return draw(
        "Who is heard",
        "One dot per client. On the dotted diagonal clients count as often as they report, on the dashed line all count "
        "alike.",
        "Scatter plot of each client's share of the weights against its share of the reports, both in fair shares.",
        lambda: client_figures.influence_figure(records),
    )


def _metrics(records: Sequence[RunRecord]) -> list[str]:
    """Return which of `METRICS` some run recorded; accuracy where nothing was."""
    names = {name for record in records for name in record.history.summary()}
    recorded = {name.partition("_")[2] for name in names if name.startswith(("test_", "train_"))}
    return [metric for metric in METRICS if metric in recorded] or [METRICS[0]]


def cost(records: Sequence[RunRecord], target: Target | None) -> Drawing:
    """Draw accuracy, or else the loss, against rounds and against what they cost."""
    if target is None and "accuracy" not in _metrics(records):
        tested = has_column(records, "test_loss")
        metric = "test_loss" if tested else "train_loss"
    else:
        metric = (target or accuracy_target(records, 1.0)).metric
    caption = "Lines are means over seeds, bands one standard deviation." + (" Dashed: the target." if target else "")
    alt = f"{name_of(metric)} of each algorithm against rounds, bytes sent so far, and simulated time if there is any."
    title = f"{name_of(metric).capitalize()} against rounds and against what they cost"
    return draw(title, caption, alt, lambda: curves.cost_figure(records, metric, target))


def holdings(records: Sequence[RunRecord], data: FederatedData | None) -> Drawing | None:
    """Draw who holds what, where the data are at hand and no run has differential privacy."""
    if data is None or not data.has_labels or any(record.history.is_private for record in records):
        return None
    caption = f"Examples of each class at each of the {data.num_clients:,} clients of {data.name}."
    return draw("Who holds what", caption, caption, lambda: partition_figure(data))
