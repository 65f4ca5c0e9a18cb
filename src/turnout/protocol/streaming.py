"""Sum updates as reports arrive, for algorithms whose weights depend on scalars alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from turnout.base import Weighting, check_weights
from turnout.base.algorithm import Algorithm
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, ServerState
from turnout.core.updates import Updates
from turnout.distributed.running_sum import RunningSum
from turnout.distributed.sums import LazySum, Summed


class ReportBuffer:
    """Collect the reports of a step in parts."""

    def __init__(self) -> None:
        self._parts: list[Report] = []

    def add(self, report: Report) -> None:
        """Add reports."""
        self._parts.append(report)

    def reports(self) -> Report:
        """Return all reports. At least one part, which may be empty, must have been added."""
        return Report.cat(self._parts)


class StreamingSum(ReportBuffer):
    """Collect the reports of a step in parts, and add their vectors to a sum on arrival.

    Weights are known up to a scalar that depends on all reports (`Weighting.factors`): updates are summed with these
    factors, and the server multiplies the sum by the scalar. Vectors in ``extra`` have the factor 1.

    Args:
        algorithm: algorithm whose `sums_early` is true.
        state: the server's state before the step.
        federation: known properties of the federation.
        deferred: whether to compute the sums on access instead of on arrival, with the same bits. Use it if all reports
            arrive at once, or if vectors are memory-mapped files.
        version: version of the factors, if clients apply them before it is known which step uses their sum; None is the
            present version.
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
        """Add reports; each client may be in only one part."""
        if self._deferred:
            factors = self._of(report)
            extra = {
                name: LazySum(Updates.of(rows).gathered(), torch.ones_like(factors))
                for name, rows in report.extra.items()
            }
            rows, summand = report.updates.gathered(), self._summand(factors, report)
            delta = LazySum(rows, factors) if summand is None else LazySum(summand, factors, rows.dtype)
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
        """Return the vectors that clients add to the sum; None if these are their weighted updates."""
        extra = self._algorithm.aggregation.extra
        return None if extra is None else extra.summand(factors, report, self._federation.seed)

    def _of(self, report: Report) -> torch.Tensor:
        """Return the product of all factors, float64 ``[b]``; ones for reports without updates."""
        chain = self._algorithm.weighting if report.delta.shape[1] else ()
        return product_of_factors(chain, self._state, self._federation, report, self._version)

    def reports(self) -> Report:
        """Return all reports, with sums in place of vectors."""
        report = super().reports()
        if self._deferred:
            return report
        factors = torch.cat(self._factors)
        even = to_device(report.finite(), factors.device, torch.float64)
        extra = {name: Summed(self._sums[name].total(), even, rows.dtype) for name, rows in report.extra.items()}
        delta = Summed(self._sums[""].total(), factors, report.delta.dtype)
        return replace(report, delta=delta, extra=extra)


def of_groups(parts: Sequence[Report]) -> Report:
    """Concatenate the reports of the groups of a step, each with its sum in place of updates."""
    first, *others = (part.updates for part in parts)
    return replace(Report.cat(parts), delta=first.joined(others))


def product_of_factors(
    chain: Sequence[Weighting], state: ServerState, federation: Federation, report: Report, version: int | None = None
) -> torch.Tensor:
    """Return the product of the factors of a chain of weightings, float64 ``[b]``; 0 for reports that are dropped.

    It reads only scalars of the reports.

    Args:
        chain: the weightings.
        state, federation, report: as for `Weighting.apply`.
        version: version that a group trained from. Factors of staleness are left out, because they depend on the step
            that uses the group's sum. None returns the factors of the step from the present version.
    """
    grouped, version = version is not None, state.version if version is None else version
    good = np.ones(len(report), dtype=bool) if report.good is None else report.good
    product = to_device(good, state.params.device, torch.float64)
    for i, piece in enumerate(chain):
        if grouped and piece.reads == "staleness":
            continue
        factors = piece.factors(report, version, state.slots[f"weighting.{i}"], federation)
        factors = to_device(check_weights(piece, factors, len(report)), product.device)
        product = (product * factors).where(product != 0, 0.0)
    return product
