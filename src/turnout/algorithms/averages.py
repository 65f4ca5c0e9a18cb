"""Check that an algorithm averages what clients send, and does no more."""

from __future__ import annotations

from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError
from turnout.pieces.aggregation import SecureSum, WeightedSum
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideByParticipants, DivideBySum
from turnout.protocol.pace import Pace, Rounds


def check_averages(algorithm: Algorithm, pace: Pace) -> None:
    """Raise an error unless the new model is a mean of the models of clients, by weights >= 0 that sum to 1.

    Running statistics can be averaged only so: a step beyond the mean, or noise, may make a variance negative.

    Raises:
        ConfigurationError: if a piece does something else; the message names it.
    """
    pieces: list[object] = list(algorithm.guard)
    if type(pace) is not Rounds:  # a late update is not the difference from the present model
        pieces.append(pace)
    *factors, normalizer = algorithm.weighting
    if not isinstance(normalizer, DivideBySum | DivideByParticipants):
        pieces.append(normalizer)
    pieces += [it for it in factors if not isinstance(it, ByExamples) or isinstance(normalizer, DivideByParticipants)]
    if type(algorithm.aggregation) not in (WeightedSum, SecureSum):
        pieces.append(algorithm.aggregation)
    if type(algorithm.server) is not ServerSgd or algorithm.server.lr != 1.0:
        pieces.append(algorithm.server)
    if pieces:
        raise ConfigurationError(
            f"statistics='average' needs the plain mean of the models of clients, and {pieces[0]} makes another model, in "
            "which a running variance could be negative: use to.fedavg() or to.average_participating() with server_lr=1, "
            "or write to.models.group_norm(model)"
        )
