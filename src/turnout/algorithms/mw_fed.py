"""MW-Fed: multiplicative weights for clients whose requirement is not met."""

from __future__ import annotations

from dataclasses import replace

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local import AppealGap, ShareOfWork
from turnout.pieces.weighting import DivideBySum, MultiplicativeWeights


@ALGORITHMS.register
def mw_fed(
    local: Solver | None = None,
    *,
    factor: float = 4.0,
    most: float | None = None,
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Multiply the weight and the local work of clients whose requirement is not met (MW-Fed, multiplicative weights).

    The change applies from the client's next round on. In the original it applies in the same round; see
    `MultiplicativeWeights`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        factor: growth of the weight of an unsatisfied client in one round, > 1.
        most: largest work of a client as a multiple of that of `local`; None is no bound, so a client may get up to N
            times as much, where N is the number of clients.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> mw_fed()
        Algorithm('mw_fed': Uniform() -> Sgd(steps=ShareOfWork()) -> AppealGap() -> MultiplicativeWeights() ->
        DivideBySum() -> WeightedSum() -> ServerSgd())

    Reference: Blum et al., "One for one, or all for all: equilibria and optimality of collaboration in federated
    learning", ICML 2021.
    """
    rule = local or Sgd()
    work = {
        name: ShareOfWork(amount, most) for name in ("steps", "epochs") if (amount := getattr(rule, name)) is not None
    }
    pieces = (replace(rule, **work), AppealGap(), MultiplicativeWeights(factor), DivideBySum())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="mw_fed")
