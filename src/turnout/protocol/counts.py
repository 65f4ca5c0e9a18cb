"""Limit the numbers of examples and local steps that clients report, which no server can recompute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from turnout.base import CountsSteps, Local
from turnout.core.types import Report

MAX_COUNT = 1 << 40
"""Maximum number of examples, or of local steps, of any client."""


def needed_count(most: int | None, option: str = "max_examples, serve --max-examples") -> str:
    """Return the counts that a server takes, for the reason of a refusal: the numbers of examples, or those of an option."""
    return "0 to 2^40" if most is None else f"0 to {most}, the limit of this server ({option})"


@dataclass(frozen=True)
class CountLimits:
    """Limits of the counts in a report.

    Weights that grow with a count let one false report decide a step. A task determines the number of local steps, so
    a larger one is refused. The number of examples is known to the client alone; an operator may limit it.

    Attributes:
        local: the local rule of all clients, which limits their steps; None if clients train by loops of their own.
        max_examples: maximum number of examples; None is 2^40.
        max_steps: maximum number of steps without a local rule; None is 2^40.
    """

    local: Local | None = None
    max_examples: int | None = None
    max_steps: int | None = None

    def refusal(self, report: Report) -> str | None:
        """Return why the first report beyond the limits is refused; None if all are within them."""
        for name, limit, needed in self._limits(report):
            counts = getattr(report, name)
            if len(rows := np.flatnonzero((counts < 0) | (counts > limit))):
                return f"{name} is {counts[rows[0]]}, needed {needed.format(limit[rows[0]])}"
        return None

    def screened(self, report: Report) -> Report:
        """Return the reports, with those beyond the limits marked, so that the server drops and counts them."""
        good = np.ones(len(report), dtype=bool)
        for name, limit, _ in self._limits(report):
            counts = getattr(report, name)
            good &= (counts >= 0) & (counts <= limit)
        return report if good.all() else replace(report, good=report.finite() & good)

    def _limits(self, report: Report) -> Iterator[tuple[str, np.ndarray, str]]:
        """Yield the name of each count, its limits, int64 ``[B]``, and the counts that are accepted, in words."""
        examples, steps = (np.full(len(report), most or MAX_COUNT) for most in (self.max_examples, self.max_steps))
        yield "num_examples", examples, needed_count(self.max_examples)
        of_task = None
        if isinstance(self.local, CountsSteps):
            of_task = self.local.max_steps(np.clip(report.num_examples, 0, examples))
        if of_task is None:
            yield "num_steps", steps, needed_count(self.max_steps, "max_steps")
        else:
            yield "num_steps", np.minimum(of_task, steps), "0 to {}, the most that a task asks for"
