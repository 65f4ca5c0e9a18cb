"""Prove what two keys of X25519 agree on, to show a third party that shares sealed with it cannot be read."""

from __future__ import annotations

import hashlib
import secrets

from turnout.protocol.secure import curve
from turnout.protocol.secure.curve import ORDER, Point

EVIDENCE_BYTES = 96
"""Bytes of a proof: the point that two keys agree on, and two numbers."""


def prove(key: bytes, other: bytes) -> bytes:
    """Return the point that a private key and another client's public key agree on, with a proof that it is this point.

    A is the public key, with ``A = a B`` for the base point B, and Q the part of the other public key in the subgroup that
    B generates. The secret of X25519 is the coordinate u of ``K = a Q``. The proof shows that A and K have the same
    logarithm a with respect to B and Q (Chaum and Pedersen), non-interactive by a hash::

        e = H(A, Q, K, k B, k Q)    s = k + e a

    with a random k. It reveals K and nothing else about a, so that a proof opens what the two clients have sealed for each
    other, and no message of any other client.

    Args:
        key: private key, 32 bytes.
        other: public key of the other client, which is on the curve.

    Reference: Chaum and Pedersen, "Wallet databases with observers", CRYPTO 1992.
    """
    number = int.from_bytes(key, "little")
    number = (number & (2**255 - 8)) | 2**254  # as RFC 7748 decodes a private key
    own, theirs = curve.multiply(number, curve.base()), _main(other)
    assert theirs is not None
    if curve.encode(own)[31] >> 7:  # the public key has no sign: everybody takes the point with even x
        number, own = -number % ORDER, curve.negative(own)
    agreed, blind = curve.multiply(number % ORDER, theirs), 1 + secrets.randbelow(ORDER - 1)
    commitments = curve.multiply(blind, curve.base()), curve.multiply(blind, theirs)
    challenge = _challenge(own, theirs, agreed, *commitments)
    answer = (blind + challenge * number) % ORDER
    return curve.encode(agreed) + challenge.to_bytes(32, "little") + answer.to_bytes(32, "little")


def proven(evidence: bytes, public: bytes, other: bytes) -> bytes | None:
    """Return the secret of X25519 that two public keys agree on; None if the proof is invalid.

    Args:
        evidence: what `prove` returned.
        public: public key of the client that proves.
        other: public key of the other client.
    """
    agreed, own, theirs = curve.decode(evidence[:32]), curve.lift(public), _main(other)
    challenge, answer = (int.from_bytes(evidence[begin : begin + 32], "little") for begin in (32, 64))
    if agreed is None or own is None or theirs is None or max(challenge, answer) >= ORDER:
        return None
    if curve.equal(agreed, curve.ZERO) or not curve.equal(curve.multiply(ORDER, agreed), curve.ZERO):
        return None
    commitments = _minus(answer, curve.base(), challenge, own), _minus(answer, theirs, challenge, agreed)
    return curve.montgomery(agreed) if _challenge(own, theirs, agreed, *commitments) == challenge else None


def _main(public: bytes) -> Point | None:
    """Return the part of a public key in the subgroup that the base point generates; None if there is none."""
    point = curve.lift(public)
    return None if point is None else curve.multiply(pow(8, -1, ORDER), curve.multiply(8, point))


def _minus(scalar: int, point: Point, other_scalar: int, other: Point) -> Point:
    """Return ``scalar point - other_scalar other``."""
    return curve.add(curve.multiply(scalar, point), curve.negative(curve.multiply(other_scalar, other)))


def _challenge(*points: Point) -> int:
    """Return the hash of points as a number modulo the order."""
    content = b"turnout evidence " + b"".join(curve.encode(point) for point in points)
    return int.from_bytes(hashlib.sha512(content).digest(), "little") % ORDER
