"""Baselines: FedAU's averages, training of each client alone, and training on all examples in one place."""

from __future__ import annotations

from turnout.algorithms.compose import compose
from turnout.base import ALGORITHMS, Algorithm, Piece, Selection
from turnout.core.schedule import Schedule
from turnout.pieces.local import Solver
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.selection.everyone import OnePlace
from turnout.pieces.selection.fixed_size import Size
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByClients, DivideByParticipants, KnownRates


@ALGORITHMS.register
def average_all(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the updates over all clients, with zeros for absent clients (FedAU, baseline "average all").

    ``u = (1/N) sum_b Delta_b``, where Delta_b is the update of participant b, N is the number of all clients, and u is
    the direction of the server's step. Like `average_participating` it is biased toward clients that participate
    often, and its steps are smaller in rounds with fewer participants.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> average_all()
        Algorithm('average_all': AllAvailable() -> Sgd() -> DivideByClients() -> WeightedSum() -> ServerSgd())

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024.
    """
    return compose(
        local, DivideByClients(), ServerSgd(server_lr), cohort_size=cohort_size, also=also, name="average_all"
    )


@ALGORITHMS.register
def average_participating(
    local: Solver | None = None,
    *,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average the updates of the participants with equal weights (FedAU, baseline "average participating").

    ``u = (1/B) sum_b Delta_b``, where Delta_b is the update of participant b, B is the number of participants, and u is
    the direction of the server's step. It is biased toward clients that participate often.

    Args:
        local: local training; None is `Sgd` with its defaults.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> average_participating()
        Algorithm('average_participating': AllAvailable() -> Sgd() -> DivideByParticipants() -> WeightedSum() ->
        ServerSgd())

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024.
    """
    return compose(
        local,
        DivideByParticipants(),
        ServerSgd(server_lr),
        cohort_size=cohort_size,
        also=also,
        name="average_participating",
    )


@ALGORITHMS.register
def known_statistics(
    local: Solver | None = None,
    *,
    rates: tuple[float, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Average updates divided by their client's true participation rate (FedAU, baseline "known participation statistics").

    ``u = (1/N) sum_b Delta_b / p_b``, where u is the direction of the server's step, N is the number of clients,
    Delta_b is the update of participant b, and p_b is its participation rate. The average is unbiased, but rates are
    rarely known in practice.

    Args:
        local: local training; None is `Sgd` with its defaults.
        rates: participation rate p of each of the N clients, in (0, 1]. None takes those of the population.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement; None is all available
            clients.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> known_statistics()
        Algorithm('known_statistics': AllAvailable() -> Sgd() -> KnownRates() -> DivideByClients() -> WeightedSum() ->
        ServerSgd())

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024.
    """
    pieces = (KnownRates(rates), DivideByClients(), ServerSgd(server_lr))
    return compose(local, *pieces, cohort_size=cohort_size, also=also, name="known_statistics")


@ALGORITHMS.register
def local(
    local: Solver | None = None,
    *,
    cohort_size: Size = None,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train a model of each client on its own examples alone: what a client has without the federation.

    All parameters are personal, and nothing is sent. A client trains in the rounds in which it would participate in a
    federation, so that it takes as many local steps. Each client is evaluated with its own model.

    In Python it is ``turnout.algorithms.baselines``, because ``turnout.local`` is the module of pieces of local training.

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
    return compose(local, Personal("all"), cohort_size=cohort_size, also=also, name="local")


@ALGORITHMS.register
def centralized(
    local: Solver | None = None,
    *,
    cohort_size: Size = None,  # noqa: ARG001  # a comparison gives it to all
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train one model on the examples of all clients in one place: what a federation could reach at best.

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
    return compose(local, OnePlace(), also=also, name="centralized")
