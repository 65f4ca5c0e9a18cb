"""Sums of updates that clients mask, in additional phases after training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from turnout.base import ScalesByReports, Slots, Weighting
from turnout.base.compression import Compression
from turnout.core.checks import ConfigurationError
from turnout.core.types import Report
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
            "mask": (num_params * word(masking.bits).itemsize + k, k * (number + SEALED_BYTES)),
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
