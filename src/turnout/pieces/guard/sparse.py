"""Compress updates to some of their elements: the largest (top-k), or randomly chosen ones (random-k)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from turnout.base.guard import Compression
from turnout.core.checks import ConfigurationError
from turnout.core.random import fold
from turnout.core.ranges import Share
from turnout.core.types import State


def share_of(share: float, num_params: int) -> int:
    """Return the number of elements in a share of P, at least one."""
    return max(1, round(share * num_params))


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


@dataclass(frozen=True)
class RandomK(Compression, name="random_k"):
    """Compress updates to k randomly chosen elements (random-k).

    Indices are a function of (seed, version, client), which the server knows, so only values are sent. Without error
    feedback, values are multiplied by ``P / k``, so that the decoded vector is unbiased.

    Args:
        error_feedback: whether clients add what was not sent to their next update; see `Compression`.
        share: k as a share of the P elements, in (0, 1]. At least one element is sent.

    Raises:
        ConfigurationError: if `share` is outside (0, 1].

    Example:
        Half of the elements, multiplied by 2 without error feedback:

        >>> from turnout.base.trial import guarded, report
        >>> guarded(RandomK(error_feedback=False, share=0.5), report([[1.0, 2.0, 3.0, 4.0]]))
        [[0.0, 4.0, 6.0, 0.0]]

    Reference: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018; Wangni et al., "Gradient
    sparsification for communication-efficient distributed optimization", NeurIPS 2018.
    """

    share: Share = 0.01

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return the values, ``[B, k]``."""
        return self._values(rows, self._places(rows.shape[1], keys))

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the values at their indices, and zeros elsewhere, ``[B, P]``."""
        zeros = code["value"].new_zeros((len(keys), num_params), dtype=dtype)
        return zeros.scatter_(1, self._places(num_params, keys), code["value"].to(dtype))

    def sent(self, rows: torch.Tensor, keys: torch.Tensor, memory: State | None) -> tuple[State, torch.Tensor]:
        """Return the values, and the rows with zeros elsewhere; indices are computed once for both."""
        columns = self._places(rows.shape[1], keys)
        code = self._values(rows, columns)
        return code, torch.zeros_like(rows).scatter_(1, columns, code["value"])

    def _values(self, rows: torch.Tensor, columns: torch.Tensor) -> State:
        value = rows.gather(1, columns)
        return {"value": value if self.error_feedback else value * (rows.shape[1] / value.shape[1])}

    def _places(self, num_params: int, keys: torch.Tensor) -> torch.Tensor:
        """Return the indices of the values of each row, int64 ``[B, k]``, all different."""
        return permuted(torch.arange(share_of(self.share, num_params), device=keys.device), keys[:, None], num_params)


def permuted(columns: torch.Tensor, keys: torch.Tensor, number: int) -> torch.Tensor:
    """Return the values of random permutations of ``0, ..., number - 1``, one for each key, at some positions.

    Each permutation is a Feistel network on integers of sufficiently many bits. A value that is too large is permuted
    again until it is not (cycle walking).

    Args:
        columns: positions, int64 ``[k]``.
        keys: keys of the permutations, int64 ``[B, 1]``.
        number: number of permuted integers.

    Example:
        >>> permuted(torch.arange(6), torch.tensor([[1], [2]]), 6).sort(dim=1).values.tolist()
        [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]
    """
    if keys.device.type != "cpu":
        return _permuted(columns, keys, number)
    # NumPy takes a third of torch's time for so few numbers.
    return torch.from_numpy(_permuted(columns.numpy(), keys.numpy(), number))


def _permuted(columns: Any, keys: Any, number: int) -> Any:
    """Return the values of `permuted`, of tensors or of NumPy arrays."""
    half = max(1, ((number - 1).bit_length() + 1) // 2)
    rounds = [fold(keys, 0 * keys + i) for i in range(4 if half > 5 else 8)]  # short halves need more rounds to mix

    def once(at: Any, rounds: list[Any]) -> Any:
        for key in rounds:
            low = at & (2**half - 1)
            at = (low << half) | ((at >> half) ^ (fold(key, low) & (2**half - 1)))
        return at

    result = once(columns + 0 * keys, rounds)
    where: Any = torch.where if isinstance(keys, torch.Tensor) else np.where
    while len((beyond := where(result >= number))[0]):
        result[beyond] = once(result[beyond], [key[beyond[0], 0] for key in rounds])
    return result
