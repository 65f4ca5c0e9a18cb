"""The messages between clients and server of a secure sum, and its errors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from turnout.protocol.secure.shamir import SHARE_BYTES

KEY_BYTES = 32
"""Bytes of a public key."""
COMMITMENT_BYTES = 16
"""Bytes of the commitment to a share, by which the server verifies the share that a neighbor opens."""
SEALED_BYTES = 2 * SHARE_BYTES + 28 + 2 * COMMITMENT_BYTES
"""Bytes of two shares encrypted for a neighbor, with nonce (12), tag (16) and two commitments."""


def commitment(share: bytes) -> bytes:
    """Return the commitment to a share: its hash, which reveals nothing because a share has 256 random bits."""
    return hashlib.sha256(b"turnout share " + share).digest()[:COMMITMENT_BYTES]


def commitments(sealed: bytes) -> tuple[bytes, bytes]:
    """Return the commitments to the shares of the self mask and of the masking key, which are not encrypted."""
    both = sealed[-2 * COMMITMENT_BYTES :]
    return both[:COMMITMENT_BYTES], both[COMMITMENT_BYTES:]


class ProtocolError(Exception):
    """An invalid message: the round ends without a sum."""


class TooFewClients(ProtocolError):
    """Fewer clients are left than the threshold requires: the round ends without a sum."""


@dataclass(frozen=True)
class Keys:
    """The public keys (X25519, 32 bytes each) that a client advertises.

    Attributes:
        sealing: the key under which shares for this client are encrypted.
        masking: the key from which pairwise masks are derived.
    """

    sealing: bytes
    masking: bytes


@dataclass(frozen=True)
class Request:
    """The server's request for shares that remove the masks of a client's neighbors.

    Attributes:
        there: neighbors that sent a masked input; the shares of their self masks are requested.
        gone: neighbors that left after sharing their secrets; the shares of their masking keys are requested.
    """

    there: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Opening:
    """A client's answer to a `Request`: shares by neighbor."""

    self_masks: dict[int, bytes] = field(default_factory=dict)
    masking_keys: dict[int, bytes] = field(default_factory=dict)
