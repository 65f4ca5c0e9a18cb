"""Pack integers into bytes, and check the share of a vector that a compression sends."""

from __future__ import annotations

import torch


def share_of(share: float, num_params: int) -> int:
    """Return the number of elements in a share of P, at least one."""
    return max(1, round(share * num_params))


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
