"""Select clients by the utility of their data and by their speed, and explore new clients (Oort)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import RecordingSelection
from turnout.core.candidates import Candidates
from turnout.core.checks import positive
from turnout.core.device import to_device
from turnout.core.ranges import Count, NotNegative, Positive, Probability
from turnout.core.types import Federation, Report, State
from turnout.pieces.selection.draws import by_weight
from turnout.pieces.selection.fixed_size import FixedSize

_MOST = 1e200  # largest utility, so that sums are finite


@dataclass(frozen=True)
class Oort(FixedSize, RecordingSelection, name="oort"):
    """Select clients by statistical utility, round duration and time since their last participation (Oort).

    The utility of client k is ``U_k = n_k sqrt(mean_i loss_i^2)``, with the number of its examples n_k and the losses
    of the received model on them, measured in the client's last round L_k. In round R, the score of an available client
    that took part before is::

        score_k = (min(U_k, U^95) - U_min) / (U_max - U_min) + sqrt(0.1 log R / L_k)
        score_k <- score_k (T / d_k)^alpha                      where d_k > T

    U^95 is the quantile `clip` of utilities, which are at most 1e200, U_max the largest, and U_min 0.999 times the
    smallest. T is the preferred duration of a round, and d_k that of client k, in seconds.

    The cohort of K clients consists of

    - exploration: ``epsilon K`` clients that never took part, drawn in proportion to ``1 / d_k``. ``epsilon`` is
      ``exploration decay^R``, but at least `least`;
    - exploitation: the other ``(1 - epsilon) K``, drawn in proportion to their scores among the known clients whose
      score is at least `cutoff` times the score of rank ``(1 - epsilon) K``.

    If too few new clients are available, more known clients are drawn, and vice versa. T grows by `pacer_step` whenever
    the sum of utilities over the last W steps is less than that over the W steps before.

    Differences from the authors' code (FedScale):

    - Its T is a percentile of durations, which moves by 5 % at a time in both directions.
    - It uses a decaying mean of minibatch losses instead of the losses of all examples.
    - Once all clients are known, it draws nobody in place of new clients.
    - Here durations are an option, and are not observed.

    Args:
        cohort_size: number of clients in a round (K), from 1 to the number of clients.
        exploration: initial share epsilon of new clients in the cohort, in [0, 1].
        decay: factor on epsilon in every round, from the first one on, in [0, 1].
        least: smallest epsilon, in [0, 1].
        cutoff: smallest score of a known client as a fraction of the score of rank ``(1 - epsilon) K``, in [0, 1].
        most: number of participations after which a client is no longer selected (the paper's blacklist), >= 1; None is
            no limit.
        clip: quantile at which utilities are clipped, in [0, 1].
        durations: duration d of a round of each of the N clients, in seconds, > 0. None ignores durations.
        preferred: initial preferred duration T, in seconds, > 0.
        penalty: exponent alpha of the penalty on slow clients, >= 0; 0 leaves durations out of scores.
        pacer_step: increment of T, in seconds, >= 0.
        window: number of server steps W over which utilities are summed, >= 1.

    State: ``last [N]``, the number of the round in which a client last took part (0 before its first), and ``count [N]``,
    its number of participations, int64; ``utility [N]``, float64; and of the pacer ``gained [2 W]`` and ``preferred []``,
    float64, and ``steps []``, int64.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        In the first round no client is known, so all are explored:

        >>> from turnout.base.trial import select
        >>> select(Oort(cohort_size=3))
        [14, 18, 22]

    Reference: Lai et al., "Oort: efficient federated learning via guided participant selection", OSDI 2021 (arXiv
    2010.06081).
    """

    needs = ("start_loss_rms",)
    client_rows = ("utility", "last", "count")
    per_client = ("durations",)

    exploration: Probability = 0.9
    decay: Probability = 0.98
    least: Probability = 0.2
    cutoff: Probability = 0.95
    most: Count | None = None
    clip: Probability = 0.95
    durations: tuple[float, ...] | None = None
    preferred: Positive = 10.0
    penalty: NotNegative = 2.0
    pacer_step: NotNegative = 10.0
    window: Count = 20

    def __post_init__(self) -> None:
        for duration in self.durations or ():
            positive("durations", duration)

    def init(self, federation: Federation) -> State:
        """Return the record before the first round."""
        real = {"dtype": torch.float64, "device": federation.device}
        pacer = {"gained": torch.zeros(2 * self.window, **real), "preferred": torch.full((), self.preferred, **real)}
        n = federation.num_clients
        record = {name: torch.zeros(n, dtype=torch.int64) for name in ("last", "count")}
        return record | {"utility": torch.zeros(n, **real), "steps": torch.tensor(0)} | pacer

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the utilities of participants, and the preferred duration of the next round."""
        device = state["utility"].device
        utility = to_device(report.num_examples, device) * report.seen["start_loss_rms"].double()
        # A client may report any number. Without the bound, scores of infinity over infinity would empty all later cohorts.
        utility = utility.clamp(0.0, _MOST)
        state["utility"][to_device(report.client, device)] = utility
        clients = torch.from_numpy(report.client)
        state["last"][clients] = version + 1
        state["count"][clients] += 1
        return state | self._pace(utility.sum(), state)

    def _pace(self, gain: torch.Tensor, state: State) -> State:
        """Return the state of the pacer after a step with the total utility `gain`, ``[]``."""
        gained, steps, preferred = state["gained"].clone(), int(state["steps"]) + 1, state["preferred"]
        gained[(steps - 1) % len(gained)] = gain  # a ring buffer of the latest 2 W steps
        if steps >= len(gained) and steps % self.window == 0:
            latest, before = gained.roll(-steps).flip(0).split(self.window)
            preferred = preferred + self.pacer_step * (before.sum() > latest.sum())
        return {"gained": gained, "steps": torch.tensor(steps), "preferred": preferred}

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
            scores = self._scores(known, now, record)
            best = scores >= self.cutoff * np.sort(scores)[-num_known]
            exploited = by_weight(candidates, known[best], scores[best], num_known)
        weights = np.ones(len(new)) if self.durations is None else 1 / np.asarray(self.durations)[new]
        explored = by_weight(candidates, new, weights, size - num_known)
        return np.sort(np.concatenate([exploited, explored]))

    def _scores(self, clients: np.ndarray, now: int, record: dict[str, np.ndarray]) -> np.ndarray:
        """Return the scores of known clients in round R, `now`, float64 ``[n]``."""
        utility = record["utility"][clients]
        ranked = np.sort(utility)
        top, low = ranked[min(int(len(ranked) * self.clip), len(ranked) - 1)], 0.999 * ranked[0]
        spread = max(ranked[-1] - low, 1e-4)
        score = (np.minimum(utility, top) - low) / spread + np.sqrt(0.1 * np.log(now) / record["last"][clients])
        if self.durations is None:
            return score
        return score * np.minimum(record["preferred"] / np.asarray(self.durations)[clients], 1.0) ** self.penalty
