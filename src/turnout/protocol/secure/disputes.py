"""Settle disputes: of two clients of which one refuses the shares that the other dealt, find the one at fault."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from turnout.protocol.secure.client import unsealed
from turnout.protocol.secure.evidence import proven
from turnout.protocol.secure.masks import derive

DEALS = "it dealt shares that a neighbor cannot read"
LIES = "it refused shares of a neighbor that can be read"


def disputed(refused: Mapping[int, Collection[int]], unreadable: Collection[int]) -> set[int]:
    """Return the clients to exclude so that no remaining client refuses the shares of another one.

    Of a client that refuses shares and the client that dealt them, one deviates from the protocol: the dealer if evidence
    shows that the shares cannot be read, otherwise the client that refuses them.

    Args:
        refused: clients whose shares a client could not read, by client.
        unreadable: clients that dealt shares which cannot be read, by the evidence of a recipient.
    """
    dealers = set(unreadable)
    return dealers | {client for client, others in refused.items() if not dealers.issuperset(others)}


def unreadable(
    refused: Mapping[int, Collection[int]],
    evidence: Callable[[int, int], bytes],
    sealed: Callable[[int, int], bytes],
    keys: Callable[[int], bytes],
) -> set[int]:
    """Return the clients that dealt shares which cannot be read, by the evidence of a client that refused them.

    Args:
        refused: clients whose shares a client could not read, by client; all clients by their numbers in the sum.
        evidence: function that returns the evidence of a client against a dealer.
        sealed: function that returns the shares that a dealer sealed for a client.
        keys: function that returns the public sealing key of a client.
    """
    dealers = set[int]()
    for client, others in sorted(refused.items()):
        for dealer in others:
            if dealer in dealers:  # evidence against it is known
                continue
            parties = keys(client), keys(dealer)
            if not is_unreadable(evidence(client, dealer), parties, client, dealer, sealed(dealer, client)):
                break  # this client is at fault, whatever else it says
            dealers.add(dealer)
    return dealers


def is_unreadable(evidence: bytes, keys: tuple[bytes, bytes], client: int, dealer: int, text: bytes) -> bool:
    """Return True if a client's evidence proves that it cannot read the shares that a dealer sealed for it.

    Args:
        evidence: evidence of the client, see `SecureClient.evidence`.
        keys: public sealing keys of the client and of the dealer.
        client, dealer: their numbers.
        text: sealed shares, as the server passed them on.
    """
    if (secret := proven(evidence, *keys)) is None:
        return False
    purpose = b"share %d %d" % (dealer, client)
    return unsealed(derive(secret, purpose), purpose, text) is None
