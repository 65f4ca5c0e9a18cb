"""The client of a secure sum: it masks its values, and helps to remove the masks of others."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import numpy as np

from turnout.protocol.secure import evidence, shamir
from turnout.protocol.secure.masks import (
    SEED_BYTES,
    agree,
    check_public,
    expand,
    new_key,
    pairwise,
    primitives,
    public,
    reduce,
    word,
)
from turnout.protocol.secure.messages import (
    COMMITMENT_BYTES,
    SEALED_BYTES,
    Keys,
    Opening,
    ProtocolError,
    Request,
    TooFewClients,
    commitment,
    commitments,
)


class SecureClient:
    """Take one client through one round of SecAgg+: `advertise`, `share`, `mask`, `open`, each once and in this order.

    Keys are new in every round. The class does no I/O: its methods take messages of the server and return messages for
    it.

    The client participates only if t is more than half of its neighbors. A server that tells some of them that the
    client stayed, and others that it left, then gets t shares of at most one of its two secrets. Neighbors whose
    shares cannot be read are ignored.

    Args:
        number: unique number of this client, >= 1.
        threshold: t, the number of shares that reconstruct a secret of this client; with fewer neighbors it sends
            nothing.
        bits: number of bits of the modulus.

    Attributes:
        refused: neighbors whose shares it could not read; they are reported with its masked input.

    Reference: Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020, Algorithm 2.
    """

    def __init__(self, number: int, threshold: int, bits: int) -> None:
        self.number, self.threshold, self.bits = number, threshold, bits
        self._sealing, self._masking = new_key(), new_key()
        self._self_mask = secrets.token_bytes(SEED_BYTES)
        self._neighbors: dict[int, Keys] = {}
        self._received: dict[int, bytes] = {}
        self.refused: frozenset[int] = frozenset()
        self._next = "advertise"

    def _enter(self, phase: str, after: str) -> None:
        """Enter a phase.

        Raises:
            ProtocolError: if another phase is next. No phase is entered twice, so that a server cannot compare two
                answers.
        """
        if self._next != phase:
            raise ProtocolError(f"client {self.number} was asked to {phase}, and {self._next} is next")
        self._next = after

    def advertise(self) -> Keys:
        """Return the public keys of the round."""
        self._enter("advertise", "share")
        return Keys(public(self._sealing), public(self._masking))

    def share(self, neighbors: Mapping[int, Keys]) -> dict[int, bytes]:
        """Return shares of the self mask and of the masking key for each neighbor, encrypted for it (AES-GCM).

        Raises:
            ProtocolError: if the threshold is at most half of the neighbors, if a public key has low order, or if a
                neighbor has an invalid number.
        """
        self._enter("share", "mask")
        self._at_least(len(neighbors), "neighbors")
        if 2 * self.threshold <= len(neighbors):
            raise ProtocolError(
                f"a server that lies about who left could open the input of client {self.number}: the threshold is "
                f"{self.threshold} of {len(neighbors)} neighbors, and has to be more than half of them"
            )
        if self.number in neighbors or min(neighbors) < 1:
            raise ProtocolError(f"client {self.number} got itself, or a number below 1, as a neighbor")
        for keys in neighbors.values():
            check_public(keys.sealing, keys.masking)
        self._neighbors = dict(neighbors)
        points = sorted(neighbors)
        masks = shamir.share(self._self_mask, self.threshold, points)
        keys = shamir.share(self._masking, self.threshold, points)
        texts = {}
        for other, theirs in sorted(neighbors.items()):
            nonce = secrets.token_bytes(12)
            texts[other] = sealed(self._sealing, theirs.sealing, self.number, other, masks[other], keys[other], nonce)
        return texts

    def mask(self, values: np.ndarray, sealed: Mapping[int, bytes]) -> np.ndarray:
        """Return the values plus the self mask and a pairwise mask for each neighbor whose shares can be read.

        ::

            y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)   mod 2^bits

        u is this client and v its neighbors, x_u the values, b_u the seed of the self mask, s_uv the seed of the
        pairwise mask, and PRG a pseudorandom generator. Afterwards, the other neighbors are in `refused`. The client
        sends the `evidence` for each, by which the server excludes the client at fault of each such pair.

        Args:
            values: x_u, of type `word`, ``[P]``.
            sealed: encrypted shares for this client, by neighbor.
        """
        self._enter("mask", "open")
        if values.dtype != word(self.bits) or not set(sealed) <= set(self._neighbors):
            raise ProtocolError(f"client {self.number} got values of {values.dtype}, or shares of no neighbor")
        read = dict[int, bytes | None]()
        for other, text in sealed.items():
            purpose = b"share %d %d" % (other, self.number)
            key = agree(self._sealing, self._neighbors[other].sealing, purpose)
            read[other] = unsealed(key, purpose, text)
        self._received = {other: shares for other, shares in read.items() if shares is not None}
        self.refused = frozenset(read.keys() - self._received.keys())
        self._at_least(len(self._received), "neighbors that shared")
        total = values + expand(self._self_mask, len(values), self.bits)
        for other in self._received:
            seed = pairwise(self._masking, self._neighbors[other].masking, self.number, other)
            one = expand(seed, len(values), self.bits)
            total = np.add(total, one, out=total) if other > self.number else np.subtract(total, one, out=total)
        return reduce(total, self.bits)

    def open(self, request: Request) -> Opening:
        """Return the shares that remove masks: for each neighbor, that of its self mask or of its key, not both."""
        self._enter("open", "nothing")
        neighbors = request.there | request.gone
        if request.there & request.gone or not neighbors <= set(self._received):
            raise ProtocolError(
                f"client {self.number} was asked for both secrets of a neighbor, or for those of no neighbor"
            )
        self._at_least(len(request.there), "neighbors that sent")
        size = shamir.SHARE_BYTES
        return Opening(
            {other: self._received[other][:size] for other in request.there},
            {other: self._received[other][size:] for other in request.gone},
        )

    def _at_least(self, number: int, what: str) -> None:
        """Raise `TooFewClients` if there are fewer neighbors than the threshold."""
        if number < self.threshold:
            raise TooFewClients(f"client {self.number} has {number} {what}, and the threshold is {self.threshold}")

    def evidence(self, other: int) -> bytes:
        """Return the proof that lets everybody open what a neighbor sealed for this client."""
        return evidence.prove(self._sealing, self._neighbors[other].sealing)


def unsealed(key: bytes, purpose: bytes, text: bytes) -> bytes | None:
    """Decrypt shares with the key of a purpose; None if that fails, or if they differ from the commitments."""
    from cryptography.exceptions import InvalidTag

    if len(text) != SEALED_BYTES:
        return None
    try:
        shares = primitives("ciphers.aead").AESGCM(key).decrypt(text[:12], text[12 : -2 * COMMITMENT_BYTES], purpose)
    except InvalidTag:
        return None
    size = shamir.SHARE_BYTES
    made = commitment(shares[:size]), commitment(shares[size:])
    return shares if made == commitments(text) else None


def sealed(
    key: bytes, other: bytes, number: int, neighbor: int, mask_share: bytes, key_share: bytes, nonce: bytes
) -> bytes:
    """Return two shares encrypted by AES-GCM for a neighbor, and commitments to them.

    Args:
        key: the private sealing key.
        other: the public sealing key of the neighbor.
        number, neighbor: the numbers of both clients.
        mask_share, key_share: the shares.
        nonce: 12 bytes, never used twice with the same keys.
    """
    purpose = b"share %d %d" % (number, neighbor)
    text = primitives("ciphers.aead").AESGCM(agree(key, other, purpose)).encrypt(nonce, mask_share + key_share, purpose)
    return nonce + text + commitment(mask_share) + commitment(key_share)
