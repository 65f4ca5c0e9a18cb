"""Clip the changes of control variates."""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnout.core.checks import ConfigurationError, positive
from turnout.core.types import Report, State, Task
from turnout.core.updates import Updates, clipped
from turnout.engine.cohort import Clients
from turnout.pieces.base import Guard, Slots


@dataclass(frozen=True)
class ClipControls(Guard, name="clip_controls"):
    """``d_b <- d_b min(1, norm / ||d_b||)`` of the changes d of what clients keep, such as SCAFFOLD's control variates.

    A client moves what it keeps by what it has sent, so that the server's mean stays the mean of what clients keep.
    `PrivateSum` with ``control_norm`` needs it.

    Args:
        norm: the largest Euclidean norm of a change.

    Raises:
        ConfigurationError: for an algorithm whose clients keep nothing of the kind.

    Example:
        >>> import turnout as to
        >>> to.scaffold(also=(ClipControls(norm=0.5),)).guard
        (ClipControls(norm=0.5),)
    """

    norm: float = 1.0

    def __post_init__(self) -> None:
        positive("norm", self.norm)

    def fits(self, algorithm: Slots) -> None:
        """Refuse algorithms without control variates."""
        if not algorithm.keeps:
            raise ConfigurationError(
                "ClipControls clips the change of control variates, and clients send none: leave it out, or use Scaffold"
            )

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with these changes clipped; zero stays zero, and NaN stays NaN for the server to drop."""
        extra = {name: clipped(Updates.of(change).gathered(), self.norm) for name, change in report.extra.items()}
        return replace(report, extra=extra)
