"""Compute the figures of an evaluation from clients' sums over their test examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.evaluation.evaluate import Scores, columns, figures
from turnout.evaluation.fairness import fairness, spread
from turnout.evaluation.metrics import Metric

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SumsForm:
    """The form of the sums that each client sends in an evaluation.

    Attributes:
        groups: groups of labels with sums of their own.
        metrics: further metrics by name, functions that return one number for each example.
        appeal: clients send if the model meets their requirement.
        alone: clients have local models, which they prefer to a model that does not meet their requirement.
        personal: clients predict with personal models, and evaluate the shared model as well.
        metric: ``"accuracy"``, or ``"rmse"`` for regression.
        bins: number of bins of a histogram of clients' accuracies, from which figures over clients are derived if the server
            learns sums alone; 0 is none.
    """

    groups: Groups = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    appeal: bool = False
    alone: bool = False
    personal: bool = False
    metric: str = "accuracy"
    bins: int = 0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each sum.

        >>> SumsForm(groups=((0, 1), (2,))).shapes
        {'num_examples': (), 'loss': (), 'score': (), 'group_examples': (2,), 'group_score': (2,)}
        """
        names = ["num_examples", "loss", "score"]
        names += ["shared_loss", "shared_score"] if self.personal else []
        names += ["appeal_train", "appeal_test"] if self.appeal else []
        names += ["preferred"] if self.appeal and self.alone else []
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys([*names, *(f"metric.{name}" for name in self.metrics)], ())
        if self.groups:
            shapes |= dict.fromkeys(("group_examples", "group_score"), (len(self.groups),))
        return shapes | ({"client_bins": (self.bins,)} if self.bins else {})

    @property
    def facts(self) -> dict[str, Any]:
        """The groups, the metric and whether models are personal, as plain values, for `ClientSums`."""
        return {"groups": [list(group) for group in self.groups], "metric": self.metric, "personal": self.personal}


def scored(scores: Scores, labels: np.ndarray, groups: Groups, bins: int) -> dict[str, Any]:
    """Sum the scores of one client's examples; with bins, include the one-hot bin of its accuracy."""
    sums: dict[str, Any] = {
        "num_examples": len(scores.loss),
        "loss": float(scores.loss.sum()),
        "score": float(scores.score.sum()),
    }
    if groups:
        inside = [np.isin(labels, group) for group in groups]
        sums["group_examples"] = [int(rows.sum()) for rows in inside]
        sums["group_score"] = [float(scores.score[rows].sum()) for rows in inside]
    if bins:
        at = min(int(float(scores.score.mean()) * bins), bins - 1)
        sums["client_bins"] = [float(i == at) for i in range(bins)]
    return sums


def metric_sums(metrics: Mapping[str, Metric], outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Sum the metrics of one client's examples.

    Raises:
        ConfigurationError: if a metric does not return one number for each example.
    """
    sums = {}
    for name, function in metrics.items():
        values: Any = function(outputs, targets)
        if not isinstance(values, torch.Tensor) or values.shape != (len(targets),):
            raise ConfigurationError(
                f"metrics: {name} returns one figure for all examples together, and clients give sums over theirs: write a "
                "function that returns a number for each example, or leave it out"
            )
        sums[f"metric.{name}"] = float(values.double().sum())
    return sums


@dataclass(frozen=True, eq=False)
class ClientSums:
    """Sums over the test examples of clients, with a row for each client.

    Figures have the names of the table of rounds of a simulation, and the same values.

    Attributes:
        clients: the clients that answered, ascending, int64 ``[n]``.
        seen: the clients that had contributed to the model, bool ``[n]``.
        sums: the sums of `SumsForm`, float64 ``[n]`` or ``[n, G]`` by name.
        facts: `SumsForm.facts`.
    """

    clients: np.ndarray
    seen: np.ndarray
    sums: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]

    @property
    def num_examples(self) -> int:
        """The number of examples of all clients."""
        return int(self.sums["num_examples"].sum()) if len(self.clients) else 0

    def by_client(self) -> dict[str, np.ndarray]:
        """Return mean loss, score and metrics of each client, float64 ``[n]`` by name."""
        sums, number = self.sums, self.sums["num_examples"]
        means = figures(self.facts["metric"], sums["loss"] / number, sums["score"] / number)
        means |= {name.removeprefix("metric."): sums[name] / number for name in sums if name.startswith("metric.")}
        return {f"test_{name}": values for name, values in means.items()}

    def figures(self) -> dict[str, float]:
        """Return figures over all clients that answered, and over those that never contributed to the model.

        Figures of fairness have the names of `turnout.reporting`: ``client_test_mean``, ``client_test_worst``, ....
        """
        if not len(self.clients):
            return {}
        row = self._over(np.ones(len(self.clients), dtype=bool))
        if (never := ~self.seen).any():
            # These clients have not fitted their personal parts, which a simulation calls "after 0 steps".
            prefix = "unseen_after_0_" if self.facts["personal"] else "unseen_"
            row |= {f"{prefix}{name}": value for name, value in self._over(never).items()}
        values = self.by_client()[f"test_{self.facts['metric']}"]
        of_clients = fairness(values) if self.facts["metric"] == "accuracy" else {"spread": spread(values)}
        return row | {f"client_test_{name}": float(value) for name, value in of_clients.items()}

    def _over(self, rows: np.ndarray) -> dict[str, float]:
        """Return figures over the clients in these rows, bool ``[n]``."""
        sums = {name: values[rows] for name, values in self.sums.items()}
        if "appeal_test" in sums and self.facts["metric"] == "accuracy":
            sums["client_accuracy"] = sums["score"] / sums["num_examples"]
        total = {name: values.sum(axis=0) for name, values in sums.items()}
        return _of_totals(total, self.facts, int(rows.sum()))


_OF_CLIENTS = {
    "appeal_train": "appeal_train",
    "appeal_test": "appeal_test",
    "client_accuracy": "client_accuracy",
    "preferred": "preferred_accuracy",
}
"""Sums whose means over clients are columns of `turnout.evaluation.appeal.AppealMetrics`, and these columns."""


def _of_totals(total: Mapping[str, np.ndarray], facts: Mapping[str, Any], num_clients: int) -> dict[str, float]:
    """Return the figures that are functions of sums over all clients."""
    number, metric = total["num_examples"], facts["metric"]
    row = columns(figures(metric, total["loss"] / number, total["score"] / number), "test")
    for name in total:
        if name.startswith("metric."):
            row[f"test_{name.removeprefix('metric.')}"] = float(total[name] / number)
    if facts["personal"]:
        mean = figures(metric, total["shared_loss"] / number, total["shared_score"] / number)
        row |= columns(mean, "shared_test")
    for i, group in enumerate(facts["groups"]):
        if total["group_examples"][i]:
            name = f"test_accuracy_of_{'_'.join(map(str, group))}"
            row[name] = float(total["group_score"][i] / total["group_examples"][i])
    return row | {column: float(total[name] / num_clients) for name, column in _OF_CLIENTS.items() if name in total}


@dataclass(frozen=True, eq=False)
class TotalSums:
    """Sums over the test examples of all clients, of which the server knows no single client's.

    Attributes:
        clients: the clients that answered, ascending, int64 ``[n]``.
        seen: the clients that had contributed to the model, bool ``[n]``.
        total: the sums of `SumsForm` over clients, float64, possibly with noise.
        facts: `SumsForm.facts`.
        least: lower bound of the number of examples by which sums are divided, as noise may decrease it.
    """

    clients: np.ndarray
    seen: np.ndarray
    total: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]
    least: float = 1.0

    def by_client(self) -> dict[str, np.ndarray]:
        """Return no figures: those of single clients are unknown."""
        return {}

    @property
    def num_examples(self) -> int:
        """The number of examples of all clients, possibly with noise."""
        return max(0, round(float(self.total["num_examples"]))) if len(self.clients) else 0

    def figures(self) -> dict[str, float]:
        """Return the figures of `ClientSums` that are functions of sums over all clients.

        Figures of fairness are derived from a histogram of accuracies, in which each client counts as the middle of its bin:
        without noise their error is at most half a bin. Figures over clients that never contributed are not available.
        """
        if not len(self.clients):
            return {}
        total = {**self.total, "num_examples": np.maximum(self.total["num_examples"], self.least)}
        if "group_examples" in total:
            total["group_examples"] = np.maximum(total["group_examples"], self.least)
        return _of_totals(total, self.facts, len(self.clients)) | self._over_clients()

    def _over_clients(self) -> dict[str, float]:
        """Return figures of fairness, from the histogram of clients' accuracies."""
        if "client_bins" not in self.total:
            return {}
        counts = np.maximum(np.rint(self.total["client_bins"]), 0.0).astype(np.int64)
        if not counts.sum():
            return {}
        middles = (np.arange(len(counts)) + 0.5) / len(counts)
        of_clients = fairness(np.repeat(middles, counts))
        return {f"client_test_{name}": float(of_clients[name]) for name in ("mean", "spread", "worst", "jain")}
