"""What clients and server of a secure sum send each other, and how a round of it fails."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from turnout.protocol.secure.shamir import SHARE_BYTES

KEY_BYTES = 32
"""Of a public key."""
COMMITMENT_BYTES = 16
"""Of the hash of a share, by which the server recognizes the share when a neighbour opens it."""
SEALED_BYTES = 2 * SHARE_BYTES + 28 + 2 * COMMITMENT_BYTES
"""Of two shares that are encrypted for a neighbour, with nonce (12), tag (16), and a commitment to each of them."""


def commitment(share: bytes) -> bytes:
    """Return the hash of a share. It reveals nothing, because a share has 256 random bits."""
    return hashlib.sha256(b"turnout share " + share).digest()[:COMMITMENT_BYTES]


def commitments(sealed: bytes) -> tuple[bytes, bytes]:
    """Return the commitments to the share of the self mask and to that of the masking key, which are not encrypted."""
    both = sealed[-2 * COMMITMENT_BYTES :]
    return both[:COMMITMENT_BYTES], both[COMMITMENT_BYTES:]


class ProtocolError(Exception):
    """A message that does not belong where it came: the round ends without a sum."""


class TooFewClients(ProtocolError):
    """Fewer clients are left than the threshold asks for: the round ends without a sum."""


@dataclass(frozen=True)
class Keys:
    """Hold the public keys (X25519, 32 bytes each) that a client advertises.

    Attributes:
        sealing: under which shares for this client are encrypted.
        masking: of which pairwise masks are made.
    """

    sealing: bytes
    masking: bytes


@dataclass(frozen=True)
class Request:
    """Hold what the server asks of a client to take the masks off, of its neighbours alone.

    Attributes:
        there: whose masked input arrived: the share of their self mask is asked for.
        gone: who left between sharing and sending: the share of their masking key is asked for.
    """

    there: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Opening:
    """Hold the shares with which a client answers a `Request`, by neighbour."""

    self_masks: dict[int, bytes] = field(default_factory=dict)
    masking_keys: dict[int, bytes] = field(default_factory=dict)
