"""Reports whose updates are summed as they come in, for algorithms whose weights need scalars alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.core.types import Federation, Report, ServerState
from turnout.core.updates import Updates
from turnout.distributed.updates import LazySum, RunningSum, Summed
from turnout.pieces.base import Weighting, check_weights
from turnout.pieces.base.algorithm import Algorithm


class ReportBuffer:
    """Takes the reports of a step a few at a time, and keeps them."""

    def __init__(self) -> None:
        self._parts: list[Report] = []

    def add(self, report: Report) -> None:
        """Take the next reports."""
        self._parts.append(report)

    def reports(self) -> Report:
        """All reports; of at least one part, which may be empty."""
        return Report.cat(self._parts)


class StreamingSum(ReportBuffer):
    """Takes the reports of a step a few at a time, and keeps of their vectors nothing but sums.

    Weights are known up to one number, which the rest of the reports decides (`Weighting.factors`), so updates are summed
    with those factors, and the sum is multiplied by that number in the end. What is only ever summed (``extra``) has the
    factor 1.

    Args:
        algorithm: one that `sums_early`.
        state: the server's, before the step.
        federation: as ever.
        alone: whether all reports come at once. They are then summed when the server asks for it, and nobody needs to
            wait for them before.
    """

    def __init__(self, algorithm: Algorithm, state: ServerState, federation: Federation, alone: bool = False) -> None:
        super().__init__()
        self._algorithm, self._state, self._federation = algorithm, state, federation
        self._alone = alone
        self._factors: list[torch.Tensor] = []
        self._sums: dict[str, RunningSum] = {}

    def add(self, report: Report) -> None:
        """Take the next reports; no client may be in two of them."""
        if self._alone:
            factors = self._of(report)
            extra = {
                name: LazySum(Updates.of(rows).gathered(), torch.ones_like(factors))
                for name, rows in report.extra.items()
            }
            rows = report.updates.gathered()
            delta = LazySum(rows, factors)
            if (summand := self._algorithm.aggregation.summand(factors, rows)) is not None:
                delta = LazySum(summand, factors, rows.dtype)
            super().add(replace(report, delta=delta, extra=extra))
            return
        good = report.finite()
        report = replace(report, good=good)
        factors = self._of(report)
        kept = slice(None) if good.all() else to_device(good.nonzero()[0], factors.device)
        for name, rows in {"": report.delta, **report.extra}.items():
            times = torch.ones_like(factors) if name else factors
            self._add(name, times[kept], rows[kept])
        self._factors.append(factors)
        nothing = {name: rows.new_zeros((len(rows), 0)) for name, rows in report.extra.items()}
        super().add(replace(report, delta=report.delta.new_zeros((len(report), 0)), extra=nothing))

    def _add(self, name: str, factors: torch.Tensor, rows: torch.Tensor) -> None:
        """Add vectors of one kind to their sum: as they are, or as the aggregation adds them up."""
        if not name and rows.shape[1] and (summand := self._algorithm.aggregation.summand(factors, rows)) is not None:
            factors, rows = torch.ones_like(factors), summand
        self._sums.setdefault(name, RunningSum()).add(factors, rows)

    def _of(self, report: Report) -> torch.Tensor:
        """Return the product of all factors, float64 ``[b]``; of reports that hold no update, ones."""
        chain = self._algorithm.weighting if report.delta.shape[1] else ()
        return product_of_factors(chain, self._state, self._federation, report)

    def reports(self) -> Report:
        """All reports, with sums in place of vectors."""
        if self._alone:
            return super().reports()
        report, factors = super().reports(), torch.cat(self._factors)
        even = to_device(report.finite(), factors.device, torch.float64)

        extra = {name: Summed(self._sums[name].total(), even, rows.dtype) for name, rows in report.extra.items()}
        delta = Summed(self._sums[""].total(), factors, report.delta.dtype)
        return replace(report, delta=delta, extra=extra)


def product_of_factors(
    chain: Sequence[Weighting], state: ServerState, federation: Federation, report: Report
) -> torch.Tensor:
    """Return what a chain of weightings multiplies each report by, float64 ``[b]``; 0 for those that are known to be dropped.

    Of the reports only scalars are read.
    """
    good = np.ones(len(report), dtype=bool) if report.good is None else report.good
    product = to_device(good, state.params.device, torch.float64)
    for i, piece in enumerate(chain):
        factors = piece.factors(report, state.version, state.slots[f"weighting.{i}"], federation)
        factors = to_device(check_weights(piece, factors, len(report)), product.device)
        product = (product * factors).where(product != 0, 0.0)
    return product
