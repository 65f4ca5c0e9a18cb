"""Ask clients for counts, means, variances and quantiles of their data, as sums that a server adds up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, count, is_finite, known_name, positive, refuse

Kind = Literal["count", "mean", "variance", "histogram", "quantiles", "label_histogram"]
KINDS: tuple[Kind, ...] = ("count", "mean", "variance", "histogram", "quantiles", "label_histogram")
_BINNED, _MOMENTS = ("histogram", "quantiles"), ("mean", "variance")
_OF_VALUES = (*_MOMENTS, *_BINNED)
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that are given."""

_MOST_EDGES = 128
_ROWS = 4096  # examples that are summed at a time


@dataclass(frozen=True)
class Question:
    """Describe a query about the training examples of clients.

    Attributes:
        kind: ``"count"`` of examples; ``"mean"`` or ``"variance"``; ``"histogram"`` or ``"quantiles"`` by bins that all
            clients share; or ``"label_histogram"``, examples of each class.
        of: ``"features"``, as the model gets them; ``"targets"``; or the name of a function at the clients that gives a
            number for each example.
        column: of these alone; None is each.
        edges: of the bins, ascending. Values below the first and from the last one on are counted by themselves.
        center: a number near the mean, by which less of a variance is lost in rounding.
        bound: of a mean or variance, the distance from `center` to which clients clip each value; None clips nothing. Sums
            with noise need it.

    Raises:
        ConfigurationError: for an unknown kind, and bins that are missing, do not ascend or are not used.
    """

    kind: Kind
    of: str = "features"
    column: int | None = None
    edges: tuple[float, ...] = ()
    center: float = 0.0
    bound: float | None = None

    def __post_init__(self) -> None:
        known_name("query", self.kind, KINDS)
        object.__setattr__(self, "edges", tuple(self.edges))
        if not isinstance(self.of, str) or not self.of.isidentifier():
            raise refuse("of", given=self.of, needed="features, targets or the name of a function at the clients")
        if self.column is not None:
            count("column", self.column, least=0)
        if not is_finite(self.center):
            raise refuse("center", given=self.center, needed="a finite number")
        if self.bound is not None:
            positive("bound", self.bound)
            if self.kind not in _MOMENTS:
                raise ConfigurationError(f"bound: {self.kind} sums no values: leave it out")
        if self.kind not in _BINNED:
            if self.edges:
                raise ConfigurationError(f"edges: {self.kind} has no bins: leave them out")
            return
        if len(self.edges) > _MOST_EDGES:
            raise refuse("edges", given=f"{len(self.edges)} edges", needed=f"at most {_MOST_EDGES}")
        ascend = all(map(is_finite, self.edges)) and all(
            a < b for a, b in zip(self.edges, self.edges[1:], strict=False)
        )
        if len(self.edges) < 2 or not ascend:
            raise refuse("edges", given=list(self.edges), needed="two finite numbers or more that ascend")

    def table(self) -> dict[str, Any]:
        """Return it as plain values."""
        values = {**asdict(self), "edges": list(self.edges)}
        if self.bound is None:
            del values["bound"]
        return values

    def shapes(self, widths: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shape of each sum.

        >>> Question("quantiles", "targets", edges=(0, 1, 2)).shapes({"features": 64, "targets": 1, "classes": 0})
        {'num_examples': (), 'counts': (1, 4)}

        Args:
            widths: numbers of an example by what they are of, and of ``"classes"``, 0 where targets are no labels.

        Raises:
            ConfigurationError: for a column that does not exist, or labels where there are none.
        """
        if self.kind == "label_histogram" and not widths["classes"]:
            raise ConfigurationError("label_histogram: the targets are no class labels: write histogram")
        width = widths.get(self.of, 1)
        if self.column is not None and self.kind in _OF_VALUES:
            if self.column >= width:
                raise refuse("column", given=self.column, needed=f"a column of {self.of}, 0 to {width - 1}")
            width = 1
        sums: dict[str, tuple[int, ...]] = {"num_examples": ()}
        if self.kind in _MOMENTS:
            sums |= {"sums": (width,)} | ({"squares": (width,)} if self.kind == "variance" else {})
        if self.kind in _BINNED:
            sums["counts"] = (width, len(self.edges) + 1)
        if self.kind == "label_histogram":
            sums["counts"] = (1, widths["classes"])
        return sums

    def sums(self, values: torch.Tensor, num_classes: int) -> dict[str, Any]:
        """Return the sums of one client.

        Args:
            values: numbers of its examples, ``[n]`` or ``[n, ...]``; of a label histogram, the labels.
            num_classes: of labels; 0 where targets are none.
        """
        found: dict[str, Any] = {"num_examples": len(values)}
        if self.kind == "label_histogram":
            return found | {"counts": [torch.bincount(values, minlength=num_classes).tolist()]}
        for rows in self._columns(values) if self.kind in _OF_VALUES else ():
            for name, part in self._of(rows).items():
                found[name] = found[name] + part if name in found else part
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}

    def _columns(self, values: torch.Tensor) -> Iterator[np.ndarray]:
        """Yield the values that are asked for, float64 ``[n, D]``, some examples at a time."""
        for rows in values.reshape(len(values), -1).split(_ROWS):
            numbers = rows.double().cpu().numpy()
            yield numbers if self.column is None else numbers[:, self.column : self.column + 1]

    def _of(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        if self.kind in _BINNED:
            places, bins = np.digitize(rows, self.edges), len(self.edges) + 1
            flat = places + bins * np.arange(rows.shape[1])
            return {"counts": np.bincount(flat.ravel(), minlength=bins * rows.shape[1]).reshape(-1, bins)}
        off = rows - self.center
        if self.bound is not None:
            off = off.clip(-self.bound, self.bound)
        squares = {"squares": np.square(off).sum(axis=0)} if self.kind == "variance" else {}
        return {"sums": off.sum(axis=0), **squares}

    def figures(self, total: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return what the sums over all clients say, as plain values: lists have a number for each column.

        Variances divide by the number of examples. Quantiles are interpolated within their bin; those that lie beyond the
        bins are the outermost edge.
        """
        number = max(float(total["num_examples"]), 1.0)  # noise may have made it smaller
        found: dict[str, Any] = {"num_examples": round(float(total["num_examples"]))}
        if self.kind in _MOMENTS:
            off = total["sums"] / number
            found["mean"] = (self.center + off).tolist()
            if self.kind == "variance":
                found["variance"] = np.maximum(total["squares"] / number - np.square(off), 0.0).tolist()
        if "counts" in total:
            found["counts"] = np.rint(total["counts"]).astype(np.int64).tolist()
        if self.kind == "label_histogram":
            found["counts"] = found["counts"][0]
        if self.kind == "quantiles":
            at = [_quantiles(row, np.array(self.edges)) for row in total["counts"]]
            found["quantiles"] = {f"{level:g}": [row[i] for row in at] for i, level in enumerate(LEVELS)}
        return found


def _quantiles(counts: np.ndarray, edges: np.ndarray) -> list[float]:
    """Return quantiles of one column from the counts below, between and beyond edges."""
    counts = np.maximum(counts, 0.0)  # noise may have made some of them negative
    reached = np.cumsum(counts)[:-1] / max(counts.sum(), 1.0)  # the share of values below each edge
    found = []
    for level in LEVELS:
        at = int(np.searchsorted(reached, level))
        if at == 0 or at == len(edges):
            found.append(float(edges[min(at, len(edges) - 1)]))
            continue
        low, high = reached[at - 1], reached[at]
        found.append(float(edges[at - 1] + (level - low) / (high - low) * (edges[at] - edges[at - 1])))
    return found
