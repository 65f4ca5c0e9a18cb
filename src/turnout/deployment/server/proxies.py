"""Proxies whose header X-Forwarded-For is believed, and the address of a client that it gives."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from turnout.core.checks import ConfigurationError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LONGEST = 45  # characters of an address
_MOST = 16  # proxies in a row


class Proxies:
    """Addresses of the proxies before a server.

    A proxy appends the address of whoever connects to it, so entries further left are what the client chose to send. The
    header is read from the right past trusted proxies, and only if the connection itself comes from one.

    Args:
        networks: addresses or networks, IPv4 or IPv6.

    Raises:
        ConfigurationError: for anything else, and for a network of all addresses.

    >>> proxies = Proxies(["127.0.0.1", "10.0.0.0/24"])
    >>> proxies.client("127.0.0.1", [b"192.0.2.1, 203.0.113.9, 10.0.0.2"])
    '203.0.113.9'
    >>> proxies.client("198.51.100.7", [b"203.0.113.9"]) is None
    True
    """

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = tuple(_network(text.strip()) for text in networks)

    def trust(self, address: str) -> bool:
        """Return whether this is the address of a trusted proxy."""
        parsed = _parsed(address)
        return parsed is not None and self._trust(parsed)

    def client(self, peer: str, forwarded: Sequence[bytes]) -> str | None:
        """Return the address of the client for which a proxy asks.

        Args:
            peer: where the connection comes from.
            forwarded: the values of X-Forwarded-For, in the order of the headers.

        Returns:
            The rightmost address that is no trusted proxy's, or the leftmost one if all are. The peer's where the header is
            malformed. None where there is no header, or it comes from anyone else.
        """
        if not forwarded or not self.trust(peer):
            return None
        client = None
        entries = b",".join(forwarded).decode("latin-1").split(",")
        for entry in reversed(entries[-_MOST:]):
            client = _parsed(entry.strip(" \t"))
            if client is None:
                return peer
            if not self._trust(client):
                return str(client)
        return peer if client is None or len(entries) > _MOST else str(client)

    def _trust(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)


def _parsed(text: str) -> _Address | None:
    """Return an address, an IPv4-mapped one as IPv4; None for anything else, such as one with a port or a zone."""
    if len(text) > _LONGEST or "%" in text:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _network(text: str) -> _Network:
    """Return the network of proxies that an operator trusts."""
    try:
        network = ipaddress.ip_network(text)
        mapped = isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None
    except ValueError:
        network, mapped = None, False
    if network is None or mapped or not network.prefixlen:
        raise ConfigurationError(
            f"proxy_headers: got {text!r}, needed the address of a proxy, such as 10.0.0.2, or a network of proxies, such as "
            "10.0.0.0/24: anyone in it may choose the address by which it is counted"
        )
    return network
