"""Draw the Gaussian noise of the server."""

from __future__ import annotations

import numpy as np
import torch

from turnout.core.random import stream
from turnout.core.types import Federation


def gaussian(purpose: str, federation: Federation, release: int, number: int) -> torch.Tensor:
    """Draw the noise of a release, ``[number]``, a function of its index and of the seed or the server's secret.

    Between real machines, where clients know the seed, the server has a secret. Numbers are drawn by NumPy's Philox with a
    128-bit key. A torch generator has a 32-bit seed on a CPU: a secret could be found by exhaustive search, and two releases
    of a simulation would have the same noise once in 2^32 pairs. On a GPU it has 64 bits, and a simulation draws there.
    Neither generator is cryptographic, and the numbers are floating point.
    """
    if federation.secret is None and federation.device.type != "cpu":
        generator = torch.Generator(federation.device).manual_seed(
            stream(purpose, federation.seed, release) & (2**63 - 1)
        )
        return torch.randn(number, generator=generator, device=federation.device, dtype=federation.dtype)
    origin = federation.seed if federation.secret is None else federation.secret
    entropy = np.random.SeedSequence((origin, stream(purpose) & (2**63 - 1), release))
    drawn = np.random.Generator(np.random.Philox(entropy)).standard_normal(number)
    return torch.from_numpy(drawn).to(federation.device, federation.dtype)
