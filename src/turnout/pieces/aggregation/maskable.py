"""Base class of sums whose updates clients may mask, in phases after training."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, ServerState
from turnout.pieces.base import Aggregation, Slots, Weighting
from turnout.pieces.base.phases import Form, Messages, Shapes
from turnout.protocol.secure import shamir
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.masked_sum import MaskedSum, form_of
from turnout.protocol.secure.masker import Masker
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.masks import word
from turnout.protocol.secure.messages import KEY_BYTES, SEALED_BYTES

_KEYS, _NUMBER = 2 * KEY_BYTES, 8  # bytes of two public keys, of a number


class MaskableSum(Aggregation):
    """A sum of updates that clients mask where there is `masking`.

    What a client adds to the sum is its `summand`, which a simulation sums without masks, to the same bits.
    """

    @property
    def masking(self) -> Masking | None:
        """The options of the secure sum; None where updates are sent as they are."""
        return None

    @property
    def phases(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What a round asks for after training."""
        return () if self.masking is None else ("share", "mask", "open")

    @property
    def sends_in(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The phase in which an update leaves its client."""
        return "train" if self.masking is None else "mask"

    @property
    def only_sums(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if all it does with updates is to sum them."""
        return self.masking is not None

    @property
    def needs_rounds(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Why masks need synchronous rounds."""
        if self.masking is None:
            return None
        return _NEEDS_ROUNDS if self.sums_groups else _CLIPS_BEFORE

    def attendance(self, seed: int, version: int) -> Attendance:
        """Follow the sum of the round from `version`."""
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
        """Return the sum of a round, of the messages of its clients."""
        return MaskedSum(self._masking, weighting, state, federation, attendance, messages)

    def client_side(self) -> Masker | None:
        """Return what masks the updates of one client."""
        return None if self.masking is None else Masker(self.masking, self.summand, self.nulls_dropped)

    def form(self, phase: str, inputs: Shapes, num_params: int) -> Form:
        """Return the tensors of a message."""
        return form_of(phase, self._masking.bits, inputs, num_params)

    def bytes(self, phase: str, num_clients: int, num_params: int) -> tuple[int, int] | None:
        """Return the bytes that each of `num_clients` sends and receives in a phase, beside those of any task.

        In ``"train"`` it sends keys in place of its update.
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
    "{piece} with secure cannot share with {pace}: clients clip before it is known how stale their sum will be, by which "
    "{pace} may weigh it"
)
_NEEDS_ROUNDS = (
    "{pace} cannot share: {piece} masks updates among the clients of a round, who are there at the same time, and {pace} "
    "has no rounds"
)


def round_to_grid(weighted: torch.Tensor, code: FixedPoint) -> torch.Tensor:
    """Return ``q(x)``, float64: what the fixed-point codes of x stand for.

    Raises:
        ConfigurationError: for numbers beyond `largest`, unless they are to be clipped.
    """
    unit = 2.0**code.fraction_bits
    if code.too_large == "clip":
        weighted = weighted.clamp(-code.largest, code.largest)
    elif weighted.device.type != "cpu":  # where nobody is to wait for an answer
        weighted = weighted.where(weighted.abs() <= code.largest, torch.nan)  # dropped by the server step
    elif weighted.numel() and float(top := weighted.abs().max()) > code.largest:
        raise code.overflow(float(top))
    # Multiplying by a power of two is exact, and float64 holds whole numbers below 2^53: a sum of grid points is exact in any
    # order, so a simulation has the bits of the sum of masked integers.
    return (weighted * unit).round() / unit


def check_maskable(algorithm: Slots, name: str = "SecureSum") -> None:
    """Refuse algorithms that need more of updates than one sum."""
    if algorithm.server.of_reports:
        raise ConfigurationError(
            f"{name}: {type(algorithm.server).__name__} reads the length of every update, and the server has none"
        )
    for piece in algorithm.weighting:
        if type(piece).factors is Weighting.factors:
            raise ConfigurationError(
                f"{name}: {type(piece).__name__} weighs a report by the others of its step, and a client has to know "
                "its weight before it masks its update"
            )
    if algorithm.keeps:
        raise ConfigurationError(
            f"{name}: clients remember {algorithm.keeps[0]}, of which the server has the mean; where a sum cannot be "
            "opened the two would drift apart: use an algorithm that sends the update alone"
        )
    for piece in (*algorithm.measurements, *algorithm.selection.measurements):
        if "start_gradient" in piece.gives:
            raise ConfigurationError(
                f"{name}: {type(piece).__name__} sends the gradient of every client to the server, one by one"
            )
    for guard in algorithm.guard:
        if guard.codes:
            raise ConfigurationError(
                f"{name}: {type(guard).__name__} sends a code, and the sum of codes stands for no sum of updates: "
                "leave it out, and write fewer bits"
            )
    if algorithm.selection.repeats:
        raise ConfigurationError(
            f"{name}: {type(algorithm.selection).__name__} draws clients twice, and a client masks its update once: "
            "use Uniform"
        )
