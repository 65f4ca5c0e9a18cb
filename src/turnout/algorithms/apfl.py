"""APFL: mix a personal model with the shared one."""

from __future__ import annotations

from turnout.algorithms.recipe import ALGORITHMS, TEN, Algorithm, Piece, Schedule, Sgd, Size, Solver, compose
from turnout.pieces.local.pair_steps import AdaptsEvery, MixtureSteps
from turnout.pieces.personalization.pair_models import Mixture
from turnout.pieces.weighting import DivideByParticipants


@ALGORITHMS.register
def apfl(
    local: Solver | None = None,
    *,
    alpha: float = 0.5,
    adaptive: bool = False,
    adapts_every: AdaptsEvery = "step",
    cohort_size: Size = TEN,
    server_lr: float | Schedule = 1.0,
    also: tuple[Piece, ...] = (),
) -> Algorithm:
    """Train a shared model by federated averaging, and mix it with a personal model at each client (APFL, Algorithm 1).

    Client k uses the model ``a v_k + (1 - a) w``, where w is the shared model, v_k its personal one, and a the share of
    the personal model. It trains v_k within this mixture.

    Args:
        local: local training; None is `Sgd` with its defaults.
        alpha: initial share a of the personal model, in [0, 1]; see `Mixture`.
        adaptive: whether each client also trains its share a by gradient steps.
        adapts_every: ``"step"`` to do so in every local step, as in the paper's equation, or ``"round"`` once a round, as
            in the authors' code; see `MixtureSteps`.
        cohort_size: number or share of the clients of a round (K), drawn uniformly without replacement;
            None is all available clients.
        server_lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        also: further pieces, such as a guard or another selection; see `compose`.

    Example:
        >>> apfl()
        Algorithm('apfl': Uniform() -> MixtureSteps() -> DivideByParticipants() -> WeightedSum() -> ServerSgd() ->
        Mixture())

    Reference: Deng, Kamani and Mahdavi, "Adaptive personalized federated learning", 2020 (arXiv 2003.13461).
    """
    steps = MixtureSteps.of(local or Sgd(), adaptive=adaptive, adapts_every=adapts_every)
    pieces = (steps, Mixture(alpha), DivideByParticipants())
    return compose(*pieces, server_lr=server_lr, cohort_size=cohort_size, also=also, name="apfl")
