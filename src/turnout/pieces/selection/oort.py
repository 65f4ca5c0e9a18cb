"""Choose clients by the utility of their data and by their speed, and explore others (Oort)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, count, not_negative, positive, probability
from turnout.core.device import to_device
from turnout.core.types import Candidates, Federation, Report, State
from turnout.pieces.base import RecordingSelection
from turnout.pieces.selection.power_of_choice import draw
from turnout.pieces.selection.uniform import Uniform


@dataclass(frozen=True)
class Oort(RecordingSelection, name="oort"):
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

    cohort_size: int = 10
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
        count("cohort_size", self.cohort_size)
        for name in ("exploration", "decay", "least", "clip", "cutoff"):
            probability(name, getattr(self, name))
        positive("preferred", self.preferred)
        not_negative("penalty", self.penalty)
        not_negative("pacer_step", self.pacer_step)
        count("window", self.window)
        if self.most is not None:
            count("most", self.most)
        for seconds in self.durations or ():
            positive("durations", seconds)

    def check(self, num_clients: int) -> None:
        """Refuse fewer clients than a cohort has, and durations of another number of clients."""
        Uniform(self.cohort_size).check(num_clients)
        if self.durations is not None and len(self.durations) != num_clients:
            raise ConfigurationError(
                f"durations has a number for {len(self.durations)} clients, but there are {num_clients}"
            )

    def init(self, federation: Federation) -> State:
        """Return the record before the first round."""
        n, real = federation.num_clients, {"dtype": torch.float64, "device": federation.device}
        taken = {name: torch.zeros(n, dtype=torch.int64) for name in ("last", "count")}
        pacer = {"gained": torch.zeros(2 * self.window, **real), "preferred": torch.full((), self.preferred, **real)}
        return {"utility": torch.zeros(n, **real)} | taken | pacer | {"steps": torch.tensor(0)}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the state with clients who never took part; refuse them where durations are given."""
        if self.durations is not None:
            raise ConfigurationError(
                f"durations has a number for each of {before.num_clients} clients, and more have come: write durations=None "
                "where clients may enrol at any time"
            )
        return super().grow(state, before, after, version)

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the utilities of those who took part, and the preferred duration for the next round."""
        clients, device = torch.from_numpy(report.client), state["utility"].device
        utility = to_device(report.num_examples, device) * report.seen["start_loss_rms"].double()
        state["utility"][to_device(report.client, device)] = utility
        state["last"][clients] = version + 1
        state["count"][clients] += 1
        gained, steps = state["gained"].clone(), int(state["steps"]) + 1
        gained[(steps - 1) % len(gained)] = utility.sum()
        preferred = state["preferred"]
        if steps >= len(gained) and steps % self.window == 0:
            latest, before = gained.roll(-steps).flip(0).split(self.window)
            preferred = preferred + self.pacer_step * (before.sum() > latest.sum())
        return state | {"gained": gained, "steps": torch.tensor(steps), "preferred": preferred}

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        record, here = {name: rows.cpu().numpy() for name, rows in candidates.record.items()}, candidates.everyone()
        if self.most is not None:
            here = here[record["count"][here] < self.most]
        known, new = here[record["last"][here] > 0], here[record["last"][here] == 0]
        epsilon = max(self.exploration * self.decay ** (candidates.round + 1), self.least)
        num_new = min(int(epsilon * self.cohort_size), len(new))
        num_known = min(self.cohort_size - num_new, len(known))
        scores = np.zeros(candidates.num_clients)
        scores[known] = self._scores(known, candidates.round + 1, record)
        if num_known:
            limit = self.cutoff * np.sort(scores[known])[-num_known]
            known = draw(candidates, known[scores[known] >= limit], scores, num_known)
        speed = np.ones(candidates.num_clients) if self.durations is None else 1 / np.asarray(self.durations)
        explored = draw(candidates, new, speed, self.cohort_size - num_known)
        return np.sort(np.concatenate([known[:num_known], explored]))

    def _scores(self, clients: np.ndarray, now: int, record: dict[str, np.ndarray]) -> np.ndarray:
        """Return the scores of clients who took part before, >= 0."""
        utility = record["utility"][clients]
        if not len(utility):
            return utility
        ranked = np.sort(utility)
        top, low = ranked[min(int(len(ranked) * self.clip), len(ranked) - 1)], 0.999 * ranked[0]
        spread = max(ranked[-1] - low, 1e-4)
        score = (np.minimum(utility, top) - low) / spread + np.sqrt(0.1 * np.log(now) / record["last"][clients])
        if self.durations is not None:
            slower = record["preferred"] / np.asarray(self.durations)[clients]
            score = score * np.minimum(slower, 1.0) ** self.penalty
        return score
