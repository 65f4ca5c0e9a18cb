"""Bound and noise clients' answers to evaluations and queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from turnout.core.checks import count
from turnout.core.other_names import ExplainsArguments
from turnout.core.ranges import Count
from turnout.privacy.ranges import BOUNDS, Bound, Deviation


@dataclass(frozen=True)
class Answers(ExplainsArguments):
    """Clip and sum clients' answers to evaluations and queries, with noise, within the budget of a private run.

    The run is one with `PrivateSum`. An answer contains sums over a client's examples. A client with n examples counts
    as at most `examples` of them: each sum is multiplied by ``min(1, examples / n)``. Each sum is then divided by its
    maximum,

    ========================  ==============================================
    sum                       maximum
    ========================  ==============================================
    numbers of examples       ``examples``
    correct predictions       ``examples``
    losses, squared errors    ``examples`` times ``largest_loss``
    values of features        ``examples`` times ``bound`` of the question
    squares of these          ``examples`` times the square of ``bound``
    yes or no of a client     1
    ========================  ==============================================

    and clipped to norm 1, or to ``sqrt(D)`` if it has D columns. All sums together are a vector of norm at most S, the
    square root of the sum of the squares of these norms, which is the sensitivity to one client. The sum over clients
    gets Gaussian noise of standard deviation ``z S`` in each element, and has the privacy cost of a round without
    sampling at this z. Every answer is counted, whether its sum is opened or not.

    Args:
        noise_multiplier: z, from 0.001 to 1,000,000.
        most: maximum number of evaluations and queries of a run, >= 1, for which it reserves budget at its start.
        examples: maximum number of examples for which a client counts, from 1 to 10^9.
        largest_loss: maximum mean loss, or mean squared error, of a client, from 10^-30 to 10^9.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> Answers(noise_multiplier=4.0).most
        20
    """

    noise_multiplier: Deviation = 4.0
    most: Count = 20
    examples: Annotated[int, partial(count, most=int(BOUNDS[1]))] = 100
    largest_loss: Bound = 10.0
