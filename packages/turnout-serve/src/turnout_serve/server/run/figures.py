"""Snapshots of the figures of a run: the thread that applies the journal makes them, and all others read them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from turnout.protocol.published import Published
from turnout_serve.server.journal.driver import Driver

DECILES = np.arange(11) / 10
"""Levels of the quantiles of a distribution: its minimum, nine deciles and its maximum."""

_CLIENTS_OF_A_VERSION = 10_000


class Figures(NamedTuple):
    """The figures of a run after one entry of its journal.

    Attributes:
        status: the fields of `turnout_serve.wire.status.Status` that follow from the journal.
        unusable: number of each client's reports that could not be used.
        contributions: what each client contributed to server steps, ``{name: [N]}`` as `Influence.columns` has it.
        counted: the version up to which contributions are counted, which may be an earlier one with many clients.
        recorded: the fields of the status that change with a step or an answer, not with every report.
        at: the steps and answers that they cover.
    """

    status: dict[str, Any]
    unusable: dict[int, int]
    contributions: dict[str, np.ndarray]
    counted: int
    recorded: dict[str, Any]
    at: tuple[Any, ...]

    @property
    def version(self) -> int:
        """Server steps taken."""
        return self.status["version"]

    def reports_of(self, client: int) -> int:
        """Return the number of a client's reports that server steps used."""
        reports = self.contributions.get("contributions", ())
        return int(reports[client]) if client < len(reports) else 0


def snapshot(driver: Driver, previous: Figures | None = None) -> Figures:
    """Read the figures of a driver; only the thread that applies its entries may call this.

    Args:
        driver: the run.
        previous: an earlier snapshot, whose figures of clients are used again until they are due.
    """
    ledger, surveys = driver.ledger, driver.surveys
    at = driver.version, driver.rounds, driver.run is None, driver.budget.charged, surveys.number, len(surveys.open)
    recorded = _recorded(driver) if previous is None or previous.at != at else previous.recorded
    contributions, counted, heard = (
        ({}, 0, {}) if previous is None else (previous.contributions, previous.counted, previous.status["heard"])
    )
    if _is_due(driver, counted, len(contributions.get("contributions", ()))):
        contributions, counted = contributions_of(driver), driver.version
        heard = summary(contributions, counted, Published(driver.setting.algorithm))
    status = {
        "version": driver.version,
        "state": _state(driver),
        "at_work": len(driver.tasks.clients()),
        "journal": driver.applied,
        "barred": {str(client): reason for client, reason in driver.barred.items()},
        "heard": heard,
        "last_step": ledger.begun if ledger is not None and driver.version else None,
        "dropped": {} if ledger is None else dict(ledger.dropped),
        **recorded,
    }
    return Figures(status, {} if ledger is None else ledger.unusable, contributions, counted, recorded, at)


def _state(driver: Driver) -> str:
    """Return what the run does, in words for the status."""
    run = driver.run
    if run is not None and run.over is not None:
        return "over" if driver.over else "waiting for answers of clients"
    return "waiting for clients" if run is None or run.is_held else "training"


def _recorded(driver: Driver) -> dict[str, Any]:
    """Return the fields of the status that follow from the tables of a run, and from what it has spent."""
    figures: dict[str, Any] = {"privacy": _finite_privacy(driver.budget.spent())}
    if (ledger := driver.ledger) is not None:
        figures |= {"curves": ledger.curves.thinned(), "evaluation": _finite_evaluation(ledger.evaluation)}
        figures |= {"sums": ledger.sums, "unusual": ledger.unusual}
    return figures


def contributions_of(driver: Driver) -> dict[str, np.ndarray]:
    """Return a copy of what each client contributed to server steps, ``{name: [N]}``."""
    if driver.run is None or (influence := driver.run.server.influence) is None:
        return {}
    return {name: column.copy() for name, column in influence.columns().items()}


def summary(columns: Mapping[str, np.ndarray], version: int, published: Published) -> dict[str, Any]:
    """Return distributions over clients of participation, staleness and influence.

    Columns that the tables of a run with differential privacy leave out are left out here, too.

    Args:
        columns: those of `turnout.protocol.client_arrays.Influence.columns`, ``[N]``.
        version: server steps that they cover.
        published: which columns may be shown.

    Returns:
        The fields of `turnout_serve.wire.status.Heard`. Its deciles are lists of 11 quantiles: ``participation``
        (contributions per server step), ``staleness`` (mean of each client that contributed) and ``influence`` (over the
        fair share). Empty before the first step, and where nothing may be shown.
    """
    shown = published.clients(columns)
    facts: dict[str, Any] = {"version": version}
    values: dict[str, np.ndarray] = {}
    if version and len(contributions := shown.get("contributions", ())):
        facts["never"] = float(np.mean(contributions == 0))
        values |= {"participation": contributions / version, "staleness": shown["mean_staleness"]}
    if version and len(influence := shown.get("influence", ())):
        values["influence"] = influence / shown["fair_share"]
    finite = {name: column[np.isfinite(column)] for name, column in values.items()}
    deciles = {name: np.quantile(column, DECILES).tolist() for name, column in finite.items() if len(column)}
    return {**facts, "deciles": deciles} if deciles else {}


def _is_due(driver: Driver, version: int, num_clients: int) -> bool:
    """Return whether to read again what each client contributed.

    That costs what all clients cost. With many, it is done every few versions, so that a version costs what its cohort costs.
    """
    passed = driver.version - version
    return passed > 0 and (passed * _CLIENTS_OF_A_VERSION >= num_clients or driver.over is not None)


def _finite_privacy(spent: dict[str, Any] | None) -> dict[str, Any] | None:
    """Replace an infinite epsilon by None, for JSON has no infinity."""
    return None if spent is None else {**spent, "epsilon": spent["epsilon"] if isfinite(spent["epsilon"]) else None}


def _finite_evaluation(evaluation: dict[str, Any] | None) -> dict[str, Any] | None:
    """Leave out figures that are NaN or infinite, for JSON has neither."""
    if evaluation is None:
        return None
    figures = {name: value for name, value in evaluation["figures"].items() if value is not None and isfinite(value)}
    return {**evaluation, "figures": figures}
