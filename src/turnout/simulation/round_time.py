"""How long synchronous rounds last on the clients' clock."""

from __future__ import annotations

import numpy as np

from turnout.core.types import Report
from turnout.pieces.base.algorithm import Algorithm
from turnout.population.speed.durations import BoundSpeed


def round_seconds(
    speed: BoundSpeed, algorithm: Algorithm, reports: Report, version: int, bytes_down: int, least: float = 0.0
) -> float:
    """Return the simulated seconds of a round: the server waits for the slowest of its cohort.

    Where the local rule has a `deadline` (`TimeBudget`'s tau), a round lasts so long, whoever is there. Measuring before
    the selection takes one more trip to whoever is slowest there, with the time of one local step for a client's gradient.
    The durations are those of the task with the number of the round, so they are the same for all algorithms.

    Args:
        speed: how fast the clients are.
        algorithm: whose round it was.
        reports: what came back.
        version: server steps before the round.
        bytes_down: size of what a client received.
        least: seconds that a round lasts at least.
    """
    trips = 0.0
    if (measured := reports.measured) is not None and len(measured):
        trips = _slowest(speed, measured, version, bytes_down, np.ones(len(measured), dtype=np.int64))
    if algorithm.local.deadline is not None:
        return max(trips + algorithm.local.deadline, least)
    if len(reports):
        trips += _slowest(speed, reports, version, bytes_down, reports.num_steps)
    return max(trips, least)


def _slowest(speed: BoundSpeed, reports: Report, version: int, bytes_down: int, num_steps: np.ndarray) -> float:
    """Return the longest of the tasks behind some reports."""
    tasks = np.full(len(reports), version)
    return float(speed.seconds(reports.client, tasks, num_steps, reports.nbytes, bytes_down).total.max())
