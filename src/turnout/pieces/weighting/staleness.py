"""Weight reports by their staleness: discounts (FedBuff, FedAsync), echoes (FedAWE), and fair influence (FedStaleWeight)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from turnout.base import Weighting, Weights, WithState
from turnout.core.device import to_device
from turnout.core.ranges import Count, NotNegative, Positive, Share, Whole
from turnout.core.types import Federation, Report, State

Discount = Literal["constant", "polynomial", "exponential", "hinge"]

_LARGEST = 600.0  # bound of the exponent, so that sums of exp(exponent) over a buffer do not overflow in float64


@dataclass(frozen=True)
class ByStaleness(Weighting, name="by_staleness"):
    """Weight each report by a function of its staleness (FedAsync, section 5.2; FedBuff, section 5).

    ``w_b <- w_b s(tau_b)``, where w_b is the weight of report b. Its staleness tau_b is the number of server steps
    since the version that the client trained from. `rule` chooses s::

        constant     s = 1
        polynomial   s = (1 + tau)^-exponent                                       FedBuff with exponent 1/2; FedAsync
        exponential  s = base^tau                                                  for comparison
        hinge        s = 1 where tau <= grace, else 1 / (slope (tau - grace) + 1)  FedAsync

    Args:
        rule: ``"constant"``, ``"polynomial"``, ``"exponential"`` or ``"hinge"``.
        exponent: exponent of the polynomial rule, >= 0.
        base: base of the exponential rule, > 0. 0.5 favors fresh reports; 2 is the "reverse exponential" of
            FedStaleWeight's authors, which favors stale ones.
        slope: slope of the hinge rule, > 0.
        grace: largest staleness that the hinge rule does not discount, in server steps, >= 0.

    Raises:
        ConfigurationError: if `rule` is unknown, or if a number is out of range.

    Example:
        Reports from versions 8, 5 and 0 in the step from version 8:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(ByStaleness(), report([[0.0]] * 3, version=[8, 5, 0]), version=8)
        [1.0, 0.5, 0.3333]

    References: Xie et al., "Asynchronous federated optimization", OPT 2020, section 5.2; Nguyen et al., "Federated
    learning with buffered asynchronous aggregation", AISTATS 2022, section 5.
    """

    reads = "staleness"
    participation = "own"

    rule: Discount = "polynomial"
    exponent: NotNegative = 0.5
    base: Positive = 0.5
    slope: Positive = 10.0
    grace: Whole = 4

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return s of each report."""
        return torch.from_numpy(self.of(version - report.version))

    def of(self, staleness: np.ndarray) -> np.ndarray:
        """Return s of an array of staleness, float64 of the same shape."""
        tau = staleness.astype(np.float64)
        if self.rule == "polynomial":
            return (1.0 + tau) ** -self.exponent
        if self.rule == "exponential":
            return np.exp(np.minimum(tau * math.log(self.base), _LARGEST))
        if self.rule == "hinge":
            return 1.0 / (self.slope * np.maximum(tau - self.grace, 0.0) + 1.0)
        return np.ones_like(tau)


@dataclass(frozen=True)
class Echo(Weighting, name="echo"):
    """Multiply each update by the number of rounds since its client's last participation (FedAWE, innovation echoing).

    ``w_b <- w_b lr (t - tau_b)``. Here w_b is the weight of report b, t is the present round, tau_b is the round of the
    client's last participation (-1 if there was none), and lr is the global step size. So an update stands for the
    rounds that its client missed, too.

    In FedAWE clients continue from the model of the step after their last participation (`KeptModels`). Then
    ``t - tau_b`` is the number of server steps since that model, plus one, which is how it is computed.

    Args:
        lr: global step size eta_g, > 0. It multiplies updates, and not the models that they start from.

    Raises:
        ConfigurationError: if `lr` is not positive.

    Example:
        In the round from version 4, a client that continued from version 1 counts four times:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(Echo(), report([[0.0]] * 2, version=[4, 1]), version=4)
        [1.0, 4.0]

    Reference: Xiang et al., "Efficient federated learning against heterogeneous and non-stationary client
    unavailability", NeurIPS 2024.
    """

    reads = "timing"
    participation = "own"

    lr: Positive = 1.0

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return the number of rounds that each update stands for, times the step size."""
        return torch.from_numpy(self.lr * (version - report.version + 1.0))


Rule = Literal["paper", "algorithm_1", "authors_code"]
Average = Literal["window", "cumulative", "exponential", "authors_window"]


@dataclass(frozen=True)
class ExpectedStaleness(Weighting, name="expected_staleness"):
    """Weight each report by the mean staleness of its client's reports (FedStaleWeight, eq. 8).

    ``w_b <- w_b (E[tau_b] B + 1) / N``, where w_b is the weight of report b. The staleness tau of a report is the
    number of server steps since the version that the client trained from. ``E[tau_b]`` is its mean over the client's
    reports so far, the present one included; B is the number of reports in a step, and N the number of clients.

    Slow clients report rarely. If a client sends the share p of all reports, then ``E[tau] B + 1 = 1 / p`` (eq. 7). So
    its share times its weight is 1 / N, and all clients have equal influence. Use it with `Buffered` and `DivideBySum`.

    The staleness of all reports of a step is recorded before weights are computed. A client with several reports in one
    step has the same mean in all of them. They are recorded oldest first, whatever the order of arrival.

    Args:
        rule: ``"paper"`` for eq. 8; ``"algorithm_1"`` for ``(E[tau] + 1) / N``, as Algorithm 1 prints it;
            ``"authors_code"`` for ``E[tau] B / N``, in which fresh reports weigh nothing, and a step of fresh reports
            alone leaves the model unchanged.
        average: kind of mean. ``"window"``: over the client's last `window` reports. ``"cumulative"``: over all of its
            reports. ``"exponential"``: exponential average with factor `rate`; the first report sets it.
            ``"authors_window"``: over the client's first ``window - 1`` reports and its last one, as the list of the
            authors' code drops its newest entry when it is full.
        window: number of reports in a window, >= 1.
        rate: smoothing factor of the exponential average, in (0, 1]. Larger values follow recent reports more closely.

    State, on the host: ``reports [N]``, the number of recorded reports, int64; and, depending on `average`,
    ``lags [N, window]`` or ``total [N]``, in server steps, int64, or ``mean [N]``, float64.

    Raises:
        ConfigurationError: if a name is unknown, or if a number is out of range.

    Example:
        In a step of B = 2 reports, a client with a mean staleness of 3 has the weight (3 * 2 + 1) / N, and one with
        fresh reports 1 / N:

        >>> from turnout.base.trial import report, weigh
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
    window: Count = 5
    rate: Share = 0.1

    def init(self, federation: Federation) -> State:
        """Return the state without reports."""
        num_clients = federation.num_clients
        state = {"reports": torch.zeros(num_clients, dtype=torch.int64)}
        if self.average == "cumulative":
            return state | {"total": torch.zeros(num_clients, dtype=torch.int64)}
        if self.average == "exponential":
            return state | {"mean": torch.zeros(num_clients, dtype=torch.float64)}
        return state | {"lags": torch.zeros((num_clients, self.window), dtype=torch.int64)}

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights times the factors, after the staleness of every report is recorded, and the state."""
        self._record(report.client, version - report.version, state)
        mean = self._mean(report.client, state)
        times, plus = {"paper": (len(report), 1), "algorithm_1": (1, 1), "authors_code": (len(report), 0)}[self.rule]
        factor = mean * times + plus
        return weights * to_device(factor / federation.num_clients, weights.device, weights.dtype), state

    def _record(self, clients: np.ndarray, staleness: np.ndarray, state: State) -> None:
        """Record the staleness of reports, in place; those of one client oldest first."""
        order = np.lexsort((-staleness, clients))
        client, lag = clients[order], staleness[order]
        turn = np.arange(len(client)) - np.searchsorted(client, client)  # 0 for the first of its client, then 1, ...
        reports = state["reports"].numpy()
        index = reports[client] + turn
        if self.average == "cumulative":
            np.add.at(state["total"].numpy(), client, lag)
        elif self.average == "exponential":
            mean = state["mean"].numpy()
            for k in range(int(turn.max(initial=-1)) + 1):  # in order, because the exponential average depends on it
                now = turn == k
                rate = np.where(index[now] == 0, 1.0, self.rate)
                mean[client[now]] += rate * (lag[now] - mean[client[now]])
        else:
            column = index % self.window if self.average == "window" else np.minimum(index, self.window - 1)
            state["lags"].numpy()[client, column] = lag  # of several reports in one column the last one stays
        np.add.at(reports, client, 1)

    def _mean(self, clients: np.ndarray, state: State) -> np.ndarray:
        """Return the mean staleness of each of `clients`, float64 ``[B]``."""
        if self.average == "exponential":
            return state["mean"].numpy()[clients]
        reports = state["reports"].numpy()[clients]
        if self.average == "cumulative":
            return state["total"].numpy()[clients] / reports
        return state["lags"].numpy()[clients].sum(axis=1) / np.minimum(reports, self.window)
