"""Snapshots of a deployment's figures: one thread publishes them, all others read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from turnout.deployment.server.driver import Driver
from turnout.deployment.server.ledger import Curve
from turnout.protocol.published import Published

DECILES = np.arange(11) / 10
"""Levels of the quantiles of a distribution: its minimum, nine deciles and its maximum."""

_CLIENTS_OF_A_VERSION = 10_000


class Figures(NamedTuple):
    """The figures of a deployment behind one entry of its journal.

    Attributes:
        version: server steps taken.
        state: ``"waiting for clients"``, ``"training"`` or ``"over"``.
        there: clients that are present.
        at_work: clients that have a task.
        journal: entries that were applied.
        dropped: tasks that ended without being used, by reason.
        unusable: reports that were of no use, by client.
        barred: clients that take part in no secure sum any more, and why.
        curves: figures by version.
        heard: what each client contributed to server steps, ``{name: [N]}`` as `Influence.columns` has it, at a version.
        distributions: of `heard`, for everyone to see; see `summary`.
        evaluation: what came of the last evaluation by clients, None before the first.
        privacy: what the run has spent, as `Driver.privacy` has it; None without noise.
    """

    version: int
    state: str
    there: int
    at_work: int
    journal: int
    dropped: dict[str, int]
    unusable: dict[int, int]
    barred: dict[int, str]
    curves: dict[str, Curve]
    heard: tuple[int, dict[str, np.ndarray]]
    distributions: dict[str, Any]
    evaluation: dict[str, Any] | None
    privacy: dict[str, Any] | None

    def reports_of(self, client: int) -> int:
        """Return how many reports of a client were in a server step."""
        contributions = self.heard[1].get("contributions", ())
        return int(contributions[client]) if client < len(contributions) else 0


def summary(columns: Mapping[str, np.ndarray], version: int, published: Published) -> dict[str, Any]:
    """Return distributions over clients of participation, staleness and influence.

    What the tables of a run with differential privacy leave out is left out here, too.

    Args:
        columns: those of `turnout.protocol.influence.Influence.columns`, ``[N]``.
        version: server steps that they cover.
        published: which columns may be shown.

    Returns:
        ``version``; ``never``, the share of clients without a contribution; ``deciles``, lists of 11 quantiles:
        ``participation`` (contributions per server step), ``staleness`` (mean of each client that contributed) and
        ``influence`` (over the fair share). Empty before the first step, and where nothing may be shown.
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


def snapshot(driver: Driver, before: Figures | None = None) -> Figures:
    """Read the figures of a driver, in the thread that moves it.

    Args:
        driver: the coordinator in motion.
        before: an earlier snapshot, whose figures of clients are used again until they are due.
    """
    heard, distributions = ((0, {}), {}) if before is None else (before.heard, before.distributions)
    if _due(driver, heard[0], len(heard[1].get("contributions", ()))):
        heard = driver.version, driver.heard()
        distributions = summary(heard[1], heard[0], Published(driver.setting.algorithm))
    return Figures(
        driver.version,
        "over" if driver.over else "training" if driver.started else "waiting for clients",
        len(driver.roster.there()),
        driver.num_open,
        driver.applied,
        {} if driver.ledger is None else dict(driver.ledger.dropped),
        {} if driver.ledger is None else driver.ledger.unusable,
        dict(driver.barred),
        {} if driver.ledger is None else driver.ledger.curves.thinned(),
        heard,
        distributions,
        None if driver.ledger is None else driver.ledger.evaluation,
        driver.privacy(),
    )


def _due(driver: Driver, version: int, num_clients: int) -> bool:
    """Return whether to read again what each client contributed.

    That costs what all clients cost. With many, it is done every few versions, so that a version costs what its cohort costs.
    """
    passed = driver.version - version
    return passed > 0 and (passed * _CLIENTS_OF_A_VERSION >= num_clients or driver.over is not None)
