"""Compress updates to their largest elements (top-k)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base.compression import Compression
from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Share
from turnout.core.types import State
from turnout.pieces.guard.compression import share_of

_LARGEST = torch.iinfo(torch.int32).max


@dataclass(frozen=True)
class TopK(Compression, name="top_k"):
    """Compress updates to the k elements of largest absolute value (top-k).

    Values are sent with their indices, 4 bytes each.

    Args:
        error_feedback: whether clients add what was not sent to their next update; see `Compression`.
        share: k as a share of the P elements, in (0, 1]. At least one element is sent.

    Raises:
        ConfigurationError: if `share` is outside (0, 1]; in training, if the model has 2^31 parameters or more, for
            which indices of 4 bytes are too short.

    Example:
        >>> from turnout.base.trial import guarded, report
        >>> guarded(TopK(share=0.5), report([[4.0, 1.0, -2.0, 3.0]]))
        [[4.0, 0.0, 0.0, 3.0]]

    Reference: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
    """

    share: Share = 0.01

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return indices and values, ``[B, k]``."""
        if rows.shape[1] > _LARGEST:
            raise ConfigurationError(
                f"top_k: indices of 4 bytes are too short for a model of {rows.shape[1]:,} parameters: write qsgd"
            )
        column = rows.abs().topk(share_of(self.share, rows.shape[1]), dim=1, sorted=False).indices
        return {"place": column.to(torch.int32), "value": rows.gather(1, column)}

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the values at their indices, and zeros elsewhere, ``[B, P]``."""
        zeros = code["value"].new_zeros((len(code["value"]), num_params), dtype=dtype)
        return zeros.scatter_(1, code["place"].long(), code["value"].to(dtype))
