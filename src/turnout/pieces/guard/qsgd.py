"""Round numbers at random to a few levels (QSGD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from turnout.core.checks import count, refuse
from turnout.core.random import fold, uniform
from turnout.core.types import State
from turnout.pieces.base.compression import Compression
from turnout.pieces.guard.compression import pack, unpack


@dataclass(frozen=True)
class Qsgd(Compression, name="qsgd"):
    """Round each number of a bucket to ``r sign(x) l / s``, l up or down at random so that its mean is x.

    r is the largest absolute value of the bucket, as in the paper's experiments, or its Euclidean norm, as in its theory;
    ``s = 2^(bits - 1) - 1``. A number takes `bits` on the wire, a bucket one float more; the paper's Elias code, whose
    length depends on the numbers, is not used.

    Args:
        bits: 2, 4 or 8.
        bucket: numbers in a bucket.
        norm: ``"max"`` or ``"l2"``.
        error_feedback: QSGD is unbiased and has none, so it is off unless asked for.

    Example:
        With 2 bits a number is -1, 0 or 1 times the largest of its bucket:

        >>> from turnout.pieces.base.trial import guarded, report
        >>> guarded(Qsgd(bits=2), report([[4.0, 1.0, -2.0, 3.0]]))
        [[4.0, 0.0, -4.0, 4.0]]

    Reference: Alistarh et al., "QSGD: communication-efficient SGD via gradient quantization and encoding", NeurIPS 2017.
    """

    error_feedback: bool = False
    bits: int = 4
    bucket: int = 512
    norm: Literal["max", "l2"] = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits not in (2, 4, 8) or isinstance(self.bits, bool):
            raise refuse("bits", given=self.bits, needed="2, 4 or 8")
        count("bucket", self.bucket)
        if self.norm not in ("max", "l2"):
            raise refuse("norm", given=self.norm, needed="'max' or 'l2'")

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return packed levels and the size of each bucket, ``[B, ceil(P / bucket)]``."""
        buckets = self._bucketed(rows)
        size = buckets.abs().amax(dim=2, keepdim=True)
        if self.norm == "l2":  # of numbers between -1 and 1, so that no square overflows or is lost
            length = torch.linalg.vector_norm(buckets / size.where(size > 0, 1.0), dim=2, keepdim=True)
            size = (size * length).clamp(max=torch.finfo(rows.dtype).max)
        levels = 2 ** (self.bits - 1) - 1
        exact = (buckets / size.where(size > 0, 1.0) * levels).flatten(1)[:, : rows.shape[1]]
        level = _rounded(exact.abs(), keys).copysign_(exact)
        return {"level": pack(level.add_(levels), self.bits), "size": size[:, :, 0]}

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the levels times the size of their bucket."""
        levels = 2 ** (self.bits - 1) - 1
        signed = unpack(code["level"], self.bits, num_params).to(dtype).sub_(levels).div_(levels)
        return (self._bucketed(signed) * code["size"].to(dtype)[:, :, None]).flatten(1)[:, :num_params]

    def _bucketed(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows ``[B, P]`` as ``[B, ceil(P / bucket), bucket]``, with zeros behind them."""
        padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % self.bucket))
        return padded.view(len(rows), -1, self.bucket)


def _rounded(values: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Round numbers >= 0, ``[B, P]``, up with the probability of their fraction, and down otherwise.

    A fraction is compared with a random number, whose first 16 bits come four at a time. Only where they equal those of the
    fraction, at 1 of 65,536 numbers, 53 more are drawn, so that small numbers keep their mean: it is exact to 2^-69.
    """
    # Random bits are a function of (key, column), so that a row is rounded alike in any chunk and on any device.
    down = values.floor()
    fraction = (values - down).mul_(65536.0)  # exact, as every step but the comparison
    bits = fold(keys[:, None], torch.arange(-(-values.shape[1] // 4), device=keys.device))
    first, whole = bits.view(torch.int16)[:, : values.shape[1]].to(values.dtype) + 32768.0, fraction.floor()
    up = first < whole
    row, column = (first == whole).nonzero(as_tuple=True)
    up[row, column] = uniform(fold(~keys[row], column)) < (fraction - whole)[row, column]
    return down.add_(up)
