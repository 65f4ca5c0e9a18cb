"""MaxFL and what its paper compares it with: q-FFL, Per-FedAvg and MW-Fed (FedAvg, FedProx and SCAFFOLD are elsewhere).

MaxFL trains a model that meets the requirements of as many clients as possible, with a cohort that is uniform without
replacement. What clients require is a matter of the population (`Population.requirement`: by default, to do better than
a model of their own), and so is whether they leave where it is not met (`Population.opting`). `also` takes further pieces.

Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
"""

from __future__ import annotations

from dataclasses import replace

from turnout.algorithms.selected import selected
from turnout.core.algorithm import Algorithm
from turnout.core.compose import compose
from turnout.core.pieces import Piece
from turnout.core.schedule import Schedule
from turnout.local import AppealGap, Meta, Sgd, ShareOfWork, StartLoss
from turnout.local.meta import Hessian
from turnout.selection import Uniform
from turnout.server import ServerSgd
from turnout.weighting import (
    Appeal,
    DivideByCurvature,
    DivideByParticipants,
    DivideBySum,
    DivideBySumPlus,
    MultiplicativeWeights,
)
from turnout.weighting.appeal import Q


def maxfl(
    local: Sgd | None = None,
    *,
    q: Q = "derivative",
    sharpness: float = 1.0,
    epsilon: float = 1e-3,
    tuning_steps: int = 0,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """MaxFL (Algorithm 1): ``u = sum_b q_b Delta_b / (sum_b q_b + epsilon)``, q largest where a requirement is just met.

    Args:
        q, sharpness: of the weights, see `Appeal`.
        epsilon: see `DivideBySumPlus`.
        tuning_steps: local steps that fit the model to each client before its q is found; 0 is the model as it came.
        cohort_size: clients in a round (m), uniform without replacement.
    """
    rule = local or Sgd()
    gap = AppealGap(rule.alone(tuning_steps) if tuning_steps else None)
    pieces = (gap, Appeal(q, sharpness), DivideBySumPlus(epsilon), ServerSgd(server_lr))
    return compose(rule, *selected(Uniform(cohort_size), also), *pieces, name="maxfl")


def qffl(
    local: Sgd | None = None,
    *,
    q: float = 1.0,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """q-FFL by q-FedAvg: updates weigh as the q-th power of the loss, with a step that needs no tuning anew for each q.

    Args:
        q: 0 is the mean; 10 comes near to minimising the largest loss (AFL).
        cohort_size: clients in a round, uniform without replacement.

    Reference: Li et al., "Fair resource allocation in federated learning", ICLR 2020.
    """
    rule = local or Sgd()
    pieces = (StartLoss(), DivideByCurvature(q, rule.lr), ServerSgd(server_lr))
    return compose(rule, *selected(Uniform(cohort_size), also), *pieces, name="qffl")


def perfedavg(
    local: Sgd | None = None,
    *,
    alpha: float = 0.01,
    hessian: Hessian = "none",
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Per-FedAvg: the mean of models that were trained to be good after one step of adaptation by their client.

    Args:
        alpha, hessian: of the local rule, see `Meta`; the step size of `local` is the paper's beta.
        cohort_size: clients in a round, uniform without replacement.

    Reference: Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees: a model-agnostic
    meta-learning approach", NeurIPS 2020.
    """
    pieces = (Meta.of(local or Sgd(), alpha, hessian), DivideByParticipants(), ServerSgd(server_lr))
    return compose(*selected(Uniform(cohort_size), also), *pieces, name="perfedavg")


def mw_fed(
    local: Sgd | None = None,
    *,
    factor: float = 4.0,
    most: float | None = None,
    cohort_size: int = 10,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """MW-Fed: whoever is not content with the model counts and works `factor` times as much from then on.

    Args:
        factor: see `MultiplicativeWeights`.
        most: no client does more than this many times the work of `local`; None is no bound, in which case a client can be
            asked for N times as much.
        cohort_size: clients in a round, uniform without replacement.

    Reference: Blum et al., "One for one, or all for all: equilibria and optimality of collaboration in federated
    learning", ICML 2021.
    """
    rule = local or Sgd()
    work = {
        name: ShareOfWork(amount, most) for name in ("steps", "epochs") if (amount := getattr(rule, name)) is not None
    }
    pieces = (AppealGap(), MultiplicativeWeights(factor), DivideBySum(), ServerSgd(server_lr))
    return compose(replace(rule, **work), *selected(Uniform(cohort_size), also), *pieces, name="mw_fed")
