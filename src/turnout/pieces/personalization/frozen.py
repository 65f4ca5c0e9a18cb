"""Keep a part of the model at its first values until a client fine-tunes it (FedBABU)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnout.core.checks import ConfigurationError, known_name
from turnout.pieces.base import Correction, Local, Slots
from turnout.pieces.personalization.base import OnOwnPart
from turnout.pieces.personalization.partial import Columns, PartialModel

TUNES = ("all", "head")
"""Parameters that clients fine-tune."""


@dataclass(frozen=True)
class Frozen(PartialModel, name="frozen"):
    """Keep a part of the model at its first values, ``v_i = v^0``, and train and send only ``u`` (FedBABU).

    A client is served by the shared body and the first head. Clients who never trained (``unseen_clients``) fine-tune it
    with `adaptation_steps` local steps before they are judged, as the paper has all clients do after training; it has five
    epochs.

    Args:
        parameters: the head, as in `Personal`.
        adaptation_steps: as in `Personal`.
        tunes: what fine-tuning moves: ``"all"`` of the model (the paper's choice), or the ``"head"``.

    Raises:
        ConfigurationError: as `Personal`, and, of an algorithm, for a local rule that moves parameters without a gradient.

    Example:
        The parameters of the last layer of a model:

        >>> from torch import nn
        >>> sorted(Frozen().chosen(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))))
        ['2.bias', '2.weight']

    Reference: Oh, Kim and Yun, "FedBABU: towards enhanced representation for federated image classification", ICLR 2022
    (arXiv 2106.06042).
    """

    parameters: str | tuple[str, ...] | Callable[[str], bool] = "head"
    adaptation_steps: int | tuple[int, ...] = 5
    tunes: str = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        known_name("tunes", self.tunes, TUNES)

    def fits(self, algorithm: Slots) -> None:
        """Refuse what would move the head all the same."""
        super().fits(algorithm)
        if algorithm.local.drifts:
            raise ConfigurationError(
                "Frozen freezes the head by a gradient of zero, and AdamW's weight decay and moments of earlier rounds move "
                "it all the same: write weight_decay=0 and keep_state=False"
            )

    @property
    def columns(self) -> tuple[Correction, ...]:
        """A step of zero for the head; the last of the corrections."""
        return (Columns(0.0, 0.0),)

    def adapting(self, local: Local, steps: int) -> Local:
        """Return the rule by which a client fine-tunes the whole model, or the head alone."""
        return OnOwnPart(local.tuning(steps), () if self.tunes == "all" else (Columns(1.0, 1.0),))
