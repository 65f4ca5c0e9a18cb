"""Choose the clients with the highest loss among random candidates (power-of-choice)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import count, refuse
from turnout.core.device import to_device
from turnout.core.random import fold, stream, uniform
from turnout.core.types import Candidates, Federation, Report, State
from turnout.pieces.base import RecordingSelection, Selection
from turnout.pieces.base.smoothed_rates import check_number_of_shares, check_shares, new_clients_without_shares
from turnout.pieces.local.measurements import StartLoss
from turnout.pieces.selection.uniform import Uniform, first_available


class _OfCandidates(Selection):
    """Draw candidates without replacement, in proportion to their shares, and keep those with the highest loss."""

    cohort_size: int
    candidates: int
    shares: tuple[float, ...] | None

    def __post_init__(self) -> None:
        count("cohort_size", self.cohort_size)
        if not isinstance(self.candidates, int) or self.candidates < self.cohort_size:
            raise refuse(
                "candidates",
                given=self.candidates,
                needed=f"a whole number >= cohort_size, which is {self.cohort_size}",
                instead=f"Write candidates={2 * self.cohort_size}",
            )
        if self.shares is not None:
            check_shares(self.shares)

    def check(self, num_clients: int) -> None:
        """Refuse fewer clients than a cohort has, and shares of another number."""
        Uniform(self.cohort_size).check(num_clients)
        if self.shares is not None:
            check_number_of_shares(self.shares, num_clients)

    def drawn(self, candidates: Candidates) -> np.ndarray:
        """Return the candidates A, ascending, int64: `candidates` many, or all who are there."""
        if self.shares is None:
            return np.sort(first_available(candidates, self.candidates, candidates.num_clients))
        if len(self.shares) != candidates.num_clients:
            raise new_clients_without_shares(self.shares)
        return np.sort(draw(candidates, candidates.everyone(), np.asarray(self.shares), self.candidates))

    def highest(self, candidates: Candidates, clients: np.ndarray, loss: np.ndarray) -> np.ndarray:
        """Return the cohort: the clients with the highest loss, at random among equals, ascending."""
        chance = fold(stream("ties", candidates.seed, candidates.round), clients)
        return np.sort(clients[np.lexsort((chance, -loss))[: self.cohort_size]])


def draw(candidates: Candidates, clients: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Draw clients one after the other, each in proportion to its weight among those that are left.

    The order of ``-log(u_k) / weight_k`` has this distribution (Efraimidis and Spirakis, 2006); who weighs nothing comes
    last.

    Args:
        candidates: what chance depends on.
        clients: whom to draw from, int64 ``[n]``.
        weights: of all N clients, >= 0.
        size: how many, at most.
    """
    chance = uniform(fold(stream("selection", candidates.seed, candidates.round), clients))
    with np.errstate(divide="ignore"):
        return clients[np.argsort(-np.log1p(-chance) / weights[clients], kind="stable")[:size]]


@dataclass(frozen=True)
class PowerOfChoice(_OfCandidates, name="power_of_choice"):
    """Choose the m clients with the highest ``F_k(w^t)`` among d random candidates (power-of-choice, pow-d).

    1. The server draws d of those who are there without replacement, client k in proportion to its share p_k.
    2. These compute the loss of the present model over all of their examples, and send it.
    3. The m with the highest losses are the cohort, at random among equals.

    ``candidates = cohort_size`` chooses at random; the more candidates, the more a client's loss decides.

    Args:
        cohort_size: clients in a round (m).
        candidates: how many are asked for their loss (d), at least m.
        shares: p, such as each client's share of the examples (the paper's); None is 1/N each.

    Raises:
        ConfigurationError: for a cohort that is empty or larger than the federation, fewer candidates than that, and
            shares that are not positive numbers which sum to 1.

    Example:
        >>> import numpy as np
        >>> from turnout.core.types import Candidates
        >>> everyone = lambda clients: np.ones(len(clients), dtype=bool)
        >>> PowerOfChoice(cohort_size=1, candidates=3).measuring(Candidates(everyone, 100, 0, 0)).tolist()
        [1, 65, 76]

    Reference: Cho, Wang and Joshi, "Towards understanding biased client selection in federated learning", AISTATS 2022
    (arXiv 2010.01243).
    """

    measurements = (StartLoss(),)

    cohort_size: int = 10
    candidates: int = 20
    shares: tuple[float, ...] | None = None

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return the candidates."""
        return self.drawn(candidates)

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``; a loss that is no finite number keeps a client out."""
        assert candidates.measured is not None
        measured, _ = candidates.measured.screened()
        if not len(measured):
            return measured.client
        return self.highest(candidates, measured.client, measured.seen["start_loss"].double().cpu().numpy())


@dataclass(frozen=True)
class RecentLoss(_OfCandidates, RecordingSelection, name="recent_loss"):
    """Choose the m clients whose last known loss is highest among d random candidates (power-of-choice, rpow-d).

    A client's loss is the mean over the minibatches of its local steps when it last took part, and infinite before, so that
    nothing more is sent or computed than in federated averaging.

    State: ``loss [N]``, float64.

    Args:
        cohort_size, candidates, shares: as in `PowerOfChoice`.

    Example:
        >>> from turnout.pieces.base.trial import select
        >>> select(RecentLoss(cohort_size=2, candidates=4))
        [65, 76]

    Reference: Cho, Wang and Joshi, "Towards understanding biased client selection in federated learning", AISTATS 2022.
    """

    needs = ("loss",)
    client_rows = ("loss",)

    cohort_size: int = 10
    candidates: int = 20
    shares: tuple[float, ...] | None = None

    def init(self, federation: Federation) -> State:
        """Return infinite losses."""
        shape = (federation.num_clients,)
        return {"loss": torch.full(shape, torch.inf, dtype=torch.float64, device=federation.device)}

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the losses of those who took part."""
        state["loss"][to_device(report.client, state["loss"].device)] = report.seen["loss"].double()
        return state

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        drawn = self.drawn(candidates)
        return self.highest(candidates, drawn, candidates.record["loss"].cpu().numpy()[drawn])
