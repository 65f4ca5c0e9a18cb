"""Secure aggregation: the server learns the weighted sum of a round's updates, and no single update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from turnout.core.checks import count, refuse
from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.maskable import MaskableSum, check_maskable, round_to_grid
from turnout.pieces.aggregation.weighted_sum import WeightedSum
from turnout.pieces.base import Slots
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.masking import Masking


@dataclass(frozen=True)
class SecureSum(MaskableSum, WeightedSum, name="secure_sum"):  # pyright: ignore[reportIncompatibleVariableOverride]
    """``u = (1/D) sum_b q(f_b Delta_b)``: the sum of masked updates, which the server can open and single ones it cannot.

    f is the product of the factors of the weighting chain, D what the chain divides by, and
    ``q(x) = round(x 2^fraction_bits) / 2^fraction_bits`` is fixed point, because masks are added modulo ``2^bits``.

    A round has three more phases (SecAgg+): those who trained get the keys of their neighbours and their weight and *share*
    their secrets; *mask* their weighted update and send it; and *open* the sum, by shares that take off the masks of those
    who sent one, and of those who left before. A simulation computes the same bits without the masks; `turnout serve` and
    its clients exchange all messages. Where fewer are left than it takes, the round ends without a step.

    The server is honest but curious: it sees updates of nobody, as long as fewer than the threshold of a client's neighbours
    help it to. What it does see is who took part, the numbers of examples and steps, and what weights are made of (losses).
    Clients that cheat are left out; the guide to privacy has a table of who is protected against whom.

    Args:
        bits: of the modulus, at most 54; masked updates are sent as whole numbers of 8, 16, 32 or 64 bits.
        fraction_bits: of the part behind the point. The sum of n updates is off by at most ``n 2^(-fraction_bits - 1)``.
        largest: that a number of ``f_b Delta_b`` may be, in absolute value.
        too_large: what becomes of a larger one: ``"refuse"`` ends a simulation with what to write (on a GPU, drops the
            report), and has a deployed client give up its task; ``"clip"`` takes the nearest that fits.
        threshold: the share of a client's neighbours whose help it takes to take off its masks, more than half of them.
        weights: the least and the largest weight with which a client multiplies its update. A client refuses others, with
            which a server could single out its update. None allows all that are not negative.
        degree: k, the neighbours of a client; None joins all to all.
        min_clients: with fewer there is no sum; of one client alone it would be its update.
        cohort: clients of a round at most, for which the sum has to have room; None is all N.

    Raises:
        ConfigurationError: for numbers out of range, a sum without room for the clients, and algorithms that need more than
            a sum, with the reason.

    Example:
        >>> import turnout as to
        >>> to.fedau(also=(to.aggregation.SecureSum(largest=64.0, fraction_bits=12),)).phases
        ('train', 'share', 'mask', 'open')

    Reference: Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020.
    """

    sums_groups = True

    bits: int = 32
    fraction_bits: int = 16
    largest: float = 8.0
    too_large: Literal["refuse", "clip"] = "refuse"
    threshold: float = 0.6
    weights: tuple[float, ...] | None = None
    degree: int | None = None
    min_clients: int = 3
    cohort: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bits, int) and self.bits > 54:
            raise refuse("bits", given=self.bits, needed="2 to 54, for sums are computed in float64")
        self.code  # noqa: B018  # refuses what is out of range
        if not 0.5 < self.threshold <= 1:
            raise refuse(
                "threshold",
                given=self.threshold,
                needed="a share of the neighbours, > 0.5 and at most 1: with half of them a server that lies about who left "
                "gets both secrets of a client",
            )
        if self.weights is not None and not (len(self.weights) == 2 and 0 <= self.weights[0] <= self.weights[1]):
            raise refuse("weights", given=self.weights, needed="the least and the largest, 0 <= least <= largest")
        count("min_clients", self.min_clients, least=2)
        for name in ("degree", "cohort"):
            if (given := getattr(self, name)) is not None:
                count(name, given, least=2)

    @property
    def code(self) -> FixedPoint:
        """Return how numbers are written."""
        return FixedPoint(self.bits, self.fraction_bits, self.largest, self.too_large)

    @property
    def masking(self) -> Masking:
        """The options of the secure sum."""
        return Masking(self.code, self.threshold, self.min_clients, self.degree, self.weights)

    def fits(self, algorithm: Slots) -> None:
        """Refuse algorithms that need more of updates than one sum."""
        check_maskable(algorithm)

    def init(self, federation: Federation) -> State:
        """Nothing is remembered.

        Raises:
            ConfigurationError: where the sum has no room for so many clients.
        """
        self.code.check(min(self.cohort or federation.num_clients, federation.num_clients))
        return super().init(federation)

    def summand(self, factors: torch.Tensor, report: Report, seed: int | None) -> torch.Tensor:
        """Return ``q(f_b Delta_b)``, float64 ``[B, P]``: what fixed-point codes stand for."""
        return round_to_grid(factors[:, None] * report.updates.gathered().double(), self.code)
