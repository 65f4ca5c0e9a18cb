"""Estimate aggregation weights from the intervals between a client's participations (FedAU)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from turnout.base import KnownInAdvance, MutatesRows, Weighting, Weights, WithState
from turnout.core.checks import count, refuse
from turnout.core.ranges import Share
from turnout.core.types import Federation, Report, State

Average = Literal["mean", "exponential"]


@dataclass(frozen=True)
class Participation(Weighting, KnownInAdvance, MutatesRows, name="participation"):
    """Weight each report by the mean of its client's participation intervals, cut off at K (FedAU, Algorithm 2).

    ``w_b <- w_b omega_t^b``, where w_b is the weight of report b, and omega_t^b estimates the inverse of the
    participation rate of the client. A participation ends an interval, and so do K rounds without one. omega_t is the
    mean length, in rounds, of all intervals that ended before round t, and 1 before the first. Each client has the
    number of intervals M, the length S of the present one, and omega. In round t, with ``I_{t-1} = 1`` if the client
    took part in the round before::

        S <- S + 1
        where I_{t-1} = 1 or S = K:  omega <- (M omega + S) / (M + 1),  M <- M + 1,  S <- 0

    Use it with `DivideByClients` if participation rates are unknown and differ among clients. The state is whole
    numbers, so the intervals of an absent client are settled when it returns, and the result equals exactly that of the
    authors' counter, which runs in every round. So absent clients cost nothing.

    Args:
        cutoff: largest length K of an interval, in rounds, >= 1. Small values bound the weights of rare clients, at the
            price of a bias; 1 makes all weights 1; None sets no cutoff.
        average: ``"mean"``, or ``"exponential"`` for the variant that section 3 mentions, which forgets old intervals:
            ``omega <- omega + rate (S - omega)`` for each interval that ends. The first interval replaces the initial
            1.
        rate: smoothing factor of the exponential average, in (0, 1]. Larger values follow recent intervals more
            closely. Ignored with ``"mean"``.
        groups: group number (0, 1, ...) of each client. The members of a group share M, S and omega, the paper's remedy
            for clients that take part once in their life: Algorithm 2 runs for one member after another, so S counts
            rounds of members. None makes each client its own group.

    State: by group, whole numbers ``intervals`` (M), ``total`` (the sum of intervals) and ``last`` (the start of the
    present interval, in rounds of members). The exponential average has ``omega``, float64, instead of ``total``.

    Raises:
        ConfigurationError: if `average` is unknown, or if a number is out of range.

    Example:
        >>> import turnout as to
        >>> to.compose(to.weighting.Participation(cutoff=50), to.weighting.DivideByClients())
        Algorithm('custom': AllAvailable() -> Sgd() -> Participation() -> DivideByClients() -> WeightedSum() -> ServerSgd())

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024.
    """

    reads = "timing"

    undoes_participation = True

    per_client = ("groups",)

    cutoff: int | None = 50
    average: Average = "mean"
    rate: Share = 0.1
    groups: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.cutoff is not None:
            count("cutoff", self.cutoff, instead="Write cutoff=None for no cutoff; 1 would make every weight 1")
        if self.groups is not None and not (self.groups and all(type(g) is int and g >= 0 for g in self.groups)):
            raise refuse("groups", given=self.groups, needed="one group number >= 0 for each client")

    @property
    def participation(self) -> Literal["own", "others"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The clients whose participation changes omega: the client itself, or the members of its group."""
        return "own" if self.groups is None else "others"

    def init(self, federation: Federation) -> State:
        """Return the state without intervals; the first interval begins with round 0."""
        num_groups = federation.num_clients if self.groups is None else max(self.groups) + 1
        state = {
            "intervals": torch.zeros(num_groups, dtype=torch.int64),
            "last": torch.full((num_groups,), -1, dtype=torch.int64),
        }
        if self.average == "mean":
            return state | {"total": torch.zeros(num_groups, dtype=torch.int64)}
        return state | {"omega": torch.ones(num_groups, dtype=torch.float64)}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the state with new clients, whose first interval begins now: their time before enrollment is no absence."""
        grown = super().grow(state, before, after, version)
        grown["last"][before.num_clients :] = version - 1
        return grown

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights times omega of the last round, and the state with the intervals that this round ends."""
        if not len(report):
            return weights, state
        weights, state = super().apply(weights, report, version, state, federation)
        clients = report.client
        group, seat, size = self._seats(clients)
        once = np.unique(clients, return_index=True)[1]  # two reports in one round are one participation
        self._settle(state, group[once], np.broadcast_to(version * size + seat, clients.shape)[once])
        return weights, state

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return omega of each report's client."""
        group, _, size = self._seats(report.client)
        return torch.from_numpy(self._omega(state, group, version * size))

    def mutated_rows(self, report: Report, state: State) -> dict[str, np.ndarray]:
        """Return the rows of the groups of the clients that report."""
        return dict.fromkeys(state, self._seats(report.client)[0])

    def client_weights(self, version: int, state: State, federation: Federation) -> np.ndarray:
        """Return omega of all clients in the next round, float64 ``[N]``."""
        group, _, size = self._seats(np.arange(federation.num_clients))
        return self._omega(state, group, version * size)

    def _seats(self, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray | int, np.ndarray | int]:
        """Return each client's group, its position among the members, and the number of members."""
        if self.groups is None:
            return clients, 0, 1
        group, seat, size = self._seating
        return group[clients], seat[clients], size[clients]

    @cached_property
    def _seating(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Group, position and number of members of all clients, computed once because it costs O(N)."""
        groups = np.asarray(self.groups)
        sizes = np.bincount(groups)
        order = np.argsort(groups, kind="stable")
        seat = np.empty(len(groups), dtype=np.int64)
        seat[order] = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return groups, seat, sizes[groups]

    def _omega(self, state: State, group: np.ndarray, now: np.ndarray | int) -> np.ndarray:
        """Return omega at the opportunity `now`, with the intervals that absence has cut off since ``last``."""
        last, intervals = state["last"].numpy()[group], state["intervals"].numpy()[group]
        # The client missed the opportunities last + 1, ..., now - 1, and every K of them ended an interval. Algorithm 2
        # records each in its round. Sums of whole numbers are exact, so recording all of them now gives the same state.
        cut = np.zeros_like(last) if self.cutoff is None else (now - last - 1) // self.cutoff
        if self.average == "mean":
            total = state["total"].numpy()[group] + cut * (self.cutoff or 0)
            return np.where(intervals + cut > 0, total / np.maximum(intervals + cut, 1), 1.0)
        return self._forget(state["omega"].numpy()[group], intervals, cut, self.cutoff or 0)

    def _forget(
        self, omega: np.ndarray, intervals: np.ndarray, times: np.ndarray, length: np.ndarray | int
    ) -> np.ndarray:
        """Return the exponential average after `times` more intervals of one length; the first interval replaces the 1."""
        omega = np.where((intervals == 0) & (times > 0), length, omega)
        return length + (omega - length) * (1.0 - self.rate) ** times

    def _settle(self, state: State, group: np.ndarray, now: np.ndarray) -> None:
        """End the intervals of participants at their opportunity `now`, in place; those of one group one after the other."""
        order = np.lexsort((now, group))
        group, now = group[order], now[order]
        turn = np.arange(len(group)) - np.searchsorted(group, group)  # 0 for the first of its group, then 1, ...
        for k in range(int(turn.max()) + 1):  # a single pass unless several members of a group take part
            rows = turn == k
            g, t = group[rows], now[rows]
            # Every K of the missed opportunities ended an interval of length K. The remaining ones and the present one are
            # the interval that ends now, of length 1 to K.
            gap = t - state["last"].numpy()[g] - 1
            cut = np.zeros_like(gap) if self.cutoff is None else gap // self.cutoff
            length = gap - cut * (self.cutoff or 0) + 1
            if self.average == "mean":
                state["total"].numpy()[g] += cut * (self.cutoff or 0) + length
            else:
                omega, intervals = state["omega"].numpy(), state["intervals"].numpy()[g]
                settled = self._forget(omega[g], intervals, cut, self.cutoff or 0)
                omega[g] = self._forget(settled, intervals + cut, np.ones_like(cut), length)
            state["intervals"].numpy()[g] += cut + 1
            state["last"].numpy()[g] = t
