"""Snapshots of a deployment's figures: one thread publishes them, all others read them."""

from __future__ import annotations

from typing import NamedTuple

from turnout.deployment.server.curves import Curve
from turnout.deployment.server.driver import Driver


class Figures(NamedTuple):
    """The figures of a deployment behind one entry of its journal.

    Attributes:
        version: server steps taken.
        state: ``"waiting for clients"``, ``"training"`` or ``"over"``.
        there: clients that are present.
        at_work: clients that have a task.
        journal: entries that were applied.
        dropped: tasks that ended without being used, by reason.
        barred: clients that take part in no secure sum any more, and why.
        curves: figures by version.
    """

    version: int
    state: str
    there: int
    at_work: int
    journal: int
    dropped: dict[str, int]
    barred: dict[int, str]
    curves: dict[str, Curve]


def snapshot(driver: Driver, before: Figures | None = None) -> Figures:
    """Read the figures of a driver, in the thread that moves it.

    Args:
        driver: the coordinator in motion.
        before: an earlier snapshot, whose curves are used again where there was no step since.
    """
    curves: dict[str, Curve] = {}
    if before is not None and before.version == driver.version:
        curves = before.curves
    elif driver.ledger is not None:
        curves = driver.ledger.curves.thinned()
    return Figures(
        driver.version,
        "over" if driver.over else "training" if driver.started else "waiting for clients",
        driver.presence.num_there,
        driver.num_open,
        driver.applied,
        {} if driver.ledger is None else dict(driver.ledger.dropped),
        dict(driver.barred),
        curves,
    )
