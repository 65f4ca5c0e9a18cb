"""Clip updates to a maximal norm."""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnout.base import Guard
from turnout.core.ranges import Positive
from turnout.core.types import Report, State, Task
from turnout.core.updates import clipped
from turnout.engine.cohort import Clients


@dataclass(frozen=True)
class Clip(Guard, name="clip"):
    """Clip each update to a maximal Euclidean norm (DP-FedAvg).

    ``Delta_b <- Delta_b min(1, norm / ||Delta_b||)``, where Delta_b is the update of client b. It bounds the influence
    of a single client, as differential privacy needs it.

    Args:
        norm: largest Euclidean norm of an update, > 0.

    Raises:
        ConfigurationError: if `norm` is not positive.

    Example:
        >>> import turnout as to
        >>> to.fedavg(also=(to.guard.Clip(norm=1.0),)).guard
        (Clip(norm=1.0),)

    Reference: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018.
    """

    norm: Positive = 1.0

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with its update clipped; zero stays zero, and NaN stays NaN for the server to drop."""
        return replace(report, delta=clipped(report.updates.gathered(), self.norm))
