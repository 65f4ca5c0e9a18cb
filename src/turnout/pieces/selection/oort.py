"""Choose clients by the utility of their data and by their speed, and explore others (Oort)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import count, not_negative, positive, probability
from turnout.core.device import to_device
from turnout.core.types import Candidates, Federation, Report, State
from turnout.pieces.base import RecordingSelection
from turnout.pieces.base.per_client import check_length, refuse_new_clients
from turnout.pieces.selection.draws import by_weight
from turnout.pieces.selection.fixed_size import FixedSize


@dataclass(frozen=True)
class Oort(FixedSize, RecordingSelection, name="oort"):
    """Take clients by their statistical utility, the time they need and how long ago they took part (Oort).

    Client k has the utility ``U_k = n_k sqrt(mean_i loss_i^2)`` of its last round L_k. In round R, of those who
    are there and took part before::

        score_k = (min(U_k, U^95) - U_min) / (U_max - U_min) + sqrt(0.1 log R / L_k)
        score_k <- score_k (T / d_k)^alpha                      where d_k > T

    U^95 is the quantile `clip`, and U_min 0.999 times the least utility. Of the clients whose score is at least `cutoff`
    times the score of rank ``(1 - epsilon) K``, so many are drawn in proportion to their scores. The other ``epsilon K`` are
    drawn of those who never took part, in proportion to 1 / d_k. ``epsilon`` falls by the factor `decay` in every round, down
    to `least`. Where fewer newcomers are available, more known clients are drawn, and the other way round.

    The preferred duration T grows by `pacer_step` whenever the utility of the last W steps is less than that of the W steps
    before.

    Differences: the authors' code (FedScale) has T as a percentile of durations, of which it moves 5 % at a time in both
    directions, and a decaying mean of minibatch losses in place of the loss over all examples. It draws nobody in place
    of newcomers once all are known. Durations are an option here, and are not observed.

    State: ``utility [N]``, ``last [N]`` (0 before the first round), ``count [N]``; ``gained [2 W]``, ``steps []`` and
    ``preferred []`` of the pacer.

    Args:
        cohort_size: clients in a round (K).
        exploration, decay, least: epsilon in the first round, its factor, and its smallest value.
        clip, cutoff: as above.
        durations: d, the seconds of a round of each client; None leaves time out.
        preferred: T at first, in seconds.
        penalty: alpha; 0 leaves time out of scores.
        pacer_step: seconds by which T grows.
        window: W, in server steps.
        most: participations after which a client is left out (the paper's blacklist); None is no limit.

    Raises:
        ConfigurationError: for numbers out of range.

    Example:
        Nobody is known in the first round, and all are explored:

        >>> from turnout.pieces.base.trial import select
        >>> select(Oort(cohort_size=3))
        [14, 18, 22]

    Reference: Lai et al., "Oort: efficient federated learning via guided participant selection", OSDI 2021 (arXiv
    2010.06081).
    """

    needs = ("start_loss_rms",)
    client_rows = ("utility", "last", "count")

    exploration: float = 0.9
    decay: float = 0.98
    least: float = 0.2
    clip: float = 0.95
    cutoff: float = 0.95
    durations: tuple[float, ...] | None = None
    preferred: float = 10.0
    penalty: float = 2.0
    pacer_step: float = 10.0
    window: int = 20
    most: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("exploration", "decay", "least", "clip", "cutoff"):
            probability(name, getattr(self, name))
        for name in ("penalty", "pacer_step"):
            not_negative(name, getattr(self, name))
        positive("preferred", self.preferred)
        count("window", self.window)
        if self.most is not None:
            count("most", self.most)
        for seconds in self.durations or ():
            positive("durations", seconds)

    def check(self, num_clients: int) -> None:
        """Refuse fewer clients than a cohort has, and durations of another number of clients."""
        super().check(num_clients)
        check_length("durations", self.durations, num_clients)

    def init(self, federation: Federation) -> State:
        """Return the record before the first round."""
        n, real = federation.num_clients, {"dtype": torch.float64, "device": federation.device}
        whole = {"last": torch.zeros(n, dtype=torch.int64), "count": torch.zeros(n, dtype=torch.int64)}
        pacer = {"gained": torch.zeros(2 * self.window, **real), "preferred": torch.full((), self.preferred, **real)}
        return {"utility": torch.zeros(n, **real), **whole, **pacer, "steps": torch.tensor(0)}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the state with clients who never took part; refuse them where durations are options."""
        refuse_new_clients("durations", self.durations)
        return super().grow(state, before, after, version)

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the utilities of those who took part, and the preferred duration for the next round."""
        clients, device = torch.from_numpy(report.client), state["utility"].device
        utility = to_device(report.num_examples, device) * report.seen["start_loss_rms"].double()
        state["utility"][to_device(report.client, device)] = utility
        state["last"][clients] = version + 1
        state["count"][clients] += 1
        return state | self._pace(utility.sum(), state)

    def _pace(self, gain: torch.Tensor, state: State) -> State:
        """Return the state of the pacer after a step of this utility, ``[]``."""
        gained, steps, preferred = state["gained"].clone(), int(state["steps"]) + 1, state["preferred"]
        gained[(steps - 1) % len(gained)] = gain  # the latest 2 W steps, written over in turns
        if steps >= len(gained) and steps % self.window == 0:
            latest, before = gained.roll(-steps).flip(0).split(self.window)
            preferred = preferred + self.pacer_step * (before.sum() > latest.sum())
        return {"gained": gained, "steps": torch.tensor(steps), "preferred": preferred}

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        record, available = (
            {name: rows.cpu().numpy() for name, rows in candidates.record.items()},
            candidates.everyone(),
        )
        if self.most is not None:
            available = available[record["count"][available] < self.most]
        is_known = record["last"][available] > 0
        known, new = available[is_known], available[~is_known]
        epsilon = max(self.exploration * self.decay ** (candidates.round + 1), self.least)
        num_new = min(int(epsilon * self.cohort_size), len(new))
        num_known = min(self.cohort_size - num_new, len(known))
        exploited = known[:0]
        if num_known:
            scores = self._scores(known, candidates.round + 1, record)
            best = scores >= self.cutoff * np.sort(scores)[-num_known]
            exploited = by_weight(candidates, known[best], scores[best], num_known)
        explored = by_weight(candidates, new, 1 / self._seconds(new), self.cohort_size - num_known)
        return np.sort(np.concatenate([exploited, explored]))

    def _scores(self, clients: np.ndarray, now: int, record: dict[str, np.ndarray]) -> np.ndarray:
        """Return the scores of clients who took part before, >= 0; at least one client."""
        utility = record["utility"][clients]
        ranked = np.sort(utility)
        top, low = ranked[min(int(len(ranked) * self.clip), len(ranked) - 1)], 0.999 * ranked[0]
        spread = max(ranked[-1] - low, 1e-4)
        score = (np.minimum(utility, top) - low) / spread + np.sqrt(0.1 * np.log(now) / record["last"][clients])
        slower = np.minimum(record["preferred"] / self._seconds(clients), 1.0)
        return score * slower ** (0.0 if self.durations is None else self.penalty)

    def _seconds(self, clients: np.ndarray) -> np.ndarray:
        """Return the durations of these clients' rounds; equal ones where they are not known."""
        return np.ones(len(clients)) if self.durations is None else np.asarray(self.durations)[clients]
