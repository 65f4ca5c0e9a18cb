"""Weigh clients most whose requirement the model just meets or misses (MaxFL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnout.core.checks import known_name, not_negative, positive
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Weighting, Weights, WithState
from turnout.pieces.weighting.normalise import ByOneNumber

Q = Literal["derivative", "sigmoid"]
QS = ("derivative", "sigmoid")


@dataclass(frozen=True)
class Appeal(Weighting, name="appeal"):
    """``w_b <- w_b q_b``, ``q = s (1 - s)``, ``s = sigmoid(F_b(w^t) - rho_b)`` (MaxFL, eq. 4).

    q is what the gradient of ``mean_k sigmoid(F_k - rho_k)``, the smooth stand-in for the share of clients whose
    requirement is not met, multiplies each client's own gradient by: 1/4 at the threshold, and 0 far from it on either
    side, for clients who are content anyway and for those who cannot be won over. An arbitrarily large gap is a zero.

    Args:
        q: ``"derivative"``, or ``"sigmoid"`` for ``q = s``, which line 8 of Algorithm 1 prints. The derivation, figure 2 and
            the remarks on Byzantine clients need the former; with the latter who claims a huge loss counts most.
        sharpness: what the gap is multiplied by first; 1 is the paper's. Of a required accuracy gaps are so small that
            with 1 all clients count nearly alike.

    Example:
        A client at its threshold counts most; one far from it, on either side, hardly:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(Appeal(), report([[0.0]] * 3, appeal_gap=[0.0, 4.0, -4.0]))
        [0.25, 0.0177, 0.0177]

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    reads = "own"
    participation = "none"

    needs = ("appeal_gap",)

    q: Q = "derivative"
    sharpness: float = 1.0

    def __post_init__(self) -> None:
        known_name("q", self.q, QS)
        positive("sharpness", self.sharpness)

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return the q of each report."""
        gap = self.sharpness * report.seen["appeal_gap"].double()
        if self.q == "sigmoid":
            return gap.sigmoid()
        # In e^-|gap| <= 1 nothing overflows; both factors of s (1 - s) hold it, so neither 1 - s is rounded away.
        small = gap.abs().neg().exp()
        return small / (1.0 + small).square()


@dataclass(frozen=True)
class DivideBySumPlus(ByOneNumber, name="divide_by_sum_plus"):
    """``w_b <- w_b / (sum_b w_b + epsilon)``: the adaptive server step of MaxFL (section 3, below eq. 6).

    Weights that are far above epsilon sum to nearly one, so that the step keeps its size where the objective is flat; a round
    in which all are far below it moves the model as little. All zero stay zero, which leaves the model unchanged.

    Args:
        epsilon: the paper leaves it open (theory has ``N L_c / (4 L_s)``, its proof the cohort's size).

    Example:
        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(DivideBySumPlus(epsilon=1.0), report([[0.0]] * 2), weights=[1.0, 2.0])
        [0.25, 0.5]
    """

    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        not_negative("epsilon", self.epsilon)

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the sum and epsilon."""
        total = weights.sum() + self.epsilon
        return (weights / total).where(total != 0, weights), state
