"""Sum updates as reports arrive, for algorithms whose weights depend on scalars alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.core.types import Federation, Report, ServerState
from turnout.core.updates import Updates
from turnout.distributed.sums import LazySum, RunningSum, Summed
from turnout.pieces.base import Weighting, check_weights
from turnout.pieces.base.algorithm import Algorithm


class ReportBuffer:
    """Collect the reports of a step a few at a time."""

    def __init__(self) -> None:
        self._parts: list[Report] = []

    def add(self, report: Report) -> None:
        """Take the next reports."""
        self._parts.append(report)

    def reports(self) -> Report:
        """All reports; of at least one part, which may be empty."""
        return Report.cat(self._parts)


class StreamingSum(ReportBuffer):
    """Collect the reports of a step a few at a time, and sum their vectors at once.

    Weights are known up to one number, which the rest of the reports decides (`Weighting.factors`), so updates are summed
    with those factors, and the sum is multiplied by that number in the end. What is only ever summed (``extra``) has the
    factor 1.

    Args:
        algorithm: one that `sums_early`.
        state: the server's, before the step.
        federation: as ever.
        deferred: whether the vectors stay where they are until the server asks for their sum, to the same bits: all reports
            come at once, or their vectors are files that are mapped into memory.
        version: of which factors are, where clients multiply by them before it is known which step uses their sum; None is
            the present one.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        state: ServerState,
        federation: Federation,
        deferred: bool = False,
        version: int | None = None,
    ) -> None:
        super().__init__()
        self._algorithm, self._state, self._federation = algorithm, state, federation
        self._deferred, self._version = deferred, version
        self._factors: list[torch.Tensor] = []
        self._sums: dict[str, RunningSum] = {}

    def add(self, report: Report) -> None:
        """Take the next reports; no client may be in two of them."""
        if self._deferred:
            factors = self._of(report)
            extra = {
                name: LazySum(Updates.of(rows).gathered(), torch.ones_like(factors))
                for name, rows in report.extra.items()
            }
            rows = report.updates.gathered()
            delta = LazySum(rows, factors)
            if (summand := self._summand(factors, report)) is not None:
                delta = LazySum(summand, factors, rows.dtype)
            super().add(replace(report, delta=delta, extra=extra))
            return
        good = report.finite()
        report = replace(report, good=good)
        factors = self._of(report)
        usable, times = report, factors
        if not good.all():
            rows = good.nonzero()[0]
            usable, times = report.take(rows), factors[to_device(rows, factors.device)]
        ones = torch.ones_like(times)
        summand = self._summand(times, usable) if usable.delta.shape[1] else None
        vectors = {"": (times, usable.delta) if summand is None else (ones, summand)}
        for name, (weights, rows) in (vectors | {name: (ones, rows) for name, rows in usable.extra.items()}).items():
            self._sums.setdefault(name, RunningSum()).add(weights, Updates.of(rows).gathered())
        self._factors.append(factors)
        nothing = {name: rows.new_zeros((len(rows), 0)) for name, rows in report.extra.items()}
        super().add(replace(report, delta=report.delta.new_zeros((len(report), 0)), extra=nothing))

    def _summand(self, factors: torch.Tensor, report: Report) -> torch.Tensor | None:
        """Return the vectors that clients add to the sum, where these are not their weighted updates."""
        return self._algorithm.aggregation.summand(factors, report, self._federation.seed)

    def _of(self, report: Report) -> torch.Tensor:
        """Return the product of all factors, float64 ``[b]``; of reports that hold no update, ones."""
        chain = self._algorithm.weighting if report.delta.shape[1] else ()
        return product_of_factors(chain, self._state, self._federation, report, self._version)

    def reports(self) -> Report:
        """All reports, with sums in place of vectors."""
        if self._deferred:
            return super().reports()
        report, factors = super().reports(), torch.cat(self._factors)
        even = to_device(report.finite(), factors.device, torch.float64)

        extra = {name: Summed(self._sums[name].total(), even, rows.dtype) for name, rows in report.extra.items()}
        delta = Summed(self._sums[""].total(), factors, report.delta.dtype)
        return replace(report, delta=delta, extra=extra)


def of_groups(parts: Sequence[Report]) -> Report:
    """Return the reports of the groups of a step one group after the other, each with its sum in place of updates."""
    first, *others = (part.updates for part in parts)
    return replace(Report.cat(parts), delta=first.joined(others))


def product_of_factors(
    chain: Sequence[Weighting], state: ServerState, federation: Federation, report: Report, version: int | None = None
) -> torch.Tensor:
    """Return what a chain of weightings multiplies each report by, float64 ``[b]``; 0 for those that are known to be dropped.

    Of the reports only scalars are read.

    Args:
        chain: of weightings.
        state, federation, report: as for `Weighting.apply`.
        version: of a group that trained from it, whose weights are of that version but for their staleness, which the step
            that uses its sum decides; None takes the factors of the step from the present version.
    """
    grouped, version = version is not None, state.version if version is None else version
    good = np.ones(len(report), dtype=bool) if report.good is None else report.good
    product = to_device(good, state.params.device, torch.float64)
    for i, piece in enumerate(chain):
        if grouped and piece.of_staleness:
            continue
        factors = piece.factors(report, version, state.slots[f"weighting.{i}"], federation)
        factors = to_device(check_weights(piece, factors, len(report)), product.device)
        product = (product * factors).where(product != 0, 0.0)
    return product
