"""The models that simulated clients have at the present version."""

from __future__ import annotations

import numpy as np
import torch

from turnout.pieces.base import Personalization
from turnout.simulation.memory import ClientMemory


class PresentModels:
    """The server's model with what each client keeps for itself, as far as it keeps something.

    Args:
        params: the shared parameters, ``[P_u]``; to be replaced with every step.
        memory: where personal ones are.
        personal: what is personal; None is nothing.
    """

    def __init__(self, params: torch.Tensor, memory: ClientMemory, personal: Personalization | None) -> None:
        self.params, self.personal, self._memory = params, personal, memory

    def serving(self, ids: np.ndarray) -> torch.Tensor:
        """Return the model that serves each of these clients, ``[B, P]``."""
        if self.personal is None:
            return self.params.expand(len(ids), -1)
        return self.personal.serving(self.params, self._memory.gather(ids))

    def trained(self, ids: np.ndarray) -> torch.Tensor:
        """Return the model that each of these clients would train, ``[B, P]``."""
        params = self.params if self.personal is None else self.personal.join(self.params, self._memory.gather(ids))
        return params.expand(len(ids), -1)
