"""Weigh clients by their number of examples."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import count
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Weighting, Weights


@dataclass(frozen=True)
class ByExamples(Weighting, name="by_examples"):
    """A client counts as much as it has examples: ``w_b <- w_b n_b``.

    Example:
        >>> import turnout as to
        >>> to.compose(to.weighting.ByExamples(), to.weighting.DivideBySum()).weighting
        (ByExamples(), DivideBySum())

    Reference: McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017.
    """

    reads = "own"
    participation = "none"

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return the numbers of training examples."""
        return torch.from_numpy(report.num_examples).double()


@dataclass(frozen=True)
class ExamplesUpTo(Weighting, name="examples_up_to"):
    """A client counts by its examples, at most once: ``w_b <- w_b min(n_b / most, 1)``.

    Divided by a number that tells nothing of the data, such as `DivideByParticipants`, as differential privacy needs it.

    Args:
        most: examples from which on a client counts in full (w-hat); a guess of how many clients have.

    Example:
        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(ExamplesUpTo(100), report([[0.0]] * 3, num_examples=[50, 100, 400]))
        [0.5, 1.0, 1.0]

    Reference: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018, Algorithm 1.
    """

    reads = "own"
    participation = "none"

    most: int = 100

    def __post_init__(self) -> None:
        count("most", self.most)

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """The shares of `most`."""
        return torch.from_numpy(report.num_examples).double().div(self.most).clamp(max=1.0)
