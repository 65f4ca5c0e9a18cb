"""Choose the clients with the highest loss among random candidates (power-of-choice)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import count
from turnout.core.device import to_device
from turnout.core.types import Candidates, Federation, Report, State
from turnout.pieces.base import RecordingSelection
from turnout.pieces.base.per_client import check_lengths, check_shares
from turnout.pieces.local.measurements import StartLoss
from turnout.pieces.selection.draws import by_weight, first_available, lowest
from turnout.pieces.selection.fixed_size import FixedSize


@dataclass(frozen=True)
class _OfCandidates(FixedSize):
    """Draw candidates without replacement, in proportion to their shares, and take those with the highest loss."""

    per_client = ("shares",)

    candidates: int = 20
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        count("candidates", self.candidates, least=self.cohort_size, instead="It is at least cohort_size")
        check_shares(self.shares)

    def draw(self, candidates: Candidates) -> np.ndarray:
        """Return the candidates A, ascending, int64: `candidates` many, or all clients who are available."""
        if self.shares is None:
            return np.sort(first_available(candidates, self.candidates, candidates.num_clients))
        check_lengths(self, candidates.num_clients)
        everyone = candidates.everyone()
        return np.sort(by_weight(candidates, everyone, np.asarray(self.shares)[everyone], self.candidates))

    def highest(self, candidates: Candidates, clients: np.ndarray, loss: torch.Tensor) -> np.ndarray:
        """Return the cohort: of `clients`, those with the highest loss ``[n]``, at random among equals, ascending."""
        return lowest(candidates, clients, -loss.double().cpu().numpy(), self.cohort_size, "ties")


@dataclass(frozen=True)
class PowerOfChoice(_OfCandidates, name="power_of_choice"):
    """Choose the m clients with the highest ``F_k(w^t)`` among d random candidates (power-of-choice, pow-d).

    1. The server draws d of the available clients without replacement, client k in proportion to its share p_k.
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

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return the candidates."""
        return self.draw(candidates)

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``; a loss that is no finite number keeps a client out."""
        assert candidates.measured is not None
        measured, _ = candidates.measured.screened()
        if not len(measured):
            return measured.client
        return self.highest(candidates, measured.client, measured.seen["start_loss"])


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
        drawn = self.draw(candidates)
        loss = candidates.record["loss"]
        return self.highest(candidates, drawn, loss[to_device(drawn, loss.device)])
