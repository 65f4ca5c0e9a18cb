"""Weights by the amount of data."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.types import Federation, Report, State
from turnout.slots import Weighting, Weights


@dataclass(frozen=True)
class ByExamples(Weighting):
    """A client counts as much as it has examples: ``w_b <- w_b n_b``.

    Example:
        >>> import turnout as to
        >>> to.compose(to.ByExamples(), to.DivideBySum()).weighting
        (ByExamples(), DivideBySum())

    Reference: McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017.
    """

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return the numbers of training examples."""
        del version, state, federation
        return torch.from_numpy(report.num_examples).double()
