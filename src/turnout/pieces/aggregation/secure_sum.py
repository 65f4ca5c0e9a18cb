"""Secure aggregation: the server learns the weighted sum of a round's updates, and none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from turnout.core.checks import ConfigurationError, count, refuse
from turnout.core.types import Federation, ServerState, State
from turnout.pieces.aggregation.weighted_sum import WeightedSum
from turnout.pieces.base import Slots, Weighting
from turnout.pieces.base.phases import Form, Messages, Shapes
from turnout.protocol.secure import shamir
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.masked_sum import MaskedSum, form_of
from turnout.protocol.secure.masker import Masker
from turnout.protocol.secure.masks import word
from turnout.protocol.secure.messages import KEY_BYTES, SEALED_BYTES

_KEYS, _NUMBER = 2 * KEY_BYTES, 8  # bytes of two public keys, of a number


@dataclass(frozen=True)
class SecureSum(WeightedSum, name="secure_sum"):
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

    phases: ClassVar[tuple[str, ...]] = ("share", "mask", "open")

    sends_in: ClassVar[str] = "mask"

    needs_rounds: ClassVar[str | None] = (
        "{pace} cannot share: {piece} masks updates among the clients of a round, who are there at the same time, and {pace} "
        "has no rounds"
    )

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

    def fits(self, algorithm: Slots) -> None:
        """Refuse algorithms that need more of updates than one sum."""
        if algorithm.server.of_reports:
            raise ConfigurationError(
                f"SecureSum: {type(algorithm.server).__name__} reads the length of every update, and the server has none"
            )
        for piece in algorithm.weighting:
            if type(piece).factors is Weighting.factors:
                raise ConfigurationError(
                    f"SecureSum: {type(piece).__name__} weighs a report by the others of its step, and a client has to know "
                    "its weight before it masks its update"
                )
        if algorithm.keeps:
            raise ConfigurationError(
                f"SecureSum: clients remember {algorithm.keeps[0]}, of which the server has the mean; where a sum cannot be "
                "opened the two would drift apart: use an algorithm that sends the update alone"
            )
        for piece in (*algorithm.measurements, *algorithm.selection.measurements):
            if "start_gradient" in piece.gives:
                raise ConfigurationError(
                    f"SecureSum: {type(piece).__name__} sends the gradient of every client to the server, one by one"
                )
        for guard in algorithm.guard:
            if guard.codes:
                raise ConfigurationError(
                    f"SecureSum: {type(guard).__name__} sends a code, and the sum of codes stands for no sum of updates: "
                    "leave it out, and write fewer bits"
                )
        if algorithm.selection.repeats:
            raise ConfigurationError(
                f"SecureSum: {type(algorithm.selection).__name__} draws clients twice, and a client masks its update once: "
                "use Uniform"
            )

    def init(self, federation: Federation) -> State:
        """Nothing is remembered.

        Raises:
            ConfigurationError: where the sum has no room for so many clients.
        """
        self.code.check(min(self.cohort or federation.num_clients, federation.num_clients))
        return super().init(federation)

    def attendance(self, seed: int, version: int) -> Attendance:
        """Follow the sum of the round from `version`."""
        return Attendance(self.threshold, self.degree, self.min_clients, (seed, version))

    def server_side(
        self,
        weighting: Sequence[Weighting],
        state: ServerState,
        federation: Federation,
        attendance: Attendance,
        messages: Messages,
    ) -> MaskedSum:
        """Return the sum of a round, of the messages of its clients."""
        return MaskedSum(self, weighting, state, federation, attendance, messages)

    def client_side(self) -> Masker:
        """Return what masks the updates of one client."""
        return Masker(self)

    def form(self, phase: str, told: Shapes, num_params: int) -> Form:
        """Return the tensors of a message."""
        return form_of(phase, self.bits, told, num_params)

    def summand(self, factors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return ``q(f_b Delta_b)``, float64 ``[B, P]``: what fixed-point codes stand for.

        Raises:
            ConfigurationError: for numbers beyond `largest`, unless they are to be clipped.
        """
        weighted, unit = factors[:, None] * rows.double(), 2.0**self.fraction_bits
        if self.too_large == "clip":
            weighted = weighted.clamp(-self.largest, self.largest)
        elif weighted.device.type != "cpu":  # where nobody is to wait for an answer
            weighted = weighted.where(weighted.abs() <= self.largest, torch.nan)
        elif weighted.numel() and float(top := weighted.abs().max()) > self.largest:
            raise self.code.overflow(float(top))
        return (weighted * unit).round() / unit

    def bytes(self, phase: str, num_clients: int, num_params: int) -> tuple[int, int]:
        """Return the bytes that each of so many clients sends and receives in a phase, beside what any task takes.

        In ``"train"`` it sends keys in place of its update.
        """
        k, number = self.num_neighbours(num_clients), _NUMBER
        return {
            "train": (_KEYS, 0),
            "share": (k * SEALED_BYTES, k * (number + _KEYS) + number),
            "mask": (num_params * word(self.bits).itemsize + k, k * (number + SEALED_BYTES)),
            "open": (k * shamir.SHARE_BYTES, k * number),
        }[phase]

    def num_neighbours(self, num_clients: int) -> int:
        """Return k among so many clients."""
        most = max(num_clients - 1, 0)
        return most if self.degree is None else min(2 * ((self.degree + 1) // 2), most)
