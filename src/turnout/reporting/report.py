"""A report of finished runs: one HTML file with tables and figures that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.columns import METRICS, less_is_better
from turnout.core.checks import counted
from turnout.reporting import figures
from turnout.reporting.cost_figure import cost_figure
from turnout.reporting.influence import client_table
from turnout.reporting.influence_figure import influence_figure
from turnout.reporting.page import Drawing, draw, render_page, write_page
from turnout.reporting.partition_figure import partition_figure
from turnout.reporting.records import RunRecord, by_algorithm, client_split
from turnout.reporting.settings import environment as this_environment
from turnout.reporting.settings import settings
from turnout.reporting.style import name_of, styles
from turnout.reporting.table import (
    APPEAL,
    COLUMNS,
    INFLUENCE,
    RESULTS,
    Row,
    appeal_cells,
    by_labels,
    cells,
    column_of,
    comparison,
    leader,
)
from turnout.reporting.target import Target, accuracy_target, cost_cells, costs

if TYPE_CHECKING:
    from turnout.data.federated import FederatedData

CLIENTS = tuple(
    f"client_{split}_{figure}"
    for split in ("test", "train")
    for figure in ("mean", "spread", "worst", "jain", "missing")
)
COMMUNICATION = ("bytes_up", "bytes_down", "server_bytes", "num_participants", "num_dropped")


def write_report(
    records: Sequence[RunRecord],
    path: str | Path,
    data: FederatedData | None = None,
    title: str = "Federated training with turnout",
    window: int | None = None,
    environment: Mapping[str, str] | None = None,
    to_accuracy: float | None = None,
) -> Path:
    """Write the report of `records` to `path`, whole or not at all, and return the path.

    Args:
        records: finished runs; their order is the order of the algorithms.
        path: the HTML file.
        data: what they trained on, for the picture of who holds what.
        title: heading of the page.
        window: rounds over which final figures are means (see `History.final`).
        environment: what the runs ran on; by default what this process runs on.
        to_accuracy: an accuracy from 0 to 1, to show what it cost each algorithm to reach it.

    Raises:
        ConfigurationError: where there are no runs, or matplotlib or Jinja2 is not installed.
        CheckpointError: where the file cannot be written.
    """
    page = render(records, data, title, window, environment, to_accuracy)
    return write_page(path, page)


def render(
    records: Sequence[RunRecord],
    data: FederatedData | None,
    title: str,
    window: int | None,
    environment: Mapping[str, str] | None,
    to_accuracy: float | None,
) -> str:
    """Return the page that `write_report` writes."""
    rows = comparison(records, window)
    looks = styles(records)
    target = None if to_accuracy is None else accuracy_target(records, to_accuracy)
    return render_page(
        "report.html",
        title=title,
        lead=_lead(records, rows, data),
        averaged=f"the last {window} rounds" if window else "the last 10 % of rounds",
        seeds=max(row.num_seeds for row in rows),
        titles={key: column_of(key).title for row in rows for key in row.figures},
        colours={algorithm: look["color"] for algorithm, look in looks.items()},
        rows=rows,
        results=cells(rows, RESULTS),
        labels=cells(rows, by_labels(rows)),
        by_labels=_by_labels(records, rows),
        clients=cells(rows, CLIENTS),
        appeal=appeal_cells(rows),
        standing=_standing(records),
        influence=cells(rows, INFLUENCE),
        heard=client_table(records),
        hearing=_influence(records),
        communication=cells(rows, COMMUNICATION),
        target=target,
        reached=None if target is None else cost_cells(costs(records, target)),
        cost=_cost(records, target),
        split=_split_name(records),
        curves=_curves(records, rows),
        people=_clients(records, rows),
        holdings=_holdings(data),
        settings=settings(records),
        environment=this_environment() if environment is None else environment,
    )


def _lead(records: Sequence[RunRecord], rows: Sequence[Row], data: FederatedData | None) -> str:
    """Return what was run, in a sentence or two."""
    names, clients = list(by_algorithm(records)), max(len(record.history.clients) for record in records)
    rounds, seeds = (sorted({pick(record) for record in records}) for pick in (_last_round, _seed))
    parts = [
        f"{_listed(names)}, trained for {_between(rounds)} round{'s' * (rounds != [1])}",
        f" on {data.name}" if data else "",
        f" over {counted(clients or (data.num_clients if data else 0), 'client')}" if clients or data else "",
        f", with {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}.",
    ]
    return " ".join(filter(None, ["".join(parts), _best(rows)]))


def _best(rows: Sequence[Row]) -> str:
    """Return the best figure of the first metric that there is, on test examples if any, in a sentence."""
    for key in (f"{split}_{metric}" for metric in METRICS for split in ("test", "train")):
        found = [row for row in rows if key in row.figures and row.figures[key].mean > 0]
        if found:
            best = (min if less_is_better(key) else max)(found, key=lambda row: row.figures[key].mean)
            return _sentence(key, best, rows)
    return ""


def _sentence(key: str, best: Row, rows: Sequence[Row]) -> str:
    """Whose figure is the best, and whether it is ahead by more than seeds differ."""
    less, name = less_is_better(key), name_of(key)
    shown = COLUMNS[key].show(best.figures[key]) + ("" if less else " %")
    if len(rows) == 1:
        return f"{name[0].upper()}{name[1:]} is {shown}."
    close = best.num_seeds > 1 and leader(key, rows) is None
    note = ", ahead by no more than seeds differ" if close else ""
    return f"The {'lowest' if less else 'highest'} {name} is that of {best.algorithm}, {shown}{note}."


def _last_round(record: RunRecord) -> int:
    return record.history.last_round


def _seed(record: RunRecord) -> int:
    return record.seed


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _split_name(records: Sequence[RunRecord]) -> str:
    return {"test": "test", "train": "training"}[client_split(records)]


def _between(numbers: Sequence[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


def _curves(records: Sequence[RunRecord], rows: Sequence[Row]) -> list[Drawing]:
    """Accuracy and loss against rounds."""
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
        if metric.partition("_")[2] not in (*recorded, "loss"):
            continue
        ends = ", ".join(
            f"{row.algorithm} {COLUMNS[metric].show(row.figures[metric])}"
            for row in rows
            if metric in COLUMNS and metric in row.figures
        )
        alt = f"{title} against rounds, one line per algorithm." + (f" Final values: {ends}." if ends else "")
        drawn.append(draw(title, "", alt, lambda metric=metric: figures.curves(records, metric, smooth=True)))
    return sorted(drawn, key=lambda drawing: not drawing.svg)


def _by_labels(records: Sequence[RunRecord], rows: Sequence[Row]) -> list[Drawing]:
    """Accuracy of each group of labels against rounds."""
    return [
        draw(
            column_of(key).title.removesuffix(" (%)").capitalize(),
            "",
            f"{column_of(key).title} against rounds, one line per algorithm.",
            lambda key=key: figures.curves(records, key, smooth=True),
        )
        for key in by_labels(rows)
    ]


def _standing(records: Sequence[RunRecord]) -> list[Drawing]:
    """Return what clients require, against rounds: the columns that some run recorded."""
    recorded = {name for record in records for name in record.history.column_names}
    names = [name for keys in APPEAL.values() for name in keys if name in recorded]
    return [
        draw(
            name_of(name)[0].upper() + name_of(name)[1:],
            "",
            f"{name_of(name)} against rounds, one line per algorithm.",
            lambda name=name: figures.curves(records, name),
        )
        for name in names
    ]


def _clients(records: Sequence[RunRecord], rows: Sequence[Row]) -> dict[str, Drawing]:
    """Figures about clients: how well they are served, what they weigh, when they came."""
    split, names = _split_name(records), ", ".join(row.algorithm for row in rows)
    seen = next((record for record in records if len(record.history.participation)), records[0])
    colour = styles(records)[seen.algorithm]["color"]
    order = "realised" if seen.known_rates is None else "known"
    accuracy = draw(
        "Accuracy client by client",
        f"Share of clients whose {split} accuracy is at most that: further right is better, steeper is fairer.",
        f"Cumulative distribution over clients of {split} accuracy, for {names}.",
        lambda: figures.client_cdf(records),
    )
    return {
        **({"cdf": accuracy} if "accuracy" in _metrics(records) else {}),
        "weights": draw(
            "Weights against participation rates",
            "One dot per client. On the dashed diagonal the weight is the inverse of the client's true participation rate. "
            "Algorithms that weigh all clients alike are left out.",
            "Scatter plot of client weights against inverse participation rates, with the diagonal.",
            lambda: figures.weights_against_rates(records),
        ),
        "raster": draw(
            "Who took part when",
            f"{seen.algorithm}, seed {seen.seed}. Clients from the highest {order} rate (top) to the lowest; right: the "
            "share of rounds each took part in (shaded) and its known rate, if it has one (line).",
            f"Raster of participation, clients against rounds, of {seen.algorithm}, seed {seen.seed}.",
            lambda: figures.participation_raster(seen, colour),
        ),
    }


def _influence(records: Sequence[RunRecord]) -> Drawing:
    """How much each client is heard."""
    return draw(
        "Who is heard",
        "One dot per client. On the dotted diagonal clients count as often as they report, on the dashed line all count "
        "alike.",
        "Scatter plot of each client's share of the weights against its share of the reports, both in fair shares.",
        lambda: influence_figure(records),
    )


def _metrics(records: Sequence[RunRecord]) -> list[str]:
    """Which of `METRICS` some run recorded; accuracy where nothing was."""
    summaries = [record.history.summary() for record in records]
    found = {
        name.partition("_")[2] for summary in summaries for name in summary if name.startswith(("test_", "train_"))
    }
    return [metric for metric in METRICS if metric in found] or [METRICS[0]]


def _cost(records: Sequence[RunRecord], target: Target | None) -> Drawing:
    """Accuracy, or else the loss, against rounds and against what they cost."""
    if target is None and "accuracy" not in _metrics(records):
        tested = any(len(record.history.column("test_loss")[1]) for record in records)
        metric = "test_loss" if tested else "train_loss"
    else:
        metric = (target or accuracy_target(records, 1.0)).metric
    caption = "Lines are means over seeds, bands one standard deviation." + (" Dashed: the target." if target else "")
    alt = f"{name_of(metric)} of each algorithm against rounds, bytes sent so far, and simulated time if there is any."
    title = f"{name_of(metric).capitalize()} against rounds and against what they cost"
    return draw(title, caption, alt, lambda: cost_figure(records, metric, target))


def _holdings(data: FederatedData | None) -> Drawing | None:
    """Who holds what, where the data are at hand."""
    if data is None or not data.has_labels:
        return None
    caption = f"Examples of each class at each of the {data.num_clients:,} clients of {data.name}."
    return draw("Who holds what", caption, caption, lambda: partition_figure(data))
