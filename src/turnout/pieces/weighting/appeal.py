"""Weight reports by how close the client's loss is to its requirement (MaxFL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnout.base import Weighting, Weights, WithState
from turnout.core.ranges import NotNegative, Positive
from turnout.core.types import Federation, Report, State
from turnout.pieces.weighting.normalize import ByOneNumber

Q = Literal["derivative", "sigmoid"]


@dataclass(frozen=True)
class Appeal(Weighting, name="appeal"):
    """Weight each report by how close the client's loss is to its requirement (MaxFL, eq. 4).

    ``w_b <- w_b q_b``, where ``q_b = s_b (1 - s_b)`` and ``s_b = sigmoid(F_b(w^t) - rho_b)``. Here w_b is the weight of
    report b, ``F_b(w^t)`` is the loss of the received model over the client's training examples, and rho_b is the loss
    that the client requires. Clients report the gap ``F_b(w^t) - rho_b`` (`AppealGap`).

    MaxFL minimizes ``mean_k sigmoid(F_k - rho_k)``, a smooth approximation of the share of clients whose requirement is
    not met. In the gradient of this objective q_k multiplies the gradient of client k. It is 1/4 at the threshold and
    tends to 0 on both sides, for clients that are satisfied anyway and for clients that cannot be satisfied. It is 0
    for an arbitrarily large gap.

    Args:
        q: ``"derivative"``, or ``"sigmoid"`` for ``q_b = s_b``, as line 8 of Algorithm 1 prints it. The derivation,
            figure 2 and the remarks on Byzantine clients need ``"derivative"``; with ``"sigmoid"`` a client that claims
            a huge loss gets the largest weight.
        sharpness: factor on the gap before the sigmoid, > 0. 1 follows the paper. Use larger values if requirements are
            accuracies: their gaps are so small that with 1 all weights are nearly equal.

    Raises:
        ConfigurationError: if `q` is unknown, or if `sharpness` is not positive.

    Example:
        The weight is largest where the loss equals the requirement, and small 4 above or below it:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(Appeal(), report([[0.0]] * 3, appeal_gap=[0.0, 4.0, -4.0]))
        [0.25, 0.0177, 0.0177]

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    reads = "own"
    participation = "none"

    needs = ("appeal_gap",)

    q: Q = "derivative"
    sharpness: Positive = 1.0

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return q of each report."""
        gap = self.sharpness * report.seen["appeal_gap"].double()
        if self.q == "sigmoid":
            return gap.sigmoid()
        # s (1 - s) = e / (1 + e)^2 with e = exp(-|gap|) <= 1 does not overflow, and does not round 1 - s to 0.
        small = gap.abs().neg().exp()
        return small / (1.0 + small).square()


@dataclass(frozen=True)
class DivideBySumPlus(ByOneNumber, name="divide_by_sum_plus"):
    """Divide weights by their sum plus a constant (MaxFL, adaptive server step of section 3, below eq. 6).

    ``w_b <- w_b / (sum_b w_b + epsilon)``, where w_b is the weight of report b. Weights far above epsilon sum to nearly
    1, so the step keeps its size where the objective is flat. In a round in which all weights are far below epsilon,
    the model moves correspondingly little. Weights that are all zero stay zero, which leaves the model unchanged.

    Args:
        epsilon: constant added to the sum, >= 0. The paper leaves its value open: its theory uses ``N L_c / (4 L_s)``,
            and the proof uses the size of the cohort.

    Raises:
        ConfigurationError: if `epsilon` is negative.

    Example:
        >>> from turnout.base.trial import report, weigh
        >>> weigh(DivideBySumPlus(epsilon=1.0), report([[0.0]] * 2), weights=[1.0, 2.0])
        [0.25, 0.5]

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    epsilon: NotNegative = 1e-3

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights divided by their sum plus epsilon, and the state."""
        total = weights.sum() + self.epsilon
        return (weights / total).where(total != 0, weights), state
