"""Weight reports by the client's number of examples."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Weighting, Weights
from turnout.core.ranges import Count
from turnout.core.types import Federation, Report, State


@dataclass(frozen=True)
class ByExamples(Weighting, name="by_examples"):
    """Weight each report by its client's number of training examples (FedAvg).

    ``w_b <- w_b n_b``, where w_b is the weight of report b, and n_b is its client's number of training examples. With
    `DivideBySum` the weights are ``n_b / sum_b n_b``, as in FedAvg.

    Clients report n_b, and a false number gives a report any weight, also beside a robust aggregation. Between machines,
    ``serve --max-examples`` limits it; `ExamplesUpTo` caps it.

    Example:
        >>> import turnout as to
        >>> to.compose(to.weighting.ByExamples(), to.weighting.DivideBySum()).weighting
        (ByExamples(), DivideBySum())

    Reference: McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS
    2017.
    """

    reads = "own"
    participation = "none"
    trusts = ("max_examples", "weights a report by the number of examples that its client states")

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return the number of training examples of each report."""
        return torch.from_numpy(report.num_examples).double()


@dataclass(frozen=True)
class ExamplesUpTo(Weighting, name="examples_up_to"):
    """Weight each report by its client's number of examples, capped at a bound (DP-FedAvg, Algorithm 1).

    ``w_b <- w_b min(n_b / most, 1)``, where w_b is the weight of report b, and n_b is its client's number of training
    examples. Differential privacy needs weights that are bounded, and a normalizer that reveals nothing of the data,
    such as `DivideByParticipants`.

    Args:
        most: number of examples from which on a client has the weight 1, > 0 (w-hat in the paper). Choose it without
            looking at the data, as a guess of typical client sizes.

    Raises:
        ConfigurationError: if `most` is not a positive integer.

    Example:
        >>> from turnout.base.trial import report, weigh
        >>> weigh(ExamplesUpTo(100), report([[0.0]] * 3, num_examples=[50, 100, 400]))
        [0.5, 1.0, 1.0]

    Reference: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018, Algorithm 1.
    """

    reads = "own"
    participation = "none"

    most: Count = 100

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return ``min(n / most, 1)`` of each report."""
        return torch.from_numpy(report.num_examples).double().div(self.most).clamp(max=1.0)
