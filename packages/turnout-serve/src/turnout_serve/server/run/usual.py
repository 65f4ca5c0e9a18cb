"""Bound what one report may contain by what the reports before it contained.

A fixed bound has to admit every honest report of any run, and so admits one that ruins a run. The usual size of the reports
of a run is known after a few of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from turnout.core.types import Report
from turnout_serve.wire.format import WireError, length

_RECENT = 256  # sizes from which a bound follows
_ENOUGH = 8  # reports before which there is no bound
_LEVEL = 0.9
_VECTORS, _SCALARS = 10.0, 1000.0  # a loss differs more between clients than the norm of an update
_LEAST_SCALAR = 1000.0
_LEAST_VECTOR = 0.01  # of the norm of the first model


class UsualSizes:
    """Refuse a report with a vector or figure that is far larger than usual. All methods may be called by any thread.

    The bound of a vector is 10 times the 0.9-quantile of the norms of the last 256 accepted ones, and that of a figure, such
    as a loss, 1,000 times. A bound follows the reports where more than half of the clients exceed it: if all updates
    become larger at once, training goes on.

    Args:
        unit: norm of the first model, or of a vector of ones if that is larger; a hundredth is the least bound of a vector.
    """

    def __init__(self, unit: float) -> None:
        self._unit, self._lock = unit, threading.Lock()
        self._recent: dict[str, deque[float]] = {}
        self._last: dict[str, dict[int, float]] = {}  # of each client, refused ones included

    def sizes(self, report: Report) -> dict[str, float]:
        """Return the norms of the vectors and the sizes of the figures of the report of one client."""
        vectors = {"delta": report.delta} | {f"extra.{name}": value for name, value in report.extra.items()}
        tensors = {**vectors, **{f"seen.{name}": value for name, value in report.seen.items()}}
        return {
            name: float(length(value)) for name, value in tensors.items() if value.is_floating_point() and value.numel()
        }

    def check(self, client: int, report: Report) -> dict[str, float]:
        """Return the sizes of a report that is as large as usual.

        Raises:
            WireError: if it is far larger.
        """
        scalars = {f"seen.{name}" for name, value in report.seen.items() if value[0].numel() == 1}
        sizes = self.sizes(report)
        with self._lock:
            for name, size in sizes.items():
                self._last.setdefault(name, {})[client] = size
                if (most := self._most(name, name in scalars)) is not None and size > most:
                    what = "size" if name in scalars else "norm"
                    raise WireError(
                        f"{name} has {what} {size:.3g}, and this server takes at most {most:.3g}, a multiple of what the "
                        "last reports have (max_norm='auto'; serve --max-norm N sets a fixed bound)"
                    )
        return sizes

    def add(self, sizes: Mapping[str, float]) -> None:
        """Add the sizes of an accepted report."""
        with self._lock:
            for name, size in sizes.items():
                self._recent.setdefault(name, deque(maxlen=_RECENT)).append(size)

    def restore(self, reports: Iterable[Mapping[str, float]]) -> None:
        """Add the sizes of reports that were accepted before the server was started again."""
        for sizes in reports:
            self.add(sizes)

    def _most(self, name: str, is_scalar: bool) -> float | None:
        """Return the bound of a vector or figure; None before enough reports."""
        recent = self._recent.get(name, ())
        if len(recent) < _ENOUGH:
            return None
        usual = float(np.quantile(np.array(recent), _LEVEL))
        factor, least = (_SCALARS, _LEAST_SCALAR) if is_scalar else (_VECTORS, _LEAST_VECTOR * self._unit)
        last = list(self._last[name].values())
        followed = float(np.median(last)) if len(last) >= _ENOUGH else 0.0
        return max(factor * usual, least, followed)
