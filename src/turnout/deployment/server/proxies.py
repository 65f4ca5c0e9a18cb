"""Addresses that an operator trusts: proxies that set X-Forwarded-For, and machines without limits."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from turnout.core.checks import ConfigurationError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LONGEST = 45  # characters of an address
_MOST = 16  # proxies in a row


class Networks:
    """A set of addresses, given as single ones and as networks, IPv4 or IPv6.

    Args:
        networks: addresses or networks.
        option: name of the option, for error messages.

    Raises:
        ConfigurationError: for anything else, and for a network of all addresses.

    >>> machines = Networks(["10.0.0.7", "2001:db8::/64"])
    >>> [address in machines for address in ("10.0.0.7", "::ffff:10.0.0.7", "10.0.0.8", "2001:db8::9")]
    [True, True, False, True]
    """

    _needed = "the address of a machine, such as 10.0.0.2, or a network, such as 10.0.0.0/24"

    def __init__(self, networks: Iterable[str] = (), option: str = "trusted_addresses") -> None:
        self._networks = tuple(self._network(text.strip(), option) for text in networks)

    def __contains__(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed is not None and self._holds(parsed)

    def _holds(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)

    def _network(self, text: str, option: str) -> _Network:
        """Read an address or a network."""
        try:
            network = ipaddress.ip_network(text)
            mapped = isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None
        except ValueError:
            network, mapped = None, False
        if network is None or mapped or not network.prefixlen:
            raise ConfigurationError(f"{option}: got {text!r}, needed {self._needed}")
        return network


class Proxies(Networks):
    """Addresses of trusted reverse proxies.

    A proxy appends the address of its peer to X-Forwarded-For, and the client can send any entries to the left of that. So
    the header is read from the right, past trusted proxies, and only on a connection from a trusted proxy.

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

    _needed = (
        "the address of a proxy, such as 10.0.0.2, or a network of proxies, such as 10.0.0.0/24: anyone in it may choose the "
        "address by which it is counted"
    )

    def __init__(self, networks: Iterable[str] = ()) -> None:
        super().__init__(networks, "proxy_headers")

    def client(self, peer: str, forwarded: Sequence[bytes]) -> str | None:
        """Return the address of the client whose request a proxy forwards.

        Args:
            peer: where the connection comes from.
            forwarded: the values of X-Forwarded-For, in the order of the headers.

        Returns:
            The rightmost address that is not a trusted proxy, or the leftmost one if all are; the peer where the header is
            malformed; None without the header, or on a connection from another machine.
        """
        if not forwarded or peer not in self:
            return None
        client = None
        entries = b",".join(forwarded).decode("latin-1").split(",")
        for entry in reversed(entries[-_MOST:]):
            client = _parsed(entry.strip(" \t"))
            if client is None:
                return peer
            if not self._holds(client):
                return str(client)
        return peer if client is None or len(entries) > _MOST else str(client)


def _parsed(text: str) -> _Address | None:
    """Parse an address, an IPv4-mapped one as IPv4; return None for anything else, such as one with a port or a zone."""
    if len(text) > _LONGEST or "%" in text:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped
