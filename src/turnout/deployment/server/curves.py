"""Curves that the status of a deployment shows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from turnout.record.query import History

_NAMES = ("test_loss", "test_accuracy", "local_loss", "staleness_mean", "num_participants", "seconds")
_MOST = 200  # points of a curve in a snapshot

Curve = list[tuple[int, float | None]]


class Curves:
    """Figures of every version, as plain numbers that grow with a run."""

    def __init__(self) -> None:
        self._points: dict[str, Curve] = {}

    def add(self, version: int, row: Mapping[str, Any]) -> None:
        """Add the figures of a version that it lacks; those that are missing or None are left out.

        An evaluation by clients may end after later steps. The server's own figures come first, as in the table of rounds.
        """
        for name in _NAMES:
            if row.get(name) is not None:
                value = float(row[name])
                points = self._points.setdefault(name, [])
                index = bisect_left(points, version, key=itemgetter(0))
                if points[index : index + 1] and points[index][0] == version:
                    continue
                points.insert(index, (version, value if math.isfinite(value) else None))

    def restore(self, history: History) -> None:
        """Take the figures from the tables of a run that goes on."""
        self._points = {}
        for name in set(_NAMES).intersection(history.column_names):
            for version, value in zip(*history.column(name), strict=True):
                self.add(int(version), {name: value})

    def thinned(self) -> dict[str, Curve]:
        """Return at most 200 points of each curve; the last one is always among them."""
        curves = {}
        for name in _NAMES:
            if points := self._points.get(name):
                step = -(-len(points) // _MOST)
                curves[name] = points[(len(points) - 1) % step :: step]
        return curves
