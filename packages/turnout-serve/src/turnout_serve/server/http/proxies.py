"""Addresses that an operator trusts: proxies that set X-Forwarded-For, and machines without limits."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from turnout.core.checks import ConfigurationError
from turnout_serve.server.http.limits import Address, parsed

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MOST = 16  # proxies in a row


class Networks:
    """A set of addresses, given as single ones and as networks, IPv4 or IPv6.

    Args:
        networks: addresses or networks.
        option: name of the option, for error messages.
        needed: values that the option takes, for error messages.

    Raises:
        ConfigurationError: if it is anything else, or a network of all addresses.

    >>> machines = Networks(["10.0.0.7", "2001:db8::/64"])
    >>> [address in machines for address in ("10.0.0.7", "::ffff:10.0.0.7", "10.0.0.8", "2001:db8::9")]
    [True, True, False, True]
    """

    def __init__(
        self,
        networks: Iterable[str] = (),
        option: str = "trusted_addresses",
        needed: str = "the address of a machine, such as 10.0.0.2, or a network, such as 10.0.0.0/24",
    ) -> None:
        self._networks = list[_Network]()
        for text in map(str.strip, networks):
            if (network := _network(text)) is None:
                raise ConfigurationError(f"{option}: got {text!r}, needed {needed}")
            self._networks.append(network)

    def __contains__(self, address: str | Address) -> bool:
        peer = parsed(address) if isinstance(address, str) else address
        return peer is not None and any(peer in network for network in self._networks)


class Proxies:
    """Addresses of trusted reverse proxies.

    A proxy appends the address of its peer to X-Forwarded-For, and the client can send any entries to the left of that. So
    the header is read from the right, past trusted proxies, and only on a connection from a trusted proxy.

    Args:
        networks: addresses or networks, IPv4 or IPv6.

    Attributes:
        addresses: those of the proxies.

    Raises:
        ConfigurationError: if it is anything else, or a network of all addresses.

    >>> proxies = Proxies(["127.0.0.1", "10.0.0.0/24"])
    >>> proxies.client("127.0.0.1", [b"192.0.2.1, 203.0.113.9, 10.0.0.2"])
    '203.0.113.9'
    >>> proxies.client("198.51.100.7", [b"203.0.113.9"]) is None
    True
    """

    def __init__(self, networks: Iterable[str] = ()) -> None:
        needed = (
            "the address of a proxy, such as 10.0.0.2, or a network of proxies, such as 10.0.0.0/24: anyone in it may choose "
            "the address by which it is counted"
        )
        self.addresses = Networks(networks, "proxy_headers", needed)

    def client(self, peer: str, forwarded: Sequence[bytes]) -> str | None:
        """Return the address of the client whose request a proxy forwards.

        Args:
            peer: address from which the connection comes.
            forwarded: the values of X-Forwarded-For, in the order of the headers; at least one.

        Returns:
            The rightmost address that is not a trusted proxy, or the leftmost one if all are; the peer where the header is
            malformed; None on a connection from another machine.
        """
        if peer not in self.addresses:
            return None
        client = None
        entries = b",".join(forwarded).decode("latin-1").split(",")
        for entry in reversed(entries[-_MOST:]):
            client = parsed(entry.strip(" \t"))
            if client is None:
                return peer
            if client not in self.addresses:
                return str(client)
        return peer if client is None or len(entries) > _MOST else str(client)


def _network(text: str) -> _Network | None:
    """Parse an address or a network; return None for anything else, for a mapped one and for a network of all addresses."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        return None
    mapped = isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None
    return None if mapped or not network.prefixlen else network
