"""SCAFFOLD: control variates against the drift of local steps.

Reference: Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020.
"""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.core.schedule import Schedule
from turnout.local import Scaffold, Sgd
from turnout.local.scaffold import Initial, Option
from turnout.selection import Uniform
from turnout.server_optimizer import ServerSgd
from turnout.slots import Piece
from turnout.slots.algorithm import Algorithm
from turnout.weighting import DivideByParticipants


def scaffold(
    local: Sgd | None = None,
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
    """
    pieces = (Scaffold(option, initial), DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), Uniform(cohort_size), *pieces, also=also, name="scaffold")
