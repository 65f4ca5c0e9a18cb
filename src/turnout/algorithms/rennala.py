"""Rennala SGD: take a step with a fixed number of gradients at the present model, and ignore stale ones.

Use it with ``Experiment(pace=Buffered(buffer_size, max_staleness=0))``.
"""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.weighting import DivideByParticipants


@Defaults(pace={"name": "buffered", "max_staleness": 0})
@ALGORITHMS.register
def rennala(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average a fixed number of updates of the present model, and ignore stale ones (Rennala SGD).

    ``u = (1/B) sum_b Delta_b`` over B reports that were all trained from the present model, where u is the direction of
    the server's step, and Delta_b is the update of report b.

    The rule is that of `fedbuff` without a discount. The pace makes it Rennala: with ``Buffered(B, max_staleness=0)`` a
    client continues from the present model as soon as it has reported, and may be in a step several times. In the paper
    a client sends one stochastic gradient, which is ``Sgd(steps=1)``, and all clients have the same data distribution.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> rennala()
        Algorithm('rennala': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())

    Reference: Tyurin and Richtarik, "Optimal time complexities of parallel stochastic optimization methods under a
    fixed computation model", NeurIPS 2023.
    """
    pieces = (local or Sgd(), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="rennala")
