"""Training on the examples of all clients in one place, a baseline."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.base import Selection
from turnout.pieces.selection.one_place import OnePlace


@ALGORITHMS.register
def centralized(
    local: Solver | None = None,
    *,
    cohort_size: Size = None,  # noqa: ARG001  # a comparison gives it to all
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train one model on the examples of all clients in one place, as an upper baseline of federated training.

    In each round the model takes as many local steps as a participant of a federation, on minibatches of the examples of all
    clients; with ``epochs``, passes over all of them. The number of consecutive steps is then that of a federation in which
    everyone participates. Clients are evaluated on the same examples as in a federation. Availability, speed, drop-out, pace,
    selection and cohort size have no effect; they are accepted because comparisons give them to all algorithms.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: without effect.
        also: further pieces, such as a correction of the gradients; see `compose`. A selection has no effect.

    Example:
        >>> centralized()
        Algorithm('centralized': OnePlace() -> Sgd() -> DivideByParticipants() -> WeightedSum() -> ServerSgd())
    """
    also = tuple(piece for piece in also if not isinstance(piece, Selection))
    return compose(local or Sgd(), OnePlace(), also=also, name="centralized")
