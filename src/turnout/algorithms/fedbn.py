"""FedBN: everything is shared but the layers of batch normalisation."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.algorithms.defaults import Defaults
from turnout.core.schedule import Schedule
from turnout.pieces.base import ALGORITHMS, Algorithm, Piece
from turnout.pieces.local import Sgd, Solver
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@Defaults(model={"mlp": {"batch_norm": True}})
@ALGORITHMS.register
def fedbn(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "norms",
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedBN: weights, biases and running statistics of normalisations stay with their client, the rest is averaged.

    The paper's Algorithm 1: all clients take part, and count alike. It needs a model with layers of normalisation, such as
    ``models.Mlp(batch_norm=True)`` or a module of one's own with `nn.BatchNorm2d`. Statistics stay with clients whatever is
    `personal`: ``"head"`` averages the normalisations' weights and biases.

    Example:
        >>> fedbn()
        Algorithm('fedbn': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Personal(parameters='norms'))

    Reference: Li et al., "FedBN: federated learning on non-IID features via local batch normalization", ICLR 2021.
    """
    pieces = (Personal(personal), DivideByParticipants(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, also=also, name="fedbn")
