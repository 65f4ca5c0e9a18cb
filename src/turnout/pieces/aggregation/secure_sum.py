"""Sum masked updates, so that the server learns the sum of a round and no single update (secure aggregation)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch

from turnout.base import Slots
from turnout.core.checks import count, refuse
from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.maskable import NEEDS_ROUNDS, MaskedPhases, check_maskable, round_to_grid
from turnout.pieces.aggregation.weighted_sum import WeightedSum
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.masking import Masking

AtLeastTwo = Annotated[int, partial(count, least=2)]
"""An integer >= 2."""


@dataclass(frozen=True)
class SecureSum(WeightedSum, name="secure_sum"):
    """Sum masked updates: the server learns the weighted sum of a round, but no single update (SecAgg+).

    Delta_b is the update of report b, f_b the product of the factors of the weighting chain, and D its divisor::

        u = (1/D) sum_b q(f_b Delta_b)

    q rounds to fixed point, ``q(x) = round(x 2^fraction_bits) / 2^fraction_bits``, because masks are added modulo
    ``2^bits``.

    A round has three additional phases. The clients that trained receive their weight and the keys of their neighbors,
    and *share* secrets with these; they *mask* and send their weighted updates; and they *open* the sum by shares that
    remove the masks of the clients that sent an update and of those that left earlier. A simulation computes the same
    bits without masks; `turnout serve` and its clients exchange all messages. If fewer clients remain than the protocol
    requires, the round ends without a step.

    The adversary is an honest-but-curious server that colludes with fewer than the threshold of any client's
    neighbors. It sees no update, but the sum, the participants, the numbers of examples and steps, and the values from
    which weights are computed (losses). Clients that deviate from the protocol are excluded. The guide to privacy lists
    the protection against each adversary. Secure aggregation alone is not differential privacy: see
    `PrivateSum(secure=...)`.

    Args:
        bits: bits of the modulus, from 2 to 54. Masked updates are sent as integers of 8, 16, 32 or 64 bits.
        fraction_bits: bits behind the binary point. The error of a sum of n updates is at most
            ``n 2^(-fraction_bits - 1)`` in each element.
        largest: maximum absolute value of an element of ``f_b Delta_b``, in units of an update.
        too_large: treatment of larger values: ``"refuse"`` ends a simulation with an error that says what to write (on
            a GPU, it drops the report), and a deployed client gives up its task; ``"clip"`` takes the nearest value
            that fits.
        threshold: fraction of a client's neighbors, > 0.5 and at most 1, whose shares are necessary to remove its
            masks.
        weights: smallest and largest weight by which a client multiplies its update, ``0 <= smallest <= largest``. A
            client refuses other weights, with which the server could isolate its update. None allows all weights >= 0.
        degree: number of neighbors of a client (k), >= 2; None connects all clients with each other.
        min_clients: minimum number of clients in a sum, >= 2; the sum of one client would be its update.
        cohort: maximum number of clients in a round, >= 2, for which the sum has to have room; None is all N.

    Raises:
        ConfigurationError: if a number is out of range, a sum has no room for the clients, or the algorithm reads more
            than a sum, with the reason.

    Example:
        >>> import turnout as to
        >>> to.fedau(also=(to.aggregation.SecureSum(largest=64.0, fraction_bits=12),)).phases
        ('train', 'share', 'mask', 'open')

    Reference: Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020.
    """

    needs_rounds = NEEDS_ROUNDS

    bits: int = 32
    fraction_bits: int = 16
    largest: float = 8.0
    too_large: Literal["refuse", "clip"] = "refuse"
    threshold: float = 0.6
    weights: tuple[float, ...] | None = None
    degree: AtLeastTwo | None = None
    min_clients: AtLeastTwo = 3
    cohort: AtLeastTwo | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bits, int) and self.bits > 54:
            raise refuse("bits", given=self.bits, needed="2 to 54, because sums are computed in float64")
        self.code  # noqa: B018  # raises an error for numbers out of range
        if not 0.5 < self.threshold <= 1:
            raise refuse(
                "threshold",
                given=self.threshold,
                needed="a fraction of the neighbors, > 0.5 and at most 1: with half of them, a server that lies about which "
                "clients left obtains both secrets of a client",
            )
        if self.weights is not None and not (len(self.weights) == 2 and 0 <= self.weights[0] <= self.weights[1]):
            raise refuse("weights", given=self.weights, needed="the smallest and the largest, 0 <= smallest <= largest")
        if self.cohort is not None:
            self.masking.check_clients(self.cohort, "cohort")

    @property
    def code(self) -> FixedPoint:
        """The fixed-point encoding of numbers."""
        return FixedPoint(self.bits, self.fraction_bits, self.largest, self.too_large)

    @property
    def masking(self) -> Masking:
        """The options of the secure sum."""
        return Masking(self.code, self.threshold, self.min_clients, self.degree, self.weights)

    @property
    def extra(self) -> MaskedPhases:
        """The phases in which clients mask their updates; groups of clients may do so among themselves."""
        return MaskedPhases(self.masking, self.summand, sums_groups=True)

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for algorithms that read more than one sum of updates."""
        check_maskable(algorithm)

    def init(self, federation: Federation) -> State:
        """Return an empty state.

        Raises:
            ConfigurationError: if the sum has no room for so many clients, or if there are too few for a sum.
        """
        self.masking.check_clients(federation.num_clients, "num_clients")
        self.code.check(min(self.cohort or federation.num_clients, federation.num_clients))
        return super().init(federation)

    def summand(self, factors: torch.Tensor, report: Report, seed: int | None) -> torch.Tensor:
        """Return ``q(f_b Delta_b)``, float64 ``[B, P]``, the values of the fixed-point codes."""
        return round_to_grid(factors[:, None] * report.updates.gathered().double(), self.code)
