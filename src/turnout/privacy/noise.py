"""Draw the Gaussian noise of the server."""

from __future__ import annotations

import numpy as np
import torch

from turnout.core.random import stream
from turnout.core.types import Federation


def gaussian(purpose: str, federation: Federation, release: int, number: int) -> torch.Tensor:
    """Draw the noise of a release, ``[number]``: a function of how many there were, and of the seed or the server's secret.

    Between real machines, where clients know the seed, there is a secret. The numbers are NumPy's, of Philox with a key of
    128 bits. A generator of torch takes no more than 32 on a CPU: a secret could be tried out, and two releases of a
    simulation would have the same noise once in 2^32 pairs. On a GPU it takes 64, and a simulation draws there.
    Neither is made for cryptography, and the numbers are floating point.
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
