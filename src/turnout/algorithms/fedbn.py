"""FedBN: share all parameters but those of normalization layers."""

from __future__ import annotations

from turnout.algorithms.defaults import Defaults
from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.weighting import DivideByParticipants


@Defaults(model={"mlp": {"batch_norm": True}})
@ALGORITHMS.register
def fedbn(
    local: Solver | None = None,
    *,
    personal: str | tuple[str, ...] = "norms",
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average all parameters but those of normalization layers, which stay with their client (FedBN, Algorithm 1).

    Weights, biases and running statistics of normalization layers are personal. As in the paper, all clients take part
    with equal weights. The model needs normalization layers, such as ``models.Mlp(batch_norm=True)`` or a module with
    `nn.BatchNorm2d`.

    Args:
        local: local training; None is `Sgd` with its defaults.
        personal: personal parameters; see `Personal`. ``"norms"`` are those of normalization layers. With ``"head"``,
            their weights and biases are averaged, too. Running statistics always stay with clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> fedbn()
        Algorithm('fedbn': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Personal(parameters='norms'))

    Reference: Li et al., "FedBN: federated learning on non-IID features via local batch normalization", ICLR 2021.
    """
    pieces = (local or Sgd(), Personal(personal), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="fedbn")
