"""Write the report of finished runs: one self-contained HTML file with tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.core.checks import counted
from turnout.record.schema import ANSWERED, HEADLINES, less_is_better
from turnout.reporting import drawings
from turnout.reporting.curves import styles
from turnout.reporting.page import environment as environment_of
from turnout.reporting.page import render_page, settings, write_page
from turnout.reporting.style import keys_of
from turnout.results.column import COST, GAP, INFLUENCE, RESULTS, column_of
from turnout.results.gains import gains
from turnout.results.influence import client_table
from turnout.results.measure import accuracy_target
from turnout.results.names import name_of
from turnout.results.records import RunRecord, by_algorithm
from turnout.results.scored import class_table
from turnout.results.significance import better, legend
from turnout.results.table import Row, appeal_cells, by_labels, cells, comparison, empty_rounds, stopped

if TYPE_CHECKING:
    from turnout.data.federated import FederatedData

CLIENTS = (
    *(
        f"client_{split}_{figure}"
        for split in ("test", "train")
        for figure in ("mean", "spread", "worst", "jain", "missing")
    ),
    "unseen_test_accuracy",
    *ANSWERED,
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
    tuning: Sequence[Sequence[str]] = (),
) -> Path:
    """Write the report of `records` to `path` atomically, and return the path.

    Args:
        records: finished runs, in the order of the algorithms.
        path: path of the HTML file.
        data: the training data, for a plot of the clients' classes.
        title: heading of the page.
        window: rounds over which final figures are means (see `History.final`).
        environment: environment of the runs; by default that of this process.
        to_accuracy: an accuracy from 0 to 1, to show the cost of reaching it.
        tuning: for each algorithm that was tuned its name, the chosen values with their ranges, their figure on validation
            examples, and the client updates of the search.

    Raises:
        ConfigurationError: if there are no runs, or matplotlib or Jinja2 is not installed.
        CheckpointError: if the file cannot be written.
    """
    target = None if to_accuracy is None else accuracy_target(records, to_accuracy)
    rows, looks = comparison(records, window, target), styles(records)
    page = render_page(
        "report.html",
        title=title,
        lead=_lead(records, rows, data),
        averaged=f"the last {window} rounds" if window else "the last 10 % of rounds",
        seeds=max(row.num_seeds for row in rows),
        titles={key: column_of(key).title for row in rows for key in (*row.figures, *row.costs)},
        keys=keys_of(looks),
        rows=rows,
        results=cells(rows, RESULTS, interval=True),
        compared=any(key.startswith(GAP) for row in rows for key in row.figures),
        notes=[*stopped(rows), *empty_rounds(records)],
        bold=legend([GAP]).replace("bold: ", "A figure in bold is "),
        labels=cells(rows, by_labels(rows), interval=True),
        by_labels=drawings.of_labels(records, rows),
        clients=cells(rows, CLIENTS, interval=True),
        classes=class_table(records),
        class_drawings=drawings.of_classes(records),
        gains=gains(records),
        gains_drawing=drawings.gains(records),
        appeal=appeal_cells(rows),
        requirements=drawings.requirements(records),
        influence=cells(rows, INFLUENCE),
        influence_of_clients=client_table(records),
        influence_drawing=drawings.influence(records),
        communication=cells(rows, COMMUNICATION),
        target=target,
        reached=cells(rows, COST),
        cost=drawings.cost(records, target),
        split=drawings.split_name(records),
        curves=drawings.training(records, rows),
        client_drawings=drawings.of_clients(records, rows),
        holdings=drawings.holdings(records, data),
        settings=settings(records),
        tuning=tuning,
        environment=environment_of() if environment is None else environment,
    )
    return write_page(path, page)


def _lead(records: Sequence[RunRecord], rows: Sequence[Row], data: FederatedData | None) -> str:
    """Describe the runs and the best result in a sentence or two."""
    names, clients = list(by_algorithm(records)), max(len(record.history.clients) for record in records)
    rounds = sorted({record.history.last_round for record in records})
    seeds = sorted({record.seed for record in records})
    parts = [
        f"{_listed(names)}, trained for {_between(rounds)} round{'s' * (rounds != [1])}",
        f" on {data.name}" if data else "",
        f" over {counted(clients or (data.num_clients if data else 0), 'client')}" if clients or data else "",
        f", with {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}.",
    ]
    return " ".join(filter(None, ["".join(parts), _best(rows)]))


def _best(rows: Sequence[Row]) -> str:
    """Describe the best figure of the most important recorded metric in a sentence."""
    for key in (f"{split}_{metric}" for metric in HEADLINES for split in ("test", "train")):
        complete = [row for row in rows if key in row.figures and row.figures[key].mean > 0]
        if complete:
            best = (min if less_is_better(key) else max)(complete, key=lambda row: row.figures[key].mean)
            return _sentence(key, best, rows)
    return ""


def _sentence(key: str, best: Row, rows: Sequence[Row]) -> str:
    """Describe the best algorithm, and whether its lead is significant."""
    less, name = less_is_better(key), name_of(key)
    shown = column_of(key).show(best.figures[key]) + ("" if less else " %")
    if len(rows) == 1:
        return f"{name[0].upper()}{name[1:]} is {shown}."
    close = best.num_seeds > 1 and not better(key, rows)
    note = ", a lead that is not significant" if close else ""
    return f"The {'lowest' if less else 'highest'} {name} is that of {best.algorithm}, {shown}{note}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _between(numbers: Sequence[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
