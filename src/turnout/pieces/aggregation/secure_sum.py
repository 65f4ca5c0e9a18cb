"""Sum masked updates, so that the server learns the sum of a round and no single update (secure aggregation)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch

from turnout.base import ScalesByReports, Slots, Weighting
from turnout.base.guard import Compression
from turnout.core.checks import ConfigurationError, count, refuse
from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.weighted_sum import WeightedSum
from turnout.protocol.secure import shamir
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.masks import word
from turnout.protocol.secure.messages import KEY_BYTES, SEALED_BYTES

_KEYS, _NUMBER = 2 * KEY_BYTES, 8  # bytes of two public keys, and of a number


@dataclass(frozen=True)
class MaskedPhases:
    """The phases in which clients share secrets, mask their summands and open the sum (secure aggregation).

    A simulation adds summands without masks and has the same bits as a deployment.

    Attributes:
        masking: the options of the secure sum.
        summand: function that returns the contributions of clients to the sum, see `ExtraPhases.summand`.
        sums_groups: whether groups of clients may mask among themselves.
        nulls_dropped: whether a client whose update is not finite sends zeros instead of dropping out.
    """

    masking: Masking
    summand: Callable[[torch.Tensor, Report, int | None], torch.Tensor]
    sums_groups: bool = False
    nulls_dropped: bool = False

    names: ClassVar[tuple[str, ...]] = ("share", "mask", "open")
    sends_in: ClassVar[str] = "mask"

    def bytes(self, phase: str, num_clients: int, num_params: int) -> tuple[int, int]:
        """Return the bytes that each client sends and receives in a phase, in addition to those of every task.

        In ``"train"`` a client sends keys in place of its update.

        Args:
            phase: the phase.
            num_clients: number of clients in the sum.
            num_params: P, the number of parameters.
        """
        masking = self.masking
        k, number = masking.num_neighbors(num_clients), _NUMBER
        return {
            "train": (_KEYS, 0),
            "share": (k * SEALED_BYTES, k * (number + _KEYS) + number),
            "mask": (num_params * word(masking.code.bits).itemsize + k, k * (number + SEALED_BYTES)),
            "open": (k * shamir.SHARE_BYTES, k * number),
        }[phase]


CLIPS_BEFORE = (
    "{piece} with secure does not support {pace}: clients clip before the staleness of their sum is known, by which "
    "{pace} may weight it"
)
NEEDS_ROUNDS = (
    "{pace} does not support masks: {piece} masks updates among the clients of a round, which are available at the "
    "same time, and {pace} has no rounds"
)


def round_to_grid(weighted: torch.Tensor, code: FixedPoint) -> torch.Tensor:
    """Return the values of the fixed-point codes of numbers, ``q(x)``, float64.

    Raises:
        ConfigurationError: if a number is above `largest`, on a CPU and unless it is clipped. On a GPU it becomes NaN,
            so that the server drops the report.
    """
    unit = 2.0**code.fraction_bits
    if code.too_large == "clip":
        weighted = weighted.clamp(-code.largest, code.largest)
    elif weighted.device.type != "cpu":  # without synchronizing with the device
        weighted = weighted.where(weighted.abs() <= code.largest, torch.nan)  # the server step drops NaN
    elif weighted.numel() and float(top := weighted.abs().max()) > code.largest:
        raise code.overflow(float(top))
    # Multiplying by a power of two is exact, and float64 holds whole numbers below 2^53: a sum of grid points is exact in any
    # order, so a simulation has the bits of the sum of masked integers.
    return (weighted * unit).round() / unit


def check_maskable(algorithm: Slots, name: str = "SecureSum") -> None:
    """Raise an error for algorithms that read more than one sum of updates; `name` is the piece in the message."""
    if isinstance(algorithm.server, ScalesByReports):
        raise ConfigurationError(
            f"{name}: {type(algorithm.server).__name__} reads the norm of every update, and the server receives no "
            "single one"
        )
    for piece in algorithm.weighting:
        if type(piece).factors is Weighting.factors:
            raise ConfigurationError(
                f"{name}: {type(piece).__name__} weights a report by the others of its step, and a client has to know "
                "its weight before it masks its update"
            )
    if algorithm.keeps:
        raise ConfigurationError(
            f"{name}: clients store {algorithm.keeps[0]}, whose mean the server has, and if a sum cannot be opened, "
            "the two would differ: use an algorithm that sends only updates"
        )
    for piece in (*algorithm.measurements, *algorithm.selection.measurements):
        if "start_gradient" in piece.gives:
            raise ConfigurationError(
                f"{name}: {type(piece).__name__} sends the gradient of every client to the server, without masks"
            )
    for guard in algorithm.guard:
        if isinstance(guard, Compression):
            raise ConfigurationError(
                f"{name}: {type(guard).__name__} sends a code, and a sum of codes does not encode the sum of updates: "
                "leave it out, and write fewer bits"
            )
    if algorithm.selection.repeats:
        raise ConfigurationError(
            f"{name}: {type(algorithm.selection).__name__} draws clients twice, and a client masks its update once: "
            "use Uniform"
        )


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
