"""Select the figures that a run with differential privacy publishes: those that epsilon covers, and public facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout.base.algorithm import Algorithm

_OF_MODELS = {"round", "update_norm", "epsilon", "poisson_rate", "fixed_size_rate", "server_bytes"}
"""Figures of noised values or of the settings."""

_OF_PARTICIPATION = {
    *("num_participants", "num_too_early", "num_unused", "staleness_mean", "staleness_max"),
    *("bytes_up", "bytes_down", "bytes_measured"),
}
"""Figures of participation."""

_OF_TIME = {"seconds", "simulated_seconds"}
"""Figures of durations."""

_OF_WEIGHTS = {"weight_min", "weight_mean", "weight_max", "weight_sum"}

_CLIENTS = {"client", "name", "known_rate", "byzantine"}
_CLIENTS_OF_PARTICIPATION = {"participations", "realized_rate", "mean_interval", "contributions", "mean_staleness"}
_CLIENTS_OF_WEIGHTS = {"weight", "influence", "fair_share"}


_SETTINGS_OF_DATA = {"num_examples", "crc32", "held_out", "inputs"}


def published_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of an experiment without the figures that identify clients' data.

    >>> published_settings({"data": {"name": "digits", "num_examples": 1437, "crc32": 71}, "rounds": 5})
    {'data': {'name': 'digits'}, 'rounds': 5}
    """
    data = description.get("data")
    if not isinstance(data, Mapping):
        return dict(description)
    return {**description, "data": {name: value for name, value in data.items() if name not in _SETTINGS_OF_DATA}}


class Published:
    """Filter the tables of a run, which also feed consoles, trackers, status and metrics.

    Without differential privacy, everything is published. With it, participation is published unless its randomness
    amplifies privacy; durations are published with it unless clients with more examples take more local steps; weights
    are published if they depend on participation alone; and no other figure of clients' data is published.

    Args:
        algorithm: algorithm of the run.

    Attributes:
        data: True if figures of clients' data are published.
        participation: True if figures of participation are published.
        time: True if durations are published.
        weights: True if weights are published.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        plan = algorithm.noised_privacy
        self.data = plan is None
        self.participation = plan is None or plan.sampling is None
        self.time = self.data or (self.participation and not algorithm.local.traits.steps_by_examples)
        public = all(piece.reads in ("staleness", "timing") for piece in algorithm.weighting)
        self.weights = self.data or (self.participation and public)

    def row(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        """Return the published columns of a round; those of test examples are always public."""
        published = self._published(_OF_MODELS, _OF_PARTICIPATION, _OF_WEIGHTS) | (_OF_TIME if self.time else set())
        return {
            name: value for name, value in figures.items() if self.data or name in published or name.startswith("test_")
        }

    def clients(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the published columns of the table of clients."""
        published = self._published(_CLIENTS, _CLIENTS_OF_PARTICIPATION, _CLIENTS_OF_WEIGHTS)
        return {name: values for name, values in columns.items() if self.data or name in published}

    def settings(self, description: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the description of the experiment for trackers."""
        return description if self.data else published_settings(description)

    def _published(self, always: set[str], of_participation: set[str], of_weights: set[str]) -> set[str]:
        """Return the published names."""
        return always | (of_participation if self.participation else set()) | (of_weights if self.weights else set())
