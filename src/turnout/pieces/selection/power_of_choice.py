"""Select the clients with the highest loss among random candidates (power-of-choice)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import RecordingSelection
from turnout.base.piece import Shares, check_lengths
from turnout.core.candidates import Candidates
from turnout.core.checks import count
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.pieces.local.measurements import StartLoss
from turnout.pieces.selection.draws import by_weight, first_available, lowest
from turnout.pieces.selection.fixed_size import FixedSize


@dataclass(frozen=True)
class _OfCandidates(FixedSize):
    """Select the clients with the highest loss among candidates, drawn without replacement in proportion to their shares."""

    per_client = ("shares",)

    candidates: int = 20
    shares: Shares | None = None

    def __post_init__(self) -> None:
        least = self.cohort_size if isinstance(self.cohort_size, int) else 1
        count("candidates", self.candidates, least=least, instead="Candidates include the cohort")

    def draw(self, candidates: Candidates) -> np.ndarray:
        """Return `candidates` available clients, or all if fewer are available; ascending, int64."""
        if self.shares is None:
            return np.sort(first_available(candidates, self.candidates, candidates.num_clients))
        check_lengths(self, candidates.num_clients)
        everyone = candidates.everyone()
        return np.sort(by_weight(candidates, everyone, np.asarray(self.shares)[everyone], self.candidates))

    def highest(self, candidates: Candidates, clients: np.ndarray, loss: torch.Tensor) -> np.ndarray:
        """Return the cohort: the `clients` with the highest loss ``[n]``, ascending. Ties are broken at random."""
        return lowest(candidates, clients, -loss.double().cpu().numpy(), self.size(candidates.num_clients), "ties")


@dataclass(frozen=True)
class PowerOfChoice(_OfCandidates, name="power_of_choice"):
    """Select the m clients with the highest loss ``F_k(w^t)`` among d random candidates (power-of-choice, pow-d).

    1. The server draws d of the available clients without replacement, client k in proportion to its share p_k.
    2. Each candidate computes the loss ``F_k(w^t)`` of the present model over all of its examples, and sends it.
    3. The m candidates with the highest losses are the cohort. Ties are broken at random.

    With d = m the cohort is random. Larger d favor clients with a high loss more strongly.

    Args:
        cohort_size: number of clients in a round (m), from 1 to the number of clients.
        candidates: number of clients that send their loss (d), at least m.
        shares: share p of each of the N clients, such as its share of all examples (as in the paper); positive numbers
            that sum to 1. None means 1/N each.

    Raises:
        ConfigurationError: if `cohort_size` is out of range, if `candidates` is less than it, or if `shares` are not
            positive numbers that sum to 1.

    Example:
        >>> import numpy as np
        >>> from turnout.core.candidates import Candidates
        >>> everyone = lambda clients: np.ones(len(clients), dtype=bool)
        >>> PowerOfChoice(cohort_size=1, candidates=3).measuring(Candidates(everyone, 100, 0, 0)).tolist()
        [1, 65, 76]

    Reference: Cho, Wang and Joshi, "Towards understanding biased client selection in federated learning", AISTATS 2022
    (arXiv 2010.01243).
    """

    measurements = (StartLoss(),)

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return the candidates, ascending, int64."""
        return self.draw(candidates)

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``; clients whose loss is not finite are left out."""
        measured = candidates.screened()
        if not len(measured):
            return measured.client
        return self.highest(candidates, measured.client, measured.seen["start_loss"])


@dataclass(frozen=True)
class RecentLoss(_OfCandidates, RecordingSelection, name="recent_loss"):
    """Select the m clients with the highest last known loss among d random candidates (power-of-choice, rpow-d).

    The loss of a client is the mean over the minibatches of its local steps in its last round. It is infinite before
    the first, so that new clients are preferred. Clients compute and send nothing beyond what they do in federated
    averaging, where they report this loss, too.

    Args:
        cohort_size: number of clients in a round (m), from 1 to the number of clients.
        candidates: number of random candidates (d), at least m.
        shares: share p of each of the N clients, positive numbers that sum to 1. None means 1/N each.

    State: ``loss [N]``, float64.

    Raises:
        ConfigurationError: as for `PowerOfChoice`.

    Example:
        >>> from turnout.base.trial import select
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
        """Return the record with the losses of participants."""
        state["loss"][to_device(report.client, state["loss"].device)] = report.seen["loss"].double()
        return state

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        drawn = self.draw(candidates)
        loss = candidates.record["loss"]
        return self.highest(candidates, drawn, loss[to_device(drawn, loss.device)])
