"""The Gaussian noise of the server."""

from __future__ import annotations

import torch

from turnout.core.random import stream
from turnout.core.types import Federation


def gaussian(purpose: str, federation: Federation, release: int, number: int) -> torch.Tensor:
    """Draw the noise of a release, ``[number]``: a function of the seed and of how many there were.

    The generator is torch's, which is made for simulation and not for cryptography, and its numbers are floating point.
    """
    generator = torch.Generator(federation.device).manual_seed(stream(purpose, federation.seed, release) & (2**63 - 1))
    return torch.randn(number, generator=generator, device=federation.device, dtype=federation.dtype)
