"""Weigh clients by the usual staleness of their reports, so that slow and fast ones have equal influence (FedStaleWeight)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from turnout.core.checks import count, known_name, positive, refuse
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Weighting, Weights, WithState

Rule = Literal["paper", "algorithm_1", "authors_code"]
Average = Literal["window", "cumulative", "exponential", "authors_window"]
RULES: tuple[Rule, ...] = ("paper", "algorithm_1", "authors_code")
AVERAGES: tuple[Average, ...] = ("window", "cumulative", "exponential", "authors_window")


@dataclass(frozen=True)
class ExpectedStaleness(Weighting, name="expected_staleness"):
    """``w_b <- w_b (E[tau_b] B + 1) / N``: E is the mean staleness of the client's reports so far, this one included.

    FedStaleWeight, equation (8). A client with the share p of all reports has ``E[tau] B + 1 = 1 / p`` (equation 7), so
    ``p w`` is 1 / N for everyone. B is the number of reports in the step. The staleness of all reports of a step is
    recorded before any of them is weighed; who sent several has the same mean in all of them, and the older ones are
    recorded first, whatever the order of arrival.

    Args:
        rule: ``"paper"``, equation (8). ``"algorithm_1"``, ``(E[tau] + 1) / N`` as Algorithm 1 prints it.
            ``"authors_code"``, ``E[tau] B / N``: the fresh weigh nothing, and where all are fresh the model stays as it is.
        average: ``"window"``, the mean of a client's last `window` reports. ``"cumulative"``, of all. ``"exponential"``,
            every report moves it by `rate` of the way to its staleness, the first replaces it. ``"authors_window"``, the
            mean of the first ``window - 1`` and the last, as the authors' list drops its newest entry when it is full.
        window: reports that a window holds.
        rate: of the exponential average, in (0, 1].

    State, on the host: ``reports [N]``, how many were recorded; ``lags [N, window]``, or ``total [N]``, or ``mean [N]``.

    Raises:
        ConfigurationError: for names that are not known, or numbers out of range.

    Example:
        In a buffer of two a client whose reports are 3 steps old counts (3 * 2 + 1) / N, a fresh one 1 / N:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(ExpectedStaleness(), report([[0.0]] * 2, version=[3, 0]), version=3)
        [0.1, 0.7]

    Reference: Ma et al., "FedStaleWeight: buffered asynchronous federated learning with fair aggregation via staleness
    reweighting", 2024.
    """

    reads = "timing"

    undoes_participation = True
    client_rows = ("reports", "total", "mean", "lags")

    rule: Rule = "paper"
    average: Average = "window"
    window: int = 5
    rate: float = 0.1

    def __post_init__(self) -> None:
        known_name("rule of staleness", self.rule, RULES)
        known_name("average of staleness", self.average, AVERAGES)
        count("window", self.window)
        positive("rate", self.rate)
        if self.rate > 1:
            raise refuse("rate", given=self.rate, needed="a number > 0 and <= 1")

    def init(self, federation: Federation) -> State:
        """No report was recorded."""
        num_clients = federation.num_clients
        state = {"reports": torch.zeros(num_clients, dtype=torch.int64)}
        if self.average == "cumulative":
            return state | {"total": torch.zeros(num_clients, dtype=torch.int64)}
        if self.average == "exponential":
            return state | {"mean": torch.zeros(num_clients, dtype=torch.float64)}
        return state | {"lags": torch.zeros((num_clients, self.window), dtype=torch.int64)}

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Record the staleness of every report; then weigh by the means."""
        self._record(report.client, version - report.version, state)
        mean = self._mean(report.client, state)
        times, plus = {"paper": (len(report), 1), "algorithm_1": (1, 1), "authors_code": (len(report), 0)}[self.rule]
        factor = mean * times + plus
        return weights * to_device(factor / federation.num_clients, weights.device, weights.dtype), state

    def _record(self, clients: np.ndarray, staleness: np.ndarray, state: State) -> None:
        """Take in the staleness of reports, those of one client one after the other, the oldest first."""
        order = np.lexsort((-staleness, clients))
        client, lag = clients[order], staleness[order]
        turn = np.arange(len(client)) - np.searchsorted(client, client)  # 0 for the first of its client, then 1, ...
        reports = state["reports"].numpy()
        index = reports[client] + turn
        if self.average == "cumulative":
            np.add.at(state["total"].numpy(), client, lag)
        elif self.average == "exponential":
            mean = state["mean"].numpy()
            for k in range(int(turn.max(initial=-1)) + 1):  # reports of one client are averaged one after the other
                now = turn == k
                rate = np.where(index[now] == 0, 1.0, self.rate)
                mean[client[now]] += rate * (lag[now] - mean[client[now]])
        else:
            column = index % self.window if self.average == "window" else np.minimum(index, self.window - 1)
            state["lags"].numpy()[client, column] = lag  # of several in one column the last one stays
        np.add.at(reports, client, 1)

    def _mean(self, clients: np.ndarray, state: State) -> np.ndarray:
        """Return the mean staleness of each of `clients`, float64 ``[B]``."""
        if self.average == "exponential":
            return state["mean"].numpy()[clients]
        reports = state["reports"].numpy()[clients]
        if self.average == "cumulative":
            return state["total"].numpy()[clients] / reports
        return state["lags"].numpy()[clients].sum(axis=1) / np.minimum(reports, self.window)
