"""Select clients of high score by a record of past rounds, and explore clients that never took part."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import RecordingSelection
from turnout.core.candidates import Candidates
from turnout.core.ranges import Count, Probability
from turnout.core.types import Federation, Report, State
from turnout.pieces.selection.draws import by_weight
from turnout.pieces.selection.fixed_size import FixedSize


@dataclass(frozen=True)
class Exploring(FixedSize, RecordingSelection):
    """Select clients of high score, and reserve a share epsilon of the cohort for clients that never took part.

    - Exploration: ``epsilon K`` clients that never took part, where K is the size of the cohort. ``epsilon`` is
      multiplied by `decay` in every round, down to `least`.
    - Exploitation: the other ``(1 - epsilon) K``, drawn in proportion to their scores among the known clients whose
      score is at least `cutoff` times the score of rank ``(1 - epsilon) K``.

    If too few new clients are available, more known clients are drawn, and vice versa.

    State: ``last [N]``, the number of the round in which a client last took part (0 before its first), and
    ``count [N]``, its number of participations; int64.

    Args:
        cohort_size: number of clients in a round (K), >= 1.
        exploration: initial epsilon, in [0, 1]; in round r, counted from 1, epsilon is ``exploration decay^r``.
        decay: factor on epsilon in every round, in [0, 1].
        least: smallest epsilon, in [0, 1].
        cutoff: smallest score as a fraction of the score of rank ``(1 - epsilon) K``, in [0, 1].
        most: number of participations after which a client is no longer selected, >= 1; None means no limit.
    """

    exploration: Probability = 0.9
    decay: Probability = 0.98
    least: Probability = 0.2
    cutoff: Probability = 0.95
    most: Count | None = None

    @abstractmethod
    def scores(self, clients: np.ndarray, now: int, record: dict[str, np.ndarray]) -> np.ndarray:
        """Return the scores of known clients, >= 0, float64 ``[n]``.

        Args:
            clients: clients that took part before, int64 ``[n]``, at least one.
            now: number of the round, 1 in the first.
            record: the state, on the host.
        """

    def novelty(self, clients: np.ndarray) -> np.ndarray:
        """Return the sampling weights of clients that never took part, >= 0, ``[n]``; by default, equal ones."""
        return np.ones(len(clients))

    def init(self, federation: Federation) -> State:
        """Return the record before the first round."""
        return {name: torch.zeros(federation.num_clients, dtype=torch.int64) for name in ("last", "count")}

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the participants of this step."""
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
        epsilon, size = max(self.exploration * self.decay**now, self.least), self.size(candidates.num_clients)
        num_new = min(int(epsilon * size), len(new))
        num_known = min(size - num_new, len(known))
        exploited = known[:0]
        if num_known:
            scores = self.scores(known, now, record)
            best = scores >= self.cutoff * np.sort(scores)[-num_known]
            exploited = by_weight(candidates, known[best], scores[best], num_known)
        explored = by_weight(candidates, new, self.novelty(new), size - num_known)
        return np.sort(np.concatenate([exploited, explored]))
