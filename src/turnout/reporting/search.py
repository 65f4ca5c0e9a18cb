"""What a search found: the trials of a sampler, in the order in which they were proposed, and the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from turnout.core.checks import counted
from turnout.reporting.grid import Sweep
from turnout.reporting.range import Range

_SHOWN = 10
"""Trials that a terminal shows."""
_EDGE = 0.05
"""The part of a range at each end that counts as its edge."""


@dataclass(frozen=True, eq=False)
class Search(Sweep):
    """The finished trials of a search; a trial is a point, called ``trial-7``.

    Attributes:
        space: what was chosen among, by axis: a range, or values.
        failures: why trials failed, by name.
    """

    space: Mapping[str, Range | Sequence[Any]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    leading: ClassVar[tuple[str, ...]] = ("trial",)

    def __repr__(self) -> str:
        return f"Search({counted(len(self.points), 'trial')} over {' and '.join(self.axes)}, by {self.measure})"

    @property
    def shown(self) -> list[str]:
        """The trials that a terminal shows: the best, best first."""
        return self.ranking[:_SHOWN]

    @property
    def at_the_edge(self) -> list[str]:
        """The ranges at whose end the best is: beyond may be a better one."""
        best = self.best
        ranges = {axis: space for axis, space in self.space.items() if isinstance(space, Range)}
        return [axis for axis, space in ranges.items() if not _EDGE <= space.place(best[axis]) <= 1 - _EDGE]

    @cached_property
    def best_so_far(self) -> list[float]:
        """The best figure of the trials until each, whole ones alone; NaN before the first."""
        better = min if self.measure.less_is_better else max
        found, best = [], math.nan
        whole = set(self.ranking)
        for name in self.points:
            value = self.scores[name].value if name in whole else math.nan
            if math.isfinite(value):
                best = better(best, value) if math.isfinite(best) else value
            found.append(best)
        return found
