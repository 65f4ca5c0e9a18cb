"""Compare the values of a function with those of its replacement."""

from __future__ import annotations

from typing import Any

import torch


def agree(values: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Return whether two lists of tensors are the same: bit for bit on CPUs, up to rounding on a GPU.

    On a GPU, operations that add in parallel may round differently in every call.
    """

    def same(one: torch.Tensor, other: torch.Tensor) -> bool:
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return alike(one, other) if one.device.type == "cuda" else same_bits([one], [other])

    return len(values) == len(others) and all(map(same, values, others))


def same_bits(values: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Return whether tensors have the same bits. -0.0 differs from 0.0; all NaNs are equal."""

    def same(a: torch.Tensor, b: torch.Tensor) -> bool:
        equal = (a == b) & (a.signbit() == b.signbit())
        return bool((equal | (a.isnan() & b.isnan())).all())

    return all(a.shape == b.shape and same(a, b) for a, b in zip(values, others, strict=True))


def alike(one: Any, other: Any) -> bool:
    """Return whether two values agree up to rounding of sums in another order; NaN equals NaN.

    The tolerance of an entry is relative to the largest entry of its row, which is a client or a layer: a large row
    must not hide a wrong small one.
    """
    if not isinstance(one, torch.Tensor) or not one.is_floating_point():
        return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    if one.shape != other.shape:
        return False
    if not one.numel():
        return True
    near = torch.finfo(one.dtype).eps ** 0.5
    size = one.nan_to_num(0.0, 0.0, 0.0).abs()
    largest = size.flatten(1).amax(dim=1) if one.dim() > 1 else size.amax()
    largest = largest.view(-1, *[1] * (one.dim() - 1)) if one.dim() > 1 else largest
    return bool(
        (one.isclose(other, rtol=near, atol=0.0, equal_nan=True) | ((one - other).abs() <= near * largest)).all()
    )
