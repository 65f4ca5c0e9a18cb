"""Amplified FedAvg: the mean of the participants, and a longer step at the end of each period of rounds."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.server_optimizer.sgd import Amplified
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def amplified_fedavg(
    local: Solver | None = None,
    *,
    period: int = 10,
    gamma: float = 1.5,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the participants, and amplify the progress of each period of rounds (generalized FedAvg, Algorithm 1).

    ``x <- x + (1/B) sum_b Delta_b`` in every round, and ``x <- x_0 + gamma (x - x_0)`` at the end of a period of P rounds,
    where x_0 is the model at its start, B the number of participants, and Delta_b their updates. Participants of one
    round may be alike, and those of a period are less so. With gamma = 1 it is `average_participating`; with P = 1, gamma
    is the step size of its server. The paper's participation weights are 1/B here; other weightings are composed with
    `turnout.server.Amplified`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        period: length P of a period, in rounds, >= 1; the length of the cycle in which clients take part, if it is known.
        gamma: amplification (the paper's eta), > 0.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> amplified_fedavg()
        Algorithm('amplified_fedavg': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> Amplified())

    Reference: Wang and Ji, "A unified analysis of federated learning with arbitrary client participation", NeurIPS 2022.
    """
    pieces = (local or Sgd(), DivideByParticipants(), Amplified(period, gamma))
    return compose(*pieces, cohort_size=cohort_size, also=also, name="amplified_fedavg")
