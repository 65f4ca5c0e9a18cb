"""Training of each client alone, a baseline."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, Algorithm, Piece, Sgd, Size, Solver, compose
from turnout.pieces.personalization.partial import Personal


@ALGORITHMS.register
def local(
    local: Solver | None = None,
    *,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train a model for each client on its own examples, as a baseline without federation.

    All parameters are personal, and nothing is sent. A client trains in the rounds in which it would participate in a
    federation, so that it takes as many local steps. Each client is evaluated with its own model.

    In Python it is ``turnout.algorithms.local``, because ``turnout.local`` is the module of pieces of local training.

    Args:
        local: local training; None is `Sgd` with its defaults.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as another selection; see `compose`.

    Example:
        >>> import turnout as to
        >>> to.algorithms.local(to.Sgd(lr=0.1)).personal.parameters
        'all'
    """
    return compose(local or Sgd(), Personal("all"), cohort_size=cohort_size, also=also, name="local")
