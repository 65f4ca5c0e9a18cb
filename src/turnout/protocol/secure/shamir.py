"""Shamir's secret sharing of 32 bytes over a prime field."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from turnout.core.checks import count, refuse

PRIME = 2**256 + 297
"""The smallest prime above 2^256, so that every secret of 32 bytes is an element of the field."""

SHARE_BYTES = 33


def share(secret: bytes, threshold: int, points: Sequence[int]) -> dict[int, bytes]:
    """Share a secret among points: any `threshold` shares reconstruct it, and fewer reveal nothing about it.

    The share of point x is ``f(x) = s + a_1 x + ... + a_{t-1} x^{t-1} mod p`` with random coefficients a.

    Args:
        secret: 32 bytes.
        threshold: t, at most the number of points.
        points: x, different integers >= 1.

    Returns:
        The share of each point, 33 bytes.

    Reference: Shamir, "How to share a secret", Communications of the ACM 22(11), 1979.
    """
    count("threshold", threshold)
    if len(secret) != 32:
        raise refuse("secret", given=f"{len(secret)} bytes", needed="32 bytes")
    if len(set(points)) != len(points) or any(point < 1 for point in points):
        raise refuse("points", given=list(points), needed="different whole numbers >= 1")
    if threshold > len(points):
        raise refuse("threshold", given=threshold, needed=f"at most the number of points, {len(points)}")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {point: value(coefficients, point).to_bytes(SHARE_BYTES, "big") for point in points}


def value(coefficients: list[int], x: int) -> int:
    """Evaluate f(x) by Horner's scheme."""
    total = 0
    for coefficient in reversed(coefficients):
        total = (total * x + coefficient) % PRIME
    return total


def reconstruct(shares: Mapping[int, bytes]) -> bytes:
    """Reconstruct the secret from shares: f(0) by Lagrange's formula. All shares are used.

    Raises:
        ConfigurationError: if the result is not a secret, which is almost certain for shares of different secrets and
            for too few shares.
    """
    total = 0
    for x, text in shares.items():
        above = below = 1
        for other in shares:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        total += int.from_bytes(text, "big") * above * pow(below, -1, PRIME)
    secret = total % PRIME
    if secret >= 2**256:
        raise refuse("shares", given=f"{len(shares)} that give no 32 bytes", needed="shares of one secret")
    return secret.to_bytes(32, "big")
