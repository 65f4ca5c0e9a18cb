"""FedAU and everything its paper compares it with.

All minimise ``f(x) = (1/N) sum_n F_n(x)``, in which every client counts alike, from whoever is there. They share the
local rule and the step ``x <- x + eta u``, and differ in u alone. `also` takes further pieces: a selection, a correction
of the local gradient, a guard.

Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
ICLR 2024, section 5 and appendix C.
"""

from __future__ import annotations

from turnout.aggregation import FedVarp, Mifa
from turnout.core.algorithm import Algorithm
from turnout.core.compose import compose
from turnout.core.pieces import Piece
from turnout.core.schedule import Schedule
from turnout.local import Sgd
from turnout.server import ServerSgd
from turnout.weighting import DivideByClients, DivideByParticipants, KnownRates, Participation


def fedau(
    local: Sgd | None = None,
    *,
    cutoff: int | None = 50,
    average: str = "mean",
    rate: float = 0.1,
    groups: tuple[int, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """FedAU (Algorithms 1 and 2): ``u = (1/N) sum_b omega_b Delta_b``, omega learnt from participation intervals.

    Args:
        cutoff, average, rate, groups: of the weights, see `Participation`.
    """
    weights = Participation(cutoff, average, rate, groups)
    return compose(local or Sgd(), weights, DivideByClients(), ServerSgd(server_lr), *also, name="fedau")


def average_participating(
    local: Sgd | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """The mean over those who are there: ``u = (1/B) sum_b Delta_b``. Biased to clients who are there often."""
    return compose(local or Sgd(), DivideByParticipants(), ServerSgd(server_lr), *also, name="average_participating")


def average_all(
    local: Sgd | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()
) -> Algorithm:
    """Absent clients count as zero: ``u = (1/N) sum_b Delta_b``. Biased alike, with steps as small as the cohort."""
    return compose(local or Sgd(), DivideByClients(), ServerSgd(server_lr), *also, name="average_all")


def known_statistics(
    local: Sgd | None = None,
    *,
    rates: tuple[float, ...] | None = None,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Weights from the true participation rates: ``u = (1/N) sum_b Delta_b / p_b``. Unbiased, and not to be had."""
    pieces = (KnownRates(rates), DivideByClients(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, *also, name="known_statistics")


def fedvarp(local: Sgd | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()) -> Algorithm:
    """FedVARP: ``u = mean_N(Y) + (1/B) sum_b (Delta_b - Y_b)``, Y the last update of each client."""
    pieces = (DivideByParticipants(), FedVarp(), ServerSgd(server_lr))
    return compose(local or Sgd(), *pieces, *also, name="fedvarp")


def mifa(local: Sgd | None = None, *, server_lr: float | Schedule = 1.0, also: tuple[Piece, ...] = ()) -> Algorithm:
    """MIFA: ``u = mean_N(Y)``, Y the last update of each client, this round's included."""
    return compose(local or Sgd(), DivideByClients(), Mifa(), ServerSgd(server_lr), *also, name="mifa")
