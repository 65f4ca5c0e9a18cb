"""Choose clients by the utility of their data and by their speed, and explore others (Oort)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import count, not_negative, positive, probability
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.pieces.selection.exploring import Exploring


@dataclass(frozen=True)
class Oort(Exploring, name="oort"):
    """Take clients by their statistical utility, the time they need and how long ago they took part (Oort).

    Client k has the utility ``U_k = n_k sqrt(mean_i loss_i^2)`` of its last round L_k. In round R, of those who
    are there and took part before::

        score_k = (min(U_k, U^95) - U_min) / (U_max - U_min) + sqrt(0.1 log R / L_k)
        score_k <- score_k (T / d_k)^alpha                      where d_k > T

    U^95 is the quantile `clip`, and U_min 0.999 times the least utility. Clients are drawn in proportion to these scores,
    and others, who never took part, in proportion to 1 / d_k, as `Exploring` says.

    The preferred duration T grows by `pacer_step` whenever the utility of the last W steps is less than that of the W steps
    before.

    Differences: the authors' code (FedScale) has T as a percentile of durations, of which it moves 5 % at a time in both
    directions, and a decaying mean of minibatch losses in place of the loss over all examples. It draws nobody in place
    of newcomers once all are known. Durations are an option here, and are not observed.

    State: that of `Exploring`, and ``utility [N]``; ``gained [2 W]``, ``steps []`` and ``preferred []`` of the pacer.

    Args:
        cohort_size: clients in a round (K).
        exploration, decay, least, cutoff: of exploration, see `Exploring`.
        most: participations after which a client is left out (the paper's blacklist); None is no limit.
        clip: as above.
        durations: d, the seconds of a round of each client; None leaves time out.
        preferred: T at first, in seconds.
        penalty: alpha; 0 leaves time out of scores.
        pacer_step: seconds by which T grows.
        window: W, in server steps.

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
    per_client = ("durations",)

    clip: float = 0.95
    durations: tuple[float, ...] | None = None
    preferred: float = 10.0
    penalty: float = 2.0
    pacer_step: float = 10.0
    window: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        probability("clip", self.clip)
        for name in ("penalty", "pacer_step"):
            not_negative(name, getattr(self, name))
        count("window", self.window)
        for name, value in (("preferred", self.preferred), *(("durations", value) for value in self.durations or ())):
            positive(name, value)

    def init(self, federation: Federation) -> State:
        """Return the record before the first round."""
        real = {"dtype": torch.float64, "device": federation.device}
        pacer = {"gained": torch.zeros(2 * self.window, **real), "preferred": torch.full((), self.preferred, **real)}
        utility = torch.zeros(federation.num_clients, **real)
        return super().init(federation) | {"utility": utility, "steps": torch.tensor(0)} | pacer

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the utilities of those who took part, and the preferred duration for the next round."""
        device = state["utility"].device
        utility = to_device(report.num_examples, device) * report.seen["start_loss_rms"].double()
        state["utility"][to_device(report.client, device)] = utility
        return super().apply(report, version, state) | self._pace(utility.sum(), state)

    def _pace(self, gain: torch.Tensor, state: State) -> State:
        """Return the state of the pacer after a step of this utility, ``[]``."""
        gained, steps, preferred = state["gained"].clone(), int(state["steps"]) + 1, state["preferred"]
        gained[(steps - 1) % len(gained)] = gain  # the latest 2 W steps, written over in turns
        if steps >= len(gained) and steps % self.window == 0:
            latest, before = gained.roll(-steps).flip(0).split(self.window)
            preferred = preferred + self.pacer_step * (before.sum() > latest.sum())
        return {"gained": gained, "steps": torch.tensor(steps), "preferred": preferred}

    def scores(self, clients: np.ndarray, now: int, record: dict[str, np.ndarray]) -> np.ndarray:
        """Return the scores above."""
        utility = record["utility"][clients]
        ranked = np.sort(utility)
        top, low = ranked[min(int(len(ranked) * self.clip), len(ranked) - 1)], 0.999 * ranked[0]
        spread = max(ranked[-1] - low, 1e-4)
        score = (np.minimum(utility, top) - low) / spread + np.sqrt(0.1 * np.log(now) / record["last"][clients])
        if self.durations is None:
            return score
        return score * np.minimum(record["preferred"] / np.asarray(self.durations)[clients], 1.0) ** self.penalty

    def novelty(self, clients: np.ndarray) -> np.ndarray:
        """Return ``1 / d``; equal weights where durations are not known."""
        return super().novelty(clients) if self.durations is None else 1 / np.asarray(self.durations)[clients]
