"""``turnout data``: what data sets there are, fetching them, and looking at who would hold what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from turnout.core.checks import CheckpointError
from turnout.data.federated import FederatedData
from turnout.population import BoundAvailability
from turnout.population.diagnostics import presence, run_lengths

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_DAYS, SHOWN_ROUNDS = 6, 500
"""How long a picture of availability is, where rounds have a length and where they have none."""


def sizes_table(data: FederatedData) -> Table:
    """How many examples there are of what, and at how many clients."""
    table = Table(
        title=f"{data.name}: {data.num_classes} classes, inputs {tuple(data.train.x.shape[1:])}", box=SIMPLE_HEAD
    )
    for column in ("part", "clients", "examples", "per client: least", "median", "most", "classes per client"):
        table.add_column(column, justify="left" if column == "part" else "right")
    parts = {
        "training": data.train,
        "validation": data.validation,
        "validation, unseen": data.unseen_validation,
        "client test": data.client_test,
        "unseen, training": data.unseen_train,
        "unseen, test": data.unseen_test,
        "pooled test": data.test,
    }
    for part, shards in parts.items():
        if shards is None or not len(shards.x):
            continue
        if part in ("validation, unseen", "pooled test"):
            table.add_row(part, "", f"{len(shards.x):,}")
            continue
        classes = (shards.label_counts(data.num_outputs) > 0).sum(axis=1).mean()
        figures = (shards.sizes.min(), np.median(shards.sizes), shards.sizes.max())
        table.add_row(
            part,
            f"{shards.num_clients:,}",
            f"{len(shards.x):,}",
            *(f"{figure:,.0f}" for figure in figures),
            f"{classes:.1f}",
        )
    return table


def participation_table(name: str, bound: BoundAvailability, rounds: int, seconds: int | None) -> Table:
    """How often clients are there, and for how long."""
    here = presence(bound, rounds)
    rates, unit = here.mean(axis=1), "h" if seconds else "rounds"
    length = seconds / 3600 if seconds else 1.0
    table = Table(title=f"{name}: {bound.num_clients:,} clients over {rounds:,} rounds", box=SIMPLE_HEAD)
    for column in ("", "mean", "least", "median", "most"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("rate of a client (%)", *(f"{100 * x:.1f}" for x in _spread(rates)))
    table.add_row("clients there", *(f"{x:,.1f}" for x in _spread(here.sum(axis=0))))
    table.add_row(f"a visit ({unit})", *(f"{x:,.1f}" for x in _spread(run_lengths(here) * length)))
    table.add_row(f"a gap ({unit})", *(f"{x:,.1f}" for x in _spread(run_lengths(~here) * length)))
    table.add_row("clients never there", f"{int((rates == 0).sum()):,}", "", "", "")
    return table


def _spread(values: np.ndarray) -> tuple[float, ...]:
    """Mean, least, median and most."""
    return float(values.mean()), float(values.min()), float(np.median(values)), float(values.max())


def saved_figure(figure: Figure, path: Path | None, name: str) -> Path:
    """Save a picture at a path, or else by name in ``runs``."""
    target = path or Path(f"runs/{name}.png")
    try:
        if path is None:
            target.parent.mkdir(exist_ok=True)
        figure.savefig(target, dpi=150)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{target} cannot be written: {error}. Write --output FILE.png") from error
    return target
