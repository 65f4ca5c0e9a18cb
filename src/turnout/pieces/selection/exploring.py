"""Choose clients by the score that a record gives them, and explore others."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import count, probability
from turnout.core.types import Candidates, Federation, Report, State
from turnout.pieces.base import RecordingSelection
from turnout.pieces.selection.draws import by_weight
from turnout.pieces.selection.fixed_size import FixedSize


@dataclass(frozen=True)
class Exploring(FixedSize, RecordingSelection):
    """Draw clients of high score, and a share epsilon of the cohort from those who never took part.

    Of the known clients whose score is at least `cutoff` times the score of rank ``(1 - epsilon) K``, so many are drawn in
    proportion to their scores. The other ``epsilon K`` are drawn of those who never took part. ``epsilon`` falls by the
    factor `decay` in every round, down to `least`. Where fewer newcomers are available, more known clients are drawn, and
    the other way round.

    State: ``last [N]``, the number of the round in which a client last took part (0 before the first), and ``count [N]``.

    Args:
        cohort_size: clients in a round (K).
        exploration, decay, least: epsilon in the first round, its factor, and its smallest value.
        cutoff: as above.
        most: participations after which a client is left out; None is no limit.
    """

    exploration: float = 0.9
    decay: float = 0.98
    least: float = 0.2
    cutoff: float = 0.95
    most: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("exploration", "decay", "least", "cutoff"):
            probability(name, getattr(self, name))
        if self.most is not None:
            count("most", self.most)

    @abstractmethod
    def scores(self, clients: np.ndarray, now: int, record: dict[str, np.ndarray]) -> np.ndarray:
        """Return the scores of clients who took part before, >= 0; at least one client.

        Args:
            clients: who, int64 ``[n]``.
            now: the number of the round, 1 in the first.
            record: the state, on the host.
        """

    def novelty(self, clients: np.ndarray) -> np.ndarray:
        """Return weights, >= 0, in proportion to which clients are drawn who never took part; by default, equal ones."""
        return np.ones(len(clients))

    def init(self, federation: Federation) -> State:
        """Return the record before the first round."""
        return {name: torch.zeros(federation.num_clients, dtype=torch.int64) for name in ("last", "count")}

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the clients of this step."""
        clients = torch.from_numpy(report.client)
        state["last"][clients] = version + 1
        state["count"][clients] += 1
        return state

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        record = {name: rows.cpu().numpy() for name, rows in candidates.record.items()}
        available, now = candidates.everyone(), candidates.round + 1
        if self.most is not None:
            available = available[record["count"][available] < self.most]
        is_known = record["last"][available] > 0
        known, new = available[is_known], available[~is_known]
        epsilon = max(self.exploration * self.decay**now, self.least)
        num_new = min(int(epsilon * self.cohort_size), len(new))
        num_known = min(self.cohort_size - num_new, len(known))
        exploited = known[:0]
        if num_known:
            scores = self.scores(known, now, record)
            best = scores >= self.cutoff * np.sort(scores)[-num_known]
            exploited = by_weight(candidates, known[best], scores[best], num_known)
        explored = by_weight(candidates, new, self.novelty(new), self.cohort_size - num_known)
        return np.sort(np.concatenate([exploited, explored]))
