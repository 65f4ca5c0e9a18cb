"""Bounds and noise of what clients of a server answer to evaluations and queries."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.checks import count, positive
from turnout.privacy.accounting import check_deviation


@dataclass(frozen=True)
class Answers:
    """Clip what every client answers, sum, and add noise, for the budget of a run with `PrivateSum`.

    An answer holds sums over a client's examples. A client with n of them counts as ``examples`` of them at most, so that
    each sum is multiplied by ``min(1, examples / n)``. Each sum is then divided by the most that it can be,

    ========================  ==============================================
    sum                       most
    ========================  ==============================================
    numbers of examples       ``examples``
    numbers of right answers  ``examples``
    losses, squared errors    ``examples`` times ``largest_loss``
    values of features        ``examples`` times ``bound`` of the question
    squares of these          ``examples`` times its square
    yes or no of a client     1
    ========================  ==============================================

    and clipped to the length 1, times ``sqrt(D)`` where it is one of D columns. All sums together are a vector of length
    S at most, the root of the sum of these squares. The sum of clients has Gaussian noise of deviation ``z S`` in each
    place, and costs what a round without sampling costs at this z. Every answer counts, whether it is opened or not.

    Args:
        noise_multiplier: z.
        most: evaluations and queries of a run at most; a run reserves their part of its budget when it begins.
        examples: for which a client counts at most.
        largest_loss: mean loss, or mean squared error, for which it counts at most.
    """

    noise_multiplier: float = 4.0
    most: int = 20
    examples: int = 100
    largest_loss: float = 10.0

    def __post_init__(self) -> None:
        check_deviation("noise_multiplier", self.noise_multiplier)
        count("most", self.most)
        count("examples", self.examples)
        positive("largest_loss", self.largest_loss)
