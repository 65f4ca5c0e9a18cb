"""The server of a secure sum: it passes on encrypted shares, sums masked inputs, and removes the masks from the sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from turnout.core.checks import ConfigurationError, count
from turnout.protocol.secure import graph, shamir
from turnout.protocol.secure.masks import SEED_BYTES, check_public, expand, pairwise, public, reduce, word
from turnout.protocol.secure.messages import (
    Keys,
    Opening,
    ProtocolError,
    Request,
    TooFewClients,
    commitment,
    commitments,
)


class SecureServer:
    """Take the server through one round of SecAgg+, in four phases.

    In each phase, messages are passed one by one (`advertised`, `shared`, `masked`, `opened`), and the messages for the
    next phase are requested once (`keys`, `sealed`, `requests`, `total`), which ends the phase. A masked input is added
    to the sum and not stored.

    Cheating is detected: public keys of low order are rejected on arrival, shares are verified against the commitments
    of their dealer, and any t valid shares suffice. If the sum cannot be opened, `culprits` names the clients at fault.

    Clients may leave after sharing their secrets as long as t neighbors of each client remain; in a graph of degree k,
    that holds for any ``k - t`` clients. Otherwise the round ends with `TooFewClients`.

    Args:
        length: P, the length of the vectors.
        bits: number of bits of the modulus.
        threshold: t, the number of neighbors whose shares reconstruct a secret.
        degree: k, the number of neighbors of a client; None makes all clients neighbors of each other.
        seed: seed of the graph.

    Attributes:
        culprits: violation of each client that provably violated the protocol.

    Reference: Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020, Algorithm 2.
    """

    def __init__(
        self, length: int, bits: int, threshold: int, degree: int | None = None, seed: Sequence[int] | int = 0
    ) -> None:
        count("threshold", threshold)
        self.length, self.bits, self.threshold, self.degree, self.seed = length, bits, threshold, degree, seed
        self._keys: dict[int, Keys] = {}
        self._neighbors: dict[int, tuple[int, ...]] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}
        self._refused: dict[int, frozenset[int]] = {}  # by each client whose masked input is in the sum
        self.culprits: dict[int, str] = {}
        self._sum = np.zeros(length, dtype=word(bits))
        self._openings: dict[int, Opening] = {}
        self._phase = "advertise"

    def advertised(self, client: int, keys: Keys) -> None:
        """Add the public keys of a client.

        Raises:
            ProtocolError: if a key has low order, with which secrets would be known to all.
        """
        self._take("advertise", client, fresh=client not in self._keys)
        check_public(keys.sealing, keys.masking)
        self._keys[client] = keys

    def keys(self) -> dict[int, dict[int, Keys]]:
        """Build the graph, and return for each client the keys of its neighbors."""
        self._end("advertise", "share")
        if len(self._keys) <= self.threshold:
            raise TooFewClients(f"{len(self._keys)} clients came, and the threshold is {self.threshold} beside each")
        self._neighbors = graph.neighbors(sorted(self._keys), self.degree, self.seed)
        return {c: {other: self._keys[other] for other in others} for c, others in self._neighbors.items()}

    def shared(self, client: int, sealed: Mapping[int, bytes]) -> None:
        """Store the encrypted shares of a client for its neighbors."""
        known = client in self._keys and set(sealed) == set(self._neighbors.get(client, ()))
        self._take("share", client, fresh=known and client not in self._sealed)
        self._sealed[client] = dict(sealed)

    def sealed(self) -> dict[int, dict[int, bytes]]:
        """Return the encrypted shares for each client that shared, by neighbor."""
        self._end("share", "mask")
        passed = {c: {o: self._sealed[o][c] for o in self._neighbors[c] if o in self._sealed} for c in self._sealed}
        self._enough({c: len(texts) for c, texts in passed.items()})
        return passed

    def masked(self, client: int, values: np.ndarray, refused: frozenset[int] = frozenset()) -> None:
        """Add the masked input of a client to the sum.

        Args:
            client: number of the client.
            values: masked input, ``[P]``.
            refused: neighbors whose shares the client could not read, and with which it has no pairwise mask. Of two
                clients in the sum, neither may refuse the other: see `turnout.protocol.secure.attendance.disputed`.
        """
        fits = values.dtype == self._sum.dtype and values.shape == self._sum.shape
        agrees = refused.isdisjoint(self._refused) and not any(client in others for others in self._refused.values())
        known = client in self._sealed and client not in self._refused
        self._take("mask", client, fresh=fits and agrees and known)
        self._refused[client] = refused
        reduce(np.add(self._sum, values, out=self._sum), self.bits)

    def requests(self) -> dict[int, Request]:
        """Return the request to each client that sent a masked input."""
        self._end("mask", "open")
        requests = {}
        for client, refused in self._refused.items():
            others = frozenset(other for other in self._neighbors[client] if other in self._sealed) - refused
            requests[client] = Request(others.intersection(self._refused), others.difference(self._refused))
        self._enough({client: len(request.there) for client, request in requests.items()})
        return requests

    def opened(self, client: int, opening: Opening) -> None:
        """Store the shares with which a client answers its request.

        Shares that violate their commitment are dropped.
        """
        self._take("open", client, fresh=client in self._refused and client not in self._openings)
        valid = [
            {dealer: share for dealer, share in shares.items() if self._dealt(dealer, client, kind, share)}
            for kind, shares in enumerate((opening.self_masks, opening.masking_keys))
        ]
        if sum(map(len, valid)) < len(opening.self_masks) + len(opening.masking_keys):
            self.culprits[client] = "it opened other shares than it was dealt"
        self._openings[client] = Opening(*valid)

    def _dealt(self, dealer: int, client: int, kind: int, share: bytes) -> bool:
        """Return True if a dealer committed to this share for a client; kind 0 is the self mask, 1 the masking key."""
        sealed = self._sealed.get(dealer, {}).get(client)
        return sealed is not None and commitments(sealed)[kind] == commitment(share)

    def total(self) -> np.ndarray:
        """Return the unmasked sum over `clients` modulo ``2^bits``, ``[P]``."""
        self._end("open", "nothing")
        total = self._sum.copy()
        for client in self.clients:
            shares = {o: p.self_masks[client] for o, p in self._of(client) if client in p.self_masks}
            self._enough({client: len(shares)})
            # Shares of different secrets reconstruct a mask that the client has not used. This changes only its own input,
            # which it could choose freely anyway.
            total -= expand(self._secret(shares), self.length, self.bits)
        for client in sorted(self._sealed.keys() - self._refused.keys()):
            self._remove_masks_of(client, total)
        return reduce(total, self.bits)

    def _remove_masks_of(self, client: int, total: np.ndarray) -> None:
        """Remove the pairwise masks with a client that left after sharing its secrets from the sum."""
        masked = [o for o in self._neighbors[client] if o in self._refused and client not in self._refused[o]]
        if not masked:
            return
        shares = {o: p.masking_keys[client] for o, p in self._of(client) if client in p.masking_keys}
        self._enough({client: len(shares)})
        key = self._masking_key(client, shares)
        for other in masked:
            mask = expand(pairwise(key, self._keys[other].masking, client, other), self.length, self.bits)
            (np.subtract if client > other else np.add)(total, mask, out=total)

    @property
    def clients(self) -> list[int]:
        """The clients whose inputs are in the sum."""
        return sorted(self._refused)

    def _of(self, client: int) -> list[tuple[int, Opening]]:
        """Return the openings of a client's neighbors."""
        return [(other, self._openings[other]) for other in self._neighbors[client] if other in self._openings]

    def _secret(self, shares: dict[int, bytes], first: int = 0) -> bytes:
        """Return the secret of t consecutive shares; zeros if they do not belong to one secret."""
        order = sorted(shares)
        points = (order[first:] + order[:first])[: self.threshold]
        try:
            return shamir.reconstruct({point: shares[point] for point in points})
        except ConfigurationError:
            return bytes(SEED_BYTES)

    def _masking_key(self, client: int, shares: dict[int, bytes]) -> bytes:
        """Reconstruct the masking key of a client from t of its shares.

        Raises:
            ProtocolError: if no t consecutive shares yield the key that it advertised.
        """
        for first in range(len(shares)):
            key = self._secret(shares, first)
            if public(key) == self._keys[client].masking:
                return key
        self.culprits[client] = "the shares that it dealt give another key than it advertised"
        raise ProtocolError(f"the shares of client {client} give another key than it advertised")

    def _enough(self, neighbors: Mapping[int, int]) -> None:
        """Raise `TooFewClients` if a client has fewer neighbors left than the threshold."""
        short = {client: number for client, number in neighbors.items() if number < self.threshold}
        if short or not neighbors:
            client, number = next(iter(short.items()), (0, 0))
            raise TooFewClients(f"client {client} has {number} neighbors left, and the threshold is {self.threshold}")

    def _take(self, phase: str, client: int, *, fresh: bool) -> None:
        """Raise an error for a message of another phase or client, and for a repeated or malformed one."""
        if self._phase != phase or not fresh:
            raise ProtocolError(f"client {client}: this message does not belong to the phase {self._phase!r}")

    def _end(self, phase: str, after: str) -> None:
        """End a phase and enter the next one."""
        if self._phase != phase:
            raise ProtocolError(f"the phase is {self._phase!r}, not {phase!r}")
        self._phase = after
