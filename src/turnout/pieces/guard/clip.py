"""Clip updates, and changes of control variates, to a maximal norm."""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnout.base import Guard, Slots
from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Positive
from turnout.core.types import Report, State, Task
from turnout.core.updates import Updates, clipped
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


@dataclass(frozen=True)
class ClipControls(Guard, name="clip_controls"):
    """Clip each change of a control variate to a maximal Euclidean norm, for SCAFFOLD under differential privacy.

    ``d_b <- d_b min(1, norm / ||d_b||)``, where d_b is the change of what client b remembers, such as its control
    variate in SCAFFOLD. A client changes its memory by what it has sent, so the server's mean stays the mean of the
    clients' memories. `PrivateSum` with ``control_norm`` needs this guard.

    Args:
        norm: largest Euclidean norm of a change, > 0.

    Raises:
        ConfigurationError: if `norm` is not positive, or if clients of the algorithm have no control variates.

    Example:
        >>> import turnout as to
        >>> to.scaffold(also=(ClipControls(norm=0.5),)).guard
        (ClipControls(norm=0.5),)
    """

    norm: Positive = 1.0

    def fits(self, algorithm: Slots) -> None:
        """Raise an error unless clients of the algorithm have control variates."""
        if not algorithm.keeps:
            raise ConfigurationError(
                "ClipControls clips the change of control variates, and clients send none: leave it out, or use Scaffold"
            )

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with its changes clipped; zero stays zero, and NaN stays NaN for the server to drop."""
        extra = {name: clipped(Updates.of(change).gathered(), self.norm) for name, change in report.extra.items()}
        return replace(report, extra=extra)
