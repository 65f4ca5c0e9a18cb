"""Base class of aggregations of low-rank adapters, which combine products ``B A`` and not only factors."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from turnout.base import Aggregation, Slots, Weights, WithState
from turnout.core.adapter import BASE_OFFSET, Adapter
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.random import stream
from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.requirements import needs_whole_step


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors of one adapter ``W + s B A`` in one step, float64, for n reports.

    Attributes:
        up: B_i of each report, ``[n, m, r]``; columns beyond its rank are zero.
        down: A_i of each report, ``[n, r, k]``; rows beyond its rank are zero.
        before_up: B on the server before the step, ``[m, r]``.
        before_down: A on the server before the step, ``[r, k]``.
        ranks: rank of each report, int64 ``[n]``.
        key: 64 random bits for this adapter and step.
    """

    up: torch.Tensor
    down: torch.Tensor
    before_up: torch.Tensor
    before_down: torch.Tensor
    ranks: torch.Tensor
    key: int

    def product(self, weights: Weights) -> torch.Tensor:
        """Return ``(1 - sum_i w_i) B A + sum_i w_i B_i A_i``, ``[m, k]``."""
        up, down = self.stacked(weights[:, None], 1.0 - weights.sum())
        return up @ down

    def stacked(self, weights: Weights, rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return factors ``[m, q]`` and ``[q, k]`` of a weighted sum of products: those of all reports and of the server.

        Args:
            weights: weights of the reports, ``[n, 1]``, or of the columns of their B, ``[n, r]``.
            rest: weight of the server's product, ``[]``, or of the columns of its B, ``[r]``.
        """
        up = (weights[:, None, :] * self.up).movedim(0, 1).flatten(1)
        return torch.cat([up, rest * self.before_up], dim=1), torch.cat([self.down.flatten(0, 1), self.before_down])

    def mean(self, weights: Weights) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``(1 - sum_i w_i) B + sum_i w_i B_i``, ``[m, r]``, and the same for A, ``[r, k]``."""
        rest = 1.0 - weights.sum()
        up = torch.tensordot(weights, self.up, dims=1) + rest * self.before_up
        return up, torch.tensordot(weights, self.down, dims=1) + rest * self.before_down


class Merged(NamedTuple):
    """The new factors of one adapter and, for pieces that read ``"base"``, the product ``[m, k]`` that the layer needs."""

    up: torch.Tensor
    down: torch.Tensor
    product: torch.Tensor | None = None


class LowRank(Aggregation):
    """Base class of aggregations that compute new factors of each adapter (`merge`) and average other parameters.

    Weights need not sum to 1: the server's own factors have the remaining weight, as in ``x + sum_i w_i (x_i - x)``.
    Clients may have different ranks, see `turnout.guard.TruncatedRank`.

    Raises:
        ConfigurationError: if the server step is other than ``x + u``; if there is client memory about the factors, and
            these are replaced in every step (`new_factors`); and, before the first round, if the model has no adapters
            of which both factors are trained and shared.
    """

    client_rows = ()

    reads = frozenset({"model"})
    needs_rounds = (
        "averaged factors have to start from the same version, and with {pace} reports are of several versions"
    )
    new_factors: ClassVar[bool] = False
    """True if the factors after a step are unrelated to those before it, so that client memory about them is invalid."""

    @abstractmethod
    def merge(self, weights: Weights, factors: Factors) -> Merged:
        """Return the new factors of an adapter."""

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for another server step, and for client memory about factors that are replaced."""
        name = type(self).__name__
        needs_whole_step(algorithm, name)
        if self.new_factors and (memory := (*algorithm.keeps, *algorithm.local.traits.remembers)):
            raise ConfigurationError(
                f"{name} replaces the factors in every step, and clients keep memory of the old ones "
                f"({', '.join(memory)}): leave it out (for AdamW: keep_state=False)"
            )

    def init(self, federation: Federation) -> State:
        """Return zeros to be added to the frozen weights if the piece reads ``"base"``, otherwise an empty state."""
        if not federation.adapters:
            raise ConfigurationError(
                f"{type(self).__name__} averages products of low-rank factors, and the model has no adapter whose A and B "
                "are both trained and shared: write HuggingFace(lora=8), without frozen or personal factors"
            )
        if "base" not in self.reads:
            return {}
        numbers = sum(adapter.outputs * adapter.inputs for adapter in federation.adapters)
        return {BASE_OFFSET: torch.zeros(numbers, dtype=federation.dtype, device=federation.device)}

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``: the change of the factors, and the weighted sum of updates of other parameters."""
        assert report.model is not None
        direction, model, deltas = report.updates.weighted_sum(weights), report.model, report.updates.gathered()
        seed, version = stream("low-rank factors", federation.seed), int(report.version[0])
        offsets = []
        for number, adapter in enumerate(federation.adapters):
            key = stream("of an adapter", seed, version, number)
            before = adapter.factors(model[None].double())
            merged = self.merge(weights, _factors(adapter, before, deltas, report, key))
            up, down = (value.to(model.dtype) for value in (merged.up, merged.down))
            for begin, value, old in ((adapter.up, up, before[0]), (adapter.down, down, before[1])):
                direction[begin : begin + value.numel()] = (value.double() - old[0]).flatten()
            if merged.product is not None:  # minus the product of the new factors after rounding
                offsets.append((adapter.scaling * (merged.product - up.double() @ down.double())).flatten())
        if offsets:
            offset = (state[BASE_OFFSET] + torch.cat(offsets)).to(federation.dtype)
            # NaN if the sum overflows, so that the server step is rejected.
            direction += 0.0 * offset.sum(dtype=torch.float64)
            state = state | {BASE_OFFSET: offset}
        return direction.to(model.dtype), state


def _factors(
    adapter: Adapter, before: tuple[torch.Tensor, torch.Tensor], deltas: torch.Tensor, report: Report, key: int
) -> Factors:
    """Return the factors of each report: the server's factors plus the update, truncated to the client's rank."""
    ranks = report.seen.get("rank")
    full = torch.full((len(report),), adapter.rank, device=deltas.device)
    ranks = full if ranks is None else to_device(ranks, deltas.device).to(torch.int64).minimum(full)
    kept = (torch.arange(adapter.rank, device=deltas.device) < ranks[:, None]).double()
    up, down = adapter.factors(deltas)
    return Factors(
        (before[0] + up.double()) * kept[:, None, :],
        (before[1] + down.double()) * kept[:, :, None],
        before[0][0],
        before[1][0],
        ranks,
        key,
    )
