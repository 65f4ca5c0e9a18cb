"""Compress updates to fewer bits per element: bfloat16, levels (QSGD), and signs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from turnout.base.guard import ChangesDownloadType, Compression
from turnout.core.random import fold, uniform
from turnout.core.ranges import Count
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return integers below ``2^bits``, ``[B, P]``, as bytes ``[B, ceil(P bits / 8)]``; `bits` is 1, 2, 4 or 8."""
    per_byte = 8 // bits
    codes = torch.nn.functional.pad(codes.to(torch.uint8), (0, -codes.shape[1] % per_byte)).view(
        len(codes), -1, per_byte
    )
    packed = codes[:, :, 0].clone()
    for i in range(1, per_byte):
        packed |= codes[:, :, i] << (i * bits)
    return packed


def unpack(packed: torch.Tensor, bits: int, number: int) -> torch.Tensor:
    """Return the integers from which `pack` made bytes, uint8 ``[B, number]``."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    return ((packed[:, :, None] >> shifts) & (2**bits - 1)).flatten(1)[:, :number]


@dataclass(frozen=True)
class BFloat16(Compression, ChangesDownloadType, name="bfloat16"):
    """Compress updates, and the model that clients receive, to bfloat16.

    bfloat16 has the range of float32, 8 bits of precision and 2 bytes. Clients train and measure from the rounded
    model. The server keeps the model in full precision, and adds updates to that.

    Args:
        error_feedback: whether clients add what rounding lost to their next update; see `Compression`.
        down: whether the model, and what else the server broadcasts, is compressed, too.

    Example:
        >>> from turnout.base.trial import guarded, report
        >>> guarded(BFloat16(), report([[1.0, 0.3333]]))
        [[1.0, 0.334]]

    Reference: Kalamkar et al., "A study of BFLOAT16 for deep learning training", 2019.
    """

    down: bool = True

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task with a rounded model, and with other broadcast tensors rounded."""
        if not self.down:
            return task
        dtype = task.params.dtype
        shared = {name: value.bfloat16().to(dtype) for name, value in task.shared.items()}
        return replace(task, params=task.params.bfloat16().to(dtype), shared=shared)

    def broadcast_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return bfloat16 if the model is compressed."""
        return torch.bfloat16 if self.down else dtype

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return the rounded numbers, ``[B, P]``."""
        return {"value": rows.bfloat16()}

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the numbers in the type of the model, ``[B, P]``."""
        return code["value"].to(dtype)


@dataclass(frozen=True)
class Qsgd(Compression, name="qsgd"):
    """Compress updates by unbiased stochastic rounding to a few levels (QSGD).

    Each number x is sent as ``r sign(x) l / s``. Here ``s = 2^(bits - 1) - 1`` is the number of positive levels. r is
    the scale of the number's bucket: the largest absolute value in it, as in the paper's experiments, or its Euclidean
    norm, as in the paper's theory. The level l is ``s |x| / r``, rounded up or down at random so that the mean is x.

    A number takes `bits` bits on the wire, and each bucket one number more, its scale. The Elias code of the paper,
    whose length depends on the data, is not used.

    Args:
        error_feedback: whether clients add what was lost to their next update; see `Compression`. QSGD is unbiased and
            does not need it, so it is off by default.
        bits: bits of a number, including the sign: 2, 4 or 8.
        bucket: number of elements in a bucket, >= 1. Smaller buckets have less variance and more scales to send.
        norm: scale of a bucket: ``"max"`` or ``"l2"``.

    Raises:
        ConfigurationError: if an option is out of range.

    Example:
        With 2 bits, each number becomes -1, 0 or 1 times the largest absolute value of its bucket:

        >>> from turnout.base.trial import guarded, report
        >>> guarded(Qsgd(bits=2), report([[4.0, 1.0, -2.0, 3.0]]))
        [[4.0, 0.0, -4.0, 4.0]]

    Reference: Alistarh et al., "QSGD: communication-efficient SGD via gradient quantization and encoding", NeurIPS
    2017.
    """

    error_feedback: bool = False
    bits: Literal[2, 4, 8] = 4
    bucket: Count = 512
    norm: Literal["max", "l2"] = "max"

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return packed levels, and the scale of each bucket, ``[B, ceil(P / bucket)]``."""
        buckets = self._bucketed(rows)
        size = buckets.abs().amax(dim=2, keepdim=True)
        if self.norm == "l2":  # norm of numbers in [-1, 1], so that no square overflows or underflows
            length = torch.linalg.vector_norm(buckets / size.where(size > 0, 1.0), dim=2, keepdim=True)
            size = (size * length).clamp(max=torch.finfo(rows.dtype).max)
        levels = 2 ** (self.bits - 1) - 1
        exact = (buckets / size.where(size > 0, 1.0) * levels).flatten(1)[:, : rows.shape[1]]
        level = _rounded(exact.abs(), keys).copysign_(exact)
        return {"level": pack(level.add_(levels), self.bits), "size": size[:, :, 0]}

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the levels times the scale of their bucket, ``[B, P]``."""
        levels = 2 ** (self.bits - 1) - 1
        signed = unpack(code["level"], self.bits, num_params).to(dtype).sub_(levels).div_(levels)
        return (self._bucketed(signed) * code["size"].to(dtype)[:, :, None]).flatten(1)[:, :num_params]

    def _bucketed(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows ``[B, P]`` as ``[B, ceil(P / bucket), bucket]``, padded with zeros."""
        padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % self.bucket))
        return padded.view(len(rows), -1, self.bucket)


def _rounded(values: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Round numbers >= 0, ``[B, P]``, up with the probability of their fraction, and down otherwise.

    A fraction is compared with a random number. A draw gives the first 16 bits of four random numbers. Only if they
    equal those of the fraction, for 1 of 65,536 numbers, 53 more bits are drawn, so that small numbers keep their mean:
    it is exact to 2^-69.
    """
    # Random bits are a function of (key, column), so that rounding depends neither on the chunk nor on the device.
    down = values.floor()
    fraction = (values - down).mul_(65536.0)  # exact, like all steps before the comparison
    bits = fold(keys[:, None], torch.arange(-(-values.shape[1] // 4), device=keys.device))
    first, whole = bits.view(torch.int16)[:, : values.shape[1]].to(values.dtype) + 32768.0, fraction.floor()
    up = first < whole
    row, column = (first == whole).nonzero(as_tuple=True)
    up[row, column] = uniform(fold(~keys[row], column)) < (fraction - whole)[row, column]
    return down.add_(up)


@dataclass(frozen=True)
class Sign(Compression, name="sign"):
    """Compress updates to signs, scaled by the mean absolute value (EF-SignSGD, Algorithm 1).

    A vector x is sent as ``mean |x| sign(x)``: one bit for each element, and one number, the mean of the absolute
    values. The sign of zero is positive.

    Args:
        error_feedback: whether clients add what was lost to their next update; see `Compression`. Signs are biased, so
            keep it on.

    Example:
        >>> from turnout.base.trial import guarded, report
        >>> guarded(Sign(), report([[4.0, 1.0, -2.0, 3.0]]))
        [[2.5, 2.5, -2.5, 2.5]]

    Reference: Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019,
    Algorithm 1.
    """

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return the packed signs, and the mean absolute value of each row."""
        return {"sign": pack(rows >= 0, 1), "size": rows.abs().mean(dim=1, keepdim=True)}

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the mean absolute value with each sign, ``[B, P]``."""
        size = code["size"].to(dtype)
        return torch.where(unpack(code["sign"], 1, num_params).bool(), size, -size)
