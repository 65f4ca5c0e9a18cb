"""A client of a secure sum: it masks what it sends, and helps to take off the masks of others."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import numpy as np

from turnout.secure import shamir
from turnout.secure.masks import SEED_BYTES, agree, expand, new_key, pairwise, public, reduce, word
from turnout.secure.messages import Keys, Opening, ProtocolError, Request, TooFewClients


class SecureClient:
    """Take one client through one round of SecAgg+: `advertise`, `share`, `mask`, `open`, each once and in this order.

    Keys are fresh in every round. It does no input or output; what its methods return goes to the server, and what they
    take comes from it.

    Args:
        number: of this client, >= 1 and different from all others.
        threshold: t, shares of its neighbours that give a secret of this client; it sends nothing if fewer are there.
        bits: of the modulus.

    Reference: Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020, Algorithm 2.
    """

    def __init__(self, number: int, threshold: int, bits: int) -> None:
        self.number, self.threshold, self.bits = number, threshold, bits
        self._sealing, self._masking = new_key(), new_key()
        self._self_mask = secrets.token_bytes(SEED_BYTES)
        self._neighbours: dict[int, Keys] = {}
        self._received: dict[int, bytes] = {}
        self._next = "advertise"

    def _enter(self, phase: str, after: str) -> None:
        """Go on to the next phase.

        Raises:
            ProtocolError: if it is another's turn; no phase comes twice, so that no server gets two answers to compare.
        """
        if self._next != phase:
            raise ProtocolError(f"client {self.number} was asked to {phase}, and {self._next} is next")
        self._next = after

    def advertise(self) -> Keys:
        """Return the public keys of the round."""
        self._enter("advertise", "share")
        return Keys(public(self._sealing), public(self._masking))

    def share(self, neighbours: Mapping[int, Keys]) -> dict[int, bytes]:
        """Return shares of the self mask and of the masking key for every neighbour, encrypted for it (AES-GCM)."""
        self._enter("share", "mask")
        self._at_least(len(neighbours), "neighbours")
        self._neighbours = dict(neighbours)
        points = sorted(neighbours)
        masks = shamir.share(self._self_mask, self.threshold, points)
        keys = shamir.share(self._masking, self.threshold, points)
        return {other: self._seal(other, masks[other] + keys[other]) for other in points}

    def mask(self, values: np.ndarray, sealed: Mapping[int, bytes]) -> np.ndarray:
        """Return the values with the self mask and one mask for every neighbour that shared.

        ::

            y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)   mod 2^bits

        Args:
            values: x_u, of type `word`, ``[P]``.
            sealed: by neighbour, what it encrypted for this client.
        """
        self._enter("mask", "open")
        if values.dtype != word(self.bits) or not set(sealed) <= set(self._neighbours):
            raise ProtocolError(f"client {self.number} got values of {values.dtype}, or shares of no neighbour")
        self._at_least(len(sealed), "neighbours that shared")
        self._received = {other: self._unseal(other, text) for other, text in sealed.items()}
        total = values + expand(self._self_mask, len(values), self.bits)
        for other in sealed:
            seed = pairwise(self._masking, self._neighbours[other].masking, self.number, other)
            one = expand(seed, len(values), self.bits)
            total = np.add(total, one, out=total) if other > self.number else np.subtract(total, one, out=total)
        return reduce(total, self.bits)

    def open(self, request: Request) -> Opening:
        """Return the shares that take off the masks: of a neighbour, that of its self mask or of its key, never both."""
        self._enter("open", "nothing")
        asked = request.there | request.gone
        if request.there & request.gone or not asked <= set(self._received):
            raise ProtocolError(
                f"client {self.number} was asked for both secrets of a neighbour, or for those of no neighbour"
            )
        self._at_least(len(request.there), "neighbours that sent")
        size = shamir.SHARE_BYTES
        return Opening(
            {other: self._received[other][:size] for other in request.there},
            {other: self._received[other][size:] for other in request.gone},
        )

    def _at_least(self, found: int, what: str) -> None:
        """Refuse to go on with fewer neighbours than the threshold."""
        if found < self.threshold:
            raise TooFewClients(f"client {self.number} has {found} {what}, and the threshold is {self.threshold}")

    def _seal(self, other: int, text: bytes) -> bytes:
        """Encrypt for a neighbour, who can tell from whom it is."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        purpose, nonce = b"share %d %d" % (self.number, other), secrets.token_bytes(12)
        key = agree(self._sealing, self._neighbours[other].sealing, purpose)
        return nonce + AESGCM(key).encrypt(nonce, text, purpose)

    def _unseal(self, other: int, text: bytes) -> bytes:
        """Decrypt what a neighbour sent.

        Raises:
            ProtocolError: if it is not what that neighbour sent to this client.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        purpose = b"share %d %d" % (other, self.number)
        key = agree(self._sealing, self._neighbours[other].sealing, purpose)
        try:
            found = AESGCM(key).decrypt(text[:12], text[12:], purpose)
        except (InvalidTag, ValueError):
            found = b""
        if len(found) != 2 * shamir.SHARE_BYTES:
            raise ProtocolError(f"client {self.number} cannot read what it got as shares of client {other}")
        return found
