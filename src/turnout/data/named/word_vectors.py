"""Look up word vectors, an embedding that is not trained."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch

from turnout.core.checks import DataError
from turnout.data.transforms import Transform


@dataclass(frozen=True, eq=False)
class WordVectors(Transform):
    """Look up words in a fixed table, ``x <- table[x]``.

    An embedding that is not trained is neither sent nor averaged, so it is part of the data and not of the model.

    Attributes:
        table: float32 ``[V, D]``, a vector for each word.

    Raises:
        DataError: if a table is not float32 ``[V, D]``, or inputs are not row numbers ``[n, T]``.
    """

    random: ClassVar[bool] = False
    enlarges: ClassVar[bool] = True
    table: np.ndarray

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or self.table.dtype != np.float32:
            raise DataError(
                f"WordVectors: got a table of {self.table.dtype} {list(self.table.shape)}, needed float32 of shape [V, D]"
            )

    def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """See `Transform.apply`; inputs are ``[n, T]`` and become ``[n, T, D]``."""
        if x.ndim != 2 or x.is_floating_point():
            raise DataError(
                f"WordVectors needs row numbers of its table [n, T], got inputs of {x.dtype} {list(x.shape)}"
            )
        return _on_device(self, x.device)[x.long()]


@lru_cache(maxsize=4)
def _on_device(words: WordVectors, device: torch.device) -> torch.Tensor:
    """Return the table on a device; cached, so that it is copied only once."""
    return torch.from_numpy(words.table).to(device)
