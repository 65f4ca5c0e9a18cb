"""Base class of sums of updates that clients may mask, in additional phases after training."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.base import Aggregation, Slots, Weighting
from turnout.base.phases import Form, Messages, Shapes
from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, ServerState
from turnout.protocol.secure import shamir
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.masked_sum import MaskedSum, form_of
from turnout.protocol.secure.masker import Masker
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.masks import word
from turnout.protocol.secure.messages import KEY_BYTES, SEALED_BYTES

_KEYS, _NUMBER = 2 * KEY_BYTES, 8  # bytes of two public keys, and of a number


class MaskableSum(Aggregation):
    """Base class of sums of updates that clients mask if `masking` is not None (secure aggregation).

    The contribution of a client is its `summand`. A simulation adds summands without masks and has the same bits as a
    deployment.
    """

    @property
    def masking(self) -> Masking | None:
        """The options of the secure sum; None if updates are sent without masks."""
        return None

    @property
    def phases(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The phases of a round after training: share, mask and open with masks, none without."""
        return () if self.masking is None else ("share", "mask", "open")

    @property
    def sends_in(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The phase in which a client sends its update."""
        return "train" if self.masking is None else "mask"

    @property
    def only_sums(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if the only operation on updates is to sum them."""
        return self.masking is not None

    @property
    def needs_rounds(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The reason for which masks require synchronous rounds; None without masks."""
        if self.masking is None:
            return None
        return _NEEDS_ROUNDS if self.sums_groups else _CLIPS_BEFORE

    def attendance(self, seed: int, version: int) -> Attendance:
        """Return a record of the clients that take part in the sum of the round from `version`."""
        masking = self._masking
        return Attendance(
            masking.threshold, masking.degree, masking.min_clients, (seed, version), masking.code.capacity
        )

    def server_side(
        self,
        weighting: Sequence[Weighting],
        state: ServerState,
        federation: Federation,
        attendance: Attendance,
        messages: Messages,
    ) -> MaskedSum:
        """Return the server's side of the sum of a round."""
        return MaskedSum(self._masking, weighting, state, federation, attendance, messages)

    def client_side(self) -> Masker | None:
        """Return the client's side of the sum, which masks its update; None without masks."""
        return None if self.masking is None else Masker(self.masking, self.summand, self.nulls_dropped)

    def form(self, phase: str, inputs: Shapes, num_params: int) -> Form:
        """Return the tensors of a client's message in a phase."""
        return form_of(phase, self._masking.bits, inputs, num_params)

    def bytes(self, phase: str, num_clients: int, num_params: int) -> tuple[int, int] | None:
        """Return the bytes that each client sends and receives in a phase, in addition to those of every task.

        In ``"train"`` a client sends keys in place of its update. None if updates are sent without masks.

        Args:
            phase: the phase.
            num_clients: number of clients in the sum.
            num_params: P, the number of parameters.
        """
        if (masking := self.masking) is None:
            return None
        k, number = masking.num_neighbours(num_clients), _NUMBER
        return {
            "train": (_KEYS, 0),
            "share": (k * SEALED_BYTES, k * (number + _KEYS) + number),
            "mask": (num_params * word(masking.bits).itemsize + k, k * (number + SEALED_BYTES)),
            "open": (k * shamir.SHARE_BYTES, k * number),
        }[phase]

    @property
    def _masking(self) -> Masking:
        assert self.masking is not None
        return self.masking


_CLIPS_BEFORE = (
    "{piece} with secure does not support {pace}: clients clip before the staleness of their sum is known, by which "
    "{pace} may weight it"
)
_NEEDS_ROUNDS = (
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
    elif weighted.device.type != "cpu":  # without synchronising with the device
        weighted = weighted.where(weighted.abs() <= code.largest, torch.nan)  # the server step drops NaN
    elif weighted.numel() and float(top := weighted.abs().max()) > code.largest:
        raise code.overflow(float(top))
    # Multiplying by a power of two is exact, and float64 holds whole numbers below 2^53: a sum of grid points is exact in any
    # order, so a simulation has the bits of the sum of masked integers.
    return (weighted * unit).round() / unit


def check_maskable(algorithm: Slots, name: str = "SecureSum") -> None:
    """Raise an error for algorithms that read more than one sum of updates; `name` is the piece in the message."""
    if algorithm.server.of_reports:
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
        if guard.codes:
            raise ConfigurationError(
                f"{name}: {type(guard).__name__} sends a code, and a sum of codes does not encode the sum of updates: "
                "leave it out, and write fewer bits"
            )
    if algorithm.selection.repeats:
        raise ConfigurationError(
            f"{name}: {type(algorithm.selection).__name__} draws clients twice, and a client masks its update once: "
            "use Uniform"
        )
