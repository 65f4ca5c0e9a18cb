"""Select clients by the utility of their data and by their speed, and explore new clients (Oort)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import positive
from turnout.core.device import to_device
from turnout.core.ranges import Count, NotNegative, Positive, Probability
from turnout.core.types import Federation, Report, State
from turnout.pieces.selection.exploring import Exploring

_MOST = 1e200  # largest utility, so that sums are finite


@dataclass(frozen=True)
class Oort(Exploring, name="oort"):
    """Select clients by statistical utility, round duration and time since their last participation (Oort).

    The utility of client k is ``U_k = n_k sqrt(mean_i loss_i^2)``, with the number of its examples n_k and the losses
    of the received model on them, measured in the client's last round L_k. In round R, the score of an available client
    that took part before is::

        score_k = (min(U_k, U^95) - U_min) / (U_max - U_min) + sqrt(0.1 log R / L_k)
        score_k <- score_k (T / d_k)^alpha                      where d_k > T

    U^95 is the quantile `clip` of utilities, which are at most 1e200, U_max the largest, and U_min 0.999 times the
    smallest. T is the preferred duration of a round, and d_k that of client k, in seconds.

    Known clients are drawn in proportion to these scores, and new clients in proportion to ``1 / d_k``; `Exploring`
    describes their numbers. T grows by `pacer_step` whenever the sum of utilities over the last W steps is less than
    that over the W steps before.

    Differences from the authors' code (FedScale):

    - Its T is a percentile of durations, which moves by 5 % at a time in both directions.
    - It uses a decaying mean of minibatch losses instead of the losses of all examples.
    - Once all clients are known, it draws nobody in place of new clients.
    - Here durations are an option, and are not observed.

    Args:
        cohort_size: number of clients in a round (K), from 1 to the number of clients.
        exploration: initial share of new clients in the cohort, in [0, 1]; `decay` applies from the first round on.
        decay: factor on this share in every round, in [0, 1].
        least: smallest share, in [0, 1].
        cutoff: smallest score of a known client as a fraction of the score of the last rank that fits, in [0, 1]; see
            `Exploring`.
        most: number of participations after which a client is no longer selected (the paper's blacklist), >= 1; None is
            no limit.
        clip: quantile at which utilities are clipped, in [0, 1].
        durations: duration d of a round of each of the N clients, in seconds, > 0. None ignores durations.
        preferred: initial preferred duration T, in seconds, > 0.
        penalty: exponent alpha of the penalty on slow clients, >= 0; 0 leaves durations out of scores.
        pacer_step: increment of T, in seconds, >= 0.
        window: number of server steps W over which utilities are summed, >= 1.

    State: that of `Exploring`; ``utility [N]``, float64; and of the pacer ``gained [2 W]`` and ``preferred []``,
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
        utility = torch.zeros(federation.num_clients, **real)
        return super().init(federation) | {"utility": utility, "steps": torch.tensor(0)} | pacer

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the utilities of participants, and the preferred duration of the next round."""
        device = state["utility"].device
        utility = to_device(report.num_examples, device) * report.seen["start_loss_rms"].double()
        # A client may report any number. Without the bound, scores of infinity over infinity would empty all later cohorts.
        utility = utility.clamp(0.0, _MOST)
        state["utility"][to_device(report.client, device)] = utility
        return super().apply(report, version, state) | self._pace(utility.sum(), state)

    def _pace(self, gain: torch.Tensor, state: State) -> State:
        """Return the state of the pacer after a step with the total utility `gain`, ``[]``."""
        gained, steps, preferred = state["gained"].clone(), int(state["steps"]) + 1, state["preferred"]
        gained[(steps - 1) % len(gained)] = gain  # a ring buffer of the latest 2 W steps
        if steps >= len(gained) and steps % self.window == 0:
            latest, before = gained.roll(-steps).flip(0).split(self.window)
            preferred = preferred + self.pacer_step * (before.sum() > latest.sum())
        return {"gained": gained, "steps": torch.tensor(steps), "preferred": preferred}

    def scores(self, clients: np.ndarray, now: int, record: dict[str, np.ndarray]) -> np.ndarray:
        """Return the scores of known clients, float64 ``[n]``."""
        utility = record["utility"][clients]
        ranked = np.sort(utility)
        top, low = ranked[min(int(len(ranked) * self.clip), len(ranked) - 1)], 0.999 * ranked[0]
        spread = max(ranked[-1] - low, 1e-4)
        score = (np.minimum(utility, top) - low) / spread + np.sqrt(0.1 * np.log(now) / record["last"][clients])
        if self.durations is None:
            return score
        return score * np.minimum(record["preferred"] / np.asarray(self.durations)[clients], 1.0) ** self.penalty

    def novelty(self, clients: np.ndarray) -> np.ndarray:
        """Return ``1 / d``, or equal weights if durations are unknown."""
        return super().novelty(clients) if self.durations is None else 1 / np.asarray(self.durations)[clients]
