"""Send the largest numbers of a vector (top-k)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import State
from turnout.pieces.base.compression import Compression
from turnout.pieces.guard.compression import check_share, share_of

_LARGEST = torch.iinfo(torch.int32).max


@dataclass(frozen=True)
class TopK(Compression, name="top_k"):
    """Send the k numbers of largest absolute value, with their places: 4 bytes for each place beside the number.

    Args:
        share: k as a share of P, in (0, 1]; at least one number is sent.

    Example:
        >>> from turnout.pieces.base.trial import guarded, report
        >>> guarded(TopK(share=0.5), report([[4.0, 1.0, -2.0, 3.0]]))
        [[4.0, 0.0, 0.0, 3.0]]

    Raises:
        ConfigurationError: in training, for a model of 2^31 parameters or more, whose places do not fit.

    Reference: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
    """

    share: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.share)

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return places and values, ``[B, k]``."""
        if rows.shape[1] > _LARGEST:
            raise ConfigurationError(
                f"top_k: places have 4 bytes, and the model {rows.shape[1]:,} parameters: write qsgd"
            )
        column = rows.abs().topk(share_of(self.share, rows.shape[1]), dim=1, sorted=False).indices
        return {"place": column.to(torch.int32), "value": rows.gather(1, column)}

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the values in their places, and zeros."""
        zeros = code["value"].new_zeros((len(code["value"]), num_params), dtype=dtype)
        return zeros.scatter_(1, code["place"].long(), code["value"].to(dtype))
