"""Freeze a part of the model in federated training, and fine-tune it at each client (FedBABU)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from turnout.base import Correction, CorrectsColumns, Local, Slots
from turnout.base.tuning import tuning_rule
from turnout.core.checks import ConfigurationError
from turnout.pieces.personalization.base import OnOwnPart
from turnout.pieces.personalization.partial import Columns, PartialModel

Tunes = Literal["all", "head"]
"""The supported choices of parameters that clients fine-tune."""


@dataclass(frozen=True)
class Frozen(PartialModel, CorrectsColumns, name="frozen"):
    """Freeze a part of the model at its initial values, and train and send only the rest (FedBABU).

    The model has a frozen part v, the head by default, and a shared part u, the body. Federated training updates u,
    while ``v_i = v^0`` stays at its random initial value at every client i. A trained client is served by u and v^0. A
    client that never trained (``unseen_clients``) fine-tunes the model by `adaptation_steps` local steps before it is
    evaluated; in the paper all clients do so after training, for five epochs.

    Args:
        parameters: the frozen parameters, given as in `Personal`.
        adaptation_steps: number of local steps of fine-tuning, given as in `Personal`.
        tunes: the parameters that fine-tuning updates: ``"all"`` (the paper's choice), or only the ``"head"``, which is
            the frozen part.

    Raises:
        ConfigurationError: as for `Personal`, and if the local rule changes parameters without a gradient.

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
    tunes: Tunes = "all"

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for a local rule that would change the frozen part."""
        super().fits(algorithm)
        if algorithm.local.traits.drifts:
            raise ConfigurationError(
                "Frozen freezes the head by a gradient of zero, and AdamW's weight decay and moments of earlier rounds "
                "change it nevertheless: write weight_decay=0 and keep_state=False"
            )

    @property
    def columns(self) -> tuple[Correction, ...]:
        """The correction that sets the gradient of the frozen part to zero, applied after all others."""
        return (Columns(0.0, 0.0),)

    def adapting(self, local: Local, steps: int) -> Local:
        """Return the rule by which a client fine-tunes the whole model, or only the frozen part."""
        return OnOwnPart(tuning_rule(local, steps), () if self.tunes == "all" else (Columns(1.0, 1.0),))
