"""Release sums of a private run: round them to a grid, and add Gaussian noise that is rounded to the same grid.

Noise in floating point does not hide what it is added to: which floating-point numbers a sum with noise can be depends on
the sum, so that one published number can reveal it (Mironov, "On significance of the least significant bits for differential
privacy", CCS 2012). Every number that leaves a private run is therefore a multiple of a grid whose step depends on public
settings alone, and every multiple is possible for all data. `GridNoise.released` is the only way out of a server.

The released sum is ``g (round(S / g) + round(sigma y / g))``, where S is the sum, y is standard Gaussian, and g is the step.
The first term is an integer, so this is the rounding of a Gaussian mechanism for the rounded sum, and rounding is
post-processing. Its epsilon is that of the Gaussian mechanism, with or without sampling. That of a discrete Gaussian
is larger, and unknown with sampling (Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy",
NeurIPS 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.random import fold, stream
from turnout.core.types import Federation
from turnout.privacy.gaussian import Words, rounded_gaussian

_SPARE = 20  # rounding adds at most 2^-19 to the sensitivity
_MOST_BITS = 48  # a random number has 53


@dataclass(frozen=True)
class GridNoise:
    """The noise of a released vector, and its grid.

    For a sum of P numbers that one client changes by at most Delta, in Euclidean norm, the deviation and the step are::

        sigma = z (Delta (1 + 2^-20) + 2 sqrt(n) g)
        g = 2^-m sigma,  m = min(20 + ceil(log2(max(1, z) sqrt(n))), 48)

    Rounding moves each number by at most half a step, and the difference of the sums of two neighboring federations by at
    most ``sqrt(P) g``. If the noise of T rounds is correlated, what it takes from earlier rounds is rounded as well, which
    moves all differences together by at most ``sqrt(n) g`` more, ``n = P T``. The factor ``1 + 2^-20`` is for the error of up
    to 65,536 summands in float64.

    Attributes:
        multiplier: z, the ratio of the deviation to the sensitivity that the accountant assumes, > 0.
        sensitivity: Delta, > 0.
        numbers: n, the number of numbers that are rounded, in all rounds for which the noise is correlated.

    Example:
        >>> noise = GridNoise(multiplier=1.0, sensitivity=1.0, numbers=1024)
        >>> noise.bits, noise.step == noise.deviation / 2**25, round(noise.deviation, 5)
        (25, True, 1.0)
    """

    multiplier: float
    sensitivity: float
    numbers: int = 1

    @property
    def bits(self) -> int:
        """m, the logarithm of the number of steps in a deviation."""
        return min(_SPARE + math.ceil(math.log2(max(1.0, self.multiplier)) + 0.5 * math.log2(self.numbers)), _MOST_BITS)

    @property
    def deviation(self) -> float:
        """sigma, the standard deviation of the noise."""
        share = 1.0 - 2.0 * self.multiplier * math.sqrt(self.numbers) * 2.0**-self.bits
        return self.multiplier * self.sensitivity * (1.0 + 2.0**-_SPARE) / share

    @property
    def step(self) -> float:
        """g, the distance of two neighboring numbers of the grid."""
        return self.deviation * 2.0**-self.bits

    def drawn(self, words: Words, number: int, device: torch.device) -> torch.Tensor:
        """Draw noise in steps, integers as float64 ``[number]``."""
        return rounded_gaussian(words, number, self.bits, device)

    def released(self, total: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return a sum, float64, with noise in steps: multiples of the step.

        Above 2^53, float64 rounds the sum of the two integers, but from the exact sum, which has all integers as values.
        Zero is released without a sign, which would be that of a small sum if the noise is -0, as correlated noise can be.
        """
        return ((total / self.step).round() + noise + 0.0) * self.step

    def noised(self, total: torch.Tensor, purpose: str, federation: Federation, release: int) -> torch.Tensor:
        """Return a sum, float64 ``[n]``, with independent noise for a purpose and the index of a release."""
        return self.released(total, self.drawn(server_words(purpose, federation, release), len(total), total.device))


def server_words(purpose: str, federation: Federation, release: int) -> Words:
    """Return the random bits of a release, a function of its index and of the seed or the server's secret.

    Between real machines, where clients know the seed, the server has a secret. Numbers are drawn by NumPy's Philox with a
    128-bit key. In a simulation on a GPU they are drawn there, with a 64-bit key. Neither generator is cryptographic.
    """
    if federation.secret is None and federation.device.type != "cpu":
        key = stream(purpose, federation.seed, release)
        return lambda positions, draw: fold(stream("words", key, draw), positions)
    origin = federation.seed if federation.secret is None else federation.secret
    entropy = np.random.SeedSequence((origin, stream(purpose) & (2**63 - 1), release))
    philox = np.random.Philox(entropy)
    return lambda positions, _: torch.from_numpy(philox.random_raw(len(positions)).view(np.int64)).to(positions.device)


def client_words(keys: torch.Tensor, number: int) -> Words:
    """Return the random bits of clients in a simulation, for vectors of a length, by a key of each client ``[B]``."""
    return lambda positions, draw: fold(
        keys[torch.div(positions, number, rounding_mode="floor")], positions % number, torch.full_like(keys[:1], draw)
    )
