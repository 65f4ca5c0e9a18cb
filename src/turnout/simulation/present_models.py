"""Hold the present model of the server, and join it with the personal parameters of clients."""

from __future__ import annotations

import numpy as np
import torch

from turnout.base import Personalization
from turnout.record.client_memory import ClientMemory


class PresentModels:
    """The server's model, with the personal parameters of each client.

    Args:
        params: the shared parameters, ``[P_u]``; replaced after every step.
        memory: holds the personal parameters.
        personal: the personalization; None if all parameters are shared.
    """

    def __init__(self, params: torch.Tensor, memory: ClientMemory, personal: Personalization | None) -> None:
        self.params, self.personal, self._memory = params, personal, memory

    def serving(self, ids: np.ndarray) -> torch.Tensor:
        """Return the model with which each client predicts, ``[B, P]``."""
        if self.personal is None:
            return self.params.expand(len(ids), -1)
        return self.personal.serving(self.params, self._memory.gather(ids))

    def trained(self, ids: np.ndarray) -> torch.Tensor:
        """Return the model that each client would train, ``[B, P]``."""
        params = self.params if self.personal is None else self.personal.join(self.params, self._memory.gather(ids))
        return params.expand(len(ids), -1)
