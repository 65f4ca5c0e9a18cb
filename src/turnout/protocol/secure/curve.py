"""Compute with points of Curve25519 in its Edwards form, for proofs about keys of X25519.

The arithmetic is that of RFC 8032, section 6. It does not take constant time: use it with keys of one round only.
"""

from __future__ import annotations

from functools import cache

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
"""Order of the subgroup that the base point generates."""

Point = tuple[int, int, int, int]
"""Extended coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z and T = XY/Z."""

_D = -121665 * pow(121666, -1, PRIME) % PRIME
_ROOT = pow(2, (PRIME - 1) // 4, PRIME)  # of -1
ZERO: Point = (0, 1, 1, 0)


def add(one: Point, other: Point) -> Point:
    """Return the sum of two points."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % PRIME
    b = (one[1] + one[0]) * (other[1] + other[0]) % PRIME
    c, d = 2 * one[3] * other[3] * _D % PRIME, 2 * one[2] * other[2] % PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % PRIME, g * h % PRIME, f * g % PRIME, e * h % PRIME


def multiply(scalar: int, point: Point) -> Point:
    """Return a point added to itself `scalar` times, ``scalar >= 0``."""
    total = ZERO
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point, scalar = add(point, point), scalar >> 1
    return total


def negative(point: Point) -> Point:
    """Return the point -P."""
    x, y, z, t = point
    return -x % PRIME, y, z, -t % PRIME


def equal(one: Point, other: Point) -> bool:
    """Return whether two points are the same."""
    return not ((one[0] * other[2] - other[0] * one[2]) % PRIME or (one[1] * other[2] - other[1] * one[2]) % PRIME)


def encode(point: Point) -> bytes:
    """Return a point as 32 bytes: y, and the lowest bit of x."""
    inverse = pow(point[2], -1, PRIME)
    x, y = point[0] * inverse % PRIME, point[1] * inverse % PRIME
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decode(text: bytes) -> Point | None:
    """Return the point of 32 bytes; None if there is none."""
    number = int.from_bytes(text, "little")
    return _with_y(number & (2**255 - 1), number >> 255)


def lift(key: bytes) -> Point | None:
    """Return the point, with even x, of a public key of X25519; None for a key on the twist of the curve."""
    u = int.from_bytes(key, "little") & (2**255 - 1)
    if (u + 1) % PRIME == 0:
        return None
    return _with_y((u - 1) * pow(u + 1, -1, PRIME) % PRIME, 0)


def montgomery(point: Point) -> bytes:
    """Return the coordinate u of a point other than zero, as X25519 encodes it: ``u = (1 + y) / (1 - y)``."""
    return ((point[2] + point[1]) * pow(point[2] - point[1], -1, PRIME) % PRIME).to_bytes(32, "little")


@cache
def base() -> Point:
    """Return the base point, whose coordinate u is 9."""
    point = lift((9).to_bytes(32, "little"))
    assert point is not None
    return point


def _with_y(y: int, low_bit: int) -> Point | None:
    """Return the point with a coordinate y, and with this lowest bit of x."""
    if y >= PRIME:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if (x * x - square) % PRIME:
        x = x * _ROOT % PRIME
    if (x * x - square) % PRIME or (x == 0 and low_bit):
        return None
    x = PRIME - x if x & 1 != low_bit else x
    return x, y, 1, x * y % PRIME
