"""Query counts, means, variances and quantiles of clients' data, as sums that a server adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from turnout.core.checks import ConfigurationError, is_finite, refuse
from turnout.core.other_names import ExplainsArguments
from turnout.core.ranges import Positive, Whole

if TYPE_CHECKING:  # one request of a command needs no PyTorch
    import torch

Kind = Literal["count", "mean", "variance", "histogram", "quantiles", "label_histogram"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_BINNED, _MOMENTS = ("histogram", "quantiles"), ("mean", "variance")
_OF_VALUES = (*_MOMENTS, *_BINNED)
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The levels of quantiles."""

_MOST_EDGES = 128
_ROWS = 4096  # examples in a block


@dataclass(frozen=True)
class Question(ExplainsArguments):
    """A query about the training examples of clients.

    Attributes:
        kind: ``"count"`` of examples; ``"mean"`` or ``"variance"``; ``"histogram"`` or ``"quantiles"`` by common bins; or
            ``"label_histogram"``, the number of examples of each class.
        of: ``"features"``, the inputs of the model; ``"targets"``; or the name of a function at the clients that returns a
            number for each example.
        column: the column of these; None is all columns.
        edges: the edges of the bins, ascending. Two further bins count values below the first edge and from the last one on.
        center: a number near the mean, which is subtracted from values to avoid cancellation in a variance.
        bound: maximum distance from `center` to which clients clip values for a mean or variance; None does not clip. Sums
            with noise require it.

    Raises:
        ConfigurationError: if a kind is unknown, or edges are missing, not ascending or unused.
    """

    kind: Kind
    of: str = "features"
    column: Whole | None = None
    edges: tuple[float, ...] = ()
    center: float = 0.0
    bound: Positive | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(self.edges))
        if not isinstance(self.of, str) or not self.of.isidentifier():
            raise refuse("of", given=self.of, needed="features, targets or the name of a function at the clients")
        if not is_finite(self.center):
            raise refuse("center", given=self.center, needed="a finite number")
        if self.bound is not None and self.kind not in _MOMENTS:
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
        """Return the query as plain values."""
        values = {**asdict(self), "edges": list(self.edges)}
        if self.bound is None:
            del values["bound"]
        return values

    def summed(self, widths: Mapping[str, int]) -> tuple[Any, ...]:
        """Return what is summed, except for `center` and `bound`: the same for questions with the same sums.

        >>> widths = {"features": 64, "targets": 1, "classes": 10}
        >>> Question("count", "targets", 3).summed(widths) == Question("count").summed(widths)
        True
        >>> Question("quantiles", "targets", 0, (0, 1)).summed(widths)
        ('histogram', 'targets', None, (0.0, 1.0))

        Args:
            widths: see `shapes`.
        """
        of = self.of if self.kind in _OF_VALUES else None
        column = self.column if of is not None and widths.get(of, 1) > 1 else None
        kind = "histogram" if self.kind == "quantiles" else self.kind
        return kind, of, column, tuple(float(edge) + 0.0 for edge in self.edges)  # without the sign of a zero

    def shapes(self, widths: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shape of each sum.

        >>> Question("quantiles", "targets", edges=(0, 1, 2)).shapes({"features": 64, "targets": 1, "classes": 0})
        {'num_examples': (), 'counts': (1, 4)}

        Args:
            widths: the number of columns of ``"features"`` and ``"targets"``, and of ``"classes"``, 0 if targets are no
                labels.

        Raises:
            ConfigurationError: if the column does not exist, or if there are no labels.
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
            values: the numbers of its examples, ``[n]`` or ``[n, ...]``; for a label histogram, the labels.
            num_classes: number of classes; 0 if targets are no labels.
        """
        sums: dict[str, Any] = {"num_examples": len(values)}
        if self.kind == "label_histogram":
            return sums | {"counts": [values.bincount(minlength=num_classes).tolist()]}
        for rows in values.reshape(len(values), -1).split(_ROWS) if self.kind in _OF_VALUES else ():
            numbers = rows.double().cpu().numpy()
            if self.column is not None:
                numbers = numbers[:, self.column : self.column + 1]
            for name, part in self._of(numbers).items():
                sums[name] = sums[name] + part if name in sums else part
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in sums.items()}

    def _of(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the sums of a block of examples, ``[n, D]``."""
        if self.kind in _BINNED:
            bins, number = np.digitize(rows, self.edges), len(self.edges) + 1
            flat = bins + number * np.arange(rows.shape[1])  # one bincount for all columns
            return {"counts": np.bincount(flat.ravel(), minlength=number * rows.shape[1]).reshape(-1, number)}
        centered = rows - self.center
        if self.bound is not None:
            centered = centered.clip(-self.bound, self.bound)
        squares = {"squares": np.square(centered).sum(axis=0)} if self.kind == "variance" else {}
        return {"sums": centered.sum(axis=0), **squares}

    def figures(self, total: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return the answer from the sums over all clients, as plain values; lists have a number for each column.

        Variances divide by the number of examples. Quantiles are interpolated within their bin; those beyond the bins are the
        outermost edge.
        """
        number = max(float(total["num_examples"]), 1.0)  # noise may decrease it
        answer: dict[str, Any] = {"num_examples": round(float(total["num_examples"]))}
        if self.kind in _MOMENTS:
            centered = total["sums"] / number
            answer["mean"] = (self.center + centered).tolist()
            if self.kind == "variance":
                answer["variance"] = np.maximum(total["squares"] / number - np.square(centered), 0.0).tolist()
        if "counts" in total:
            answer["counts"] = np.rint(total["counts"]).astype(np.int64).tolist()
        if self.kind == "label_histogram":
            answer["counts"] = answer["counts"][0]
        if self.kind == "quantiles":
            columns = [_quantiles(row, np.array(self.edges)) for row in total["counts"]]
            answer["quantiles"] = {f"{level:g}": [row[i] for row in columns] for i, level in enumerate(LEVELS)}
        return answer


def _quantiles(counts: np.ndarray, edges: np.ndarray) -> list[float]:
    """Return the quantiles of one column from its counts below, between and beyond edges."""
    counts = np.maximum(counts, 0.0)  # noise may make them negative
    below = np.cumsum(counts)[:-1] / max(counts.sum(), 1.0)  # the fraction of values below each edge
    quantiles = []
    for level in LEVELS:
        i = int(np.searchsorted(below, level))
        if i == 0 or i == len(edges):
            quantiles.append(float(edges[min(i, len(edges) - 1)]))
            continue
        low, high = below[i - 1], below[i]
        quantiles.append(float(edges[i - 1] + (level - low) / (high - low) * (edges[i] - edges[i - 1])))
    return quantiles
