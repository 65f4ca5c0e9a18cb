"""SCAFFOLD: control variates against the drift of local steps."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Scaffold, Sgd, Solver
from turnout.pieces.local.scaffold import Initial, Option
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def scaffold(
    local: Solver | None = None,
    *,
    option: Option = "II",
    initial: Initial = "zeros",
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """SCAFFOLD (Algorithm 1, options I and II): everything is shared, local steps descend ``g - c_k + c``.

    Args:
        option, initial: of the control variates, see `Scaffold`.
        cohort_size: clients in a round (S), uniform without replacement.

    Example:
        >>> scaffold()
        Algorithm('scaffold': Uniform() -> Sgd() -> Scaffold() -> DivideByParticipants() -> WeightedSum() ->
        ServerSgd())

    Reference: Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020.
    """
    pieces = (Scaffold(option, initial), DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="scaffold")
