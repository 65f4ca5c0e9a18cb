"""Summarize who is heard in a deployment, as distributions that name no client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from turnout.protocol.published import Published

DECILES = np.arange(11) / 10
"""Levels of the quantiles of a distribution: its minimum, nine deciles and its maximum."""


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
