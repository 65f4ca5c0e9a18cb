"""Limits of requests (sizes, times, connections, requests per second), and the machines that they do not apply to."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields

from turnout.core.checks import ConfigurationError, positive


@dataclass(frozen=True)
class Limits:
    """Limits of what a server reads, waits for and keeps in memory. All hold before a token is checked.

    Attributes:
        connections: open connections of all clients; further ones are refused. The limit is lower where the operating system
            has fewer file descriptors than this and 256 more.
        per_address: open connections of one address (IPv6: one /64), and requests in flight that a trusted proxy forwards
            from one address. Connections from this machine are not limited, because a proxy or a swarm connects from there.
        head: bytes of the request line, the headers, chunk sizes and trailers of one request.
        num_headers: headers of one request.
        head_seconds: seconds for the headers of a request, and until a connection begins its next request.
        body_seconds: seconds for a JSON body, and for the rest of a body that is not read.
        write_seconds: seconds until a client has read the data that wait for it.
        stall_seconds: seconds until the next piece of a report.
        upload_rate: bytes per second of an upload on average. A slower one is cut off, and renews no lease.
        upload_seconds: seconds until an upload is cut off; the client continues it where it ended.
    """

    connections: int = 50_000
    per_address: int = 256
    head: int = 16 * 1024
    num_headers: int = 64
    head_seconds: float = 15.0
    body_seconds: float = 15.0
    write_seconds: float = 30.0
    stall_seconds: float = 20.0
    upload_rate: float = 4096.0
    upload_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for limit in fields(self):
            positive(limit.name, getattr(self, limit.name))


def network_of(address: str) -> str | None:
    """Return the network that a peer is counted in: its IPv4 address, or its IPv6 /64; None for this machine.

    >>> network_of("2001:db8::1:2"), network_of("203.0.113.9"), network_of("127.0.0.1")
    ('2001:db8::/64', '203.0.113.9', None)
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            return None if parsed.is_loopback else str(ipaddress.ip_network((parsed, 64), strict=False))
        parsed = parsed.ipv4_mapped
    return None if parsed.is_loopback else str(parsed)


class Peers:
    """Count open connections, or forwarded requests in flight, in total and by address.

    Args:
        limits: maximum numbers.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._open = limits, set[object]()
        self._networks: Counter[str] = Counter()

    def admit(self, connection: object, network: str | None) -> bool:
        """Count a connection; return False, without counting it, where a limit is reached."""
        full = network is not None and self._networks[network] >= self._limits.per_address
        if full or len(self._open) >= self._limits.connections:
            return False
        self._open.add(connection)
        if network is not None:
            self._networks[network] += 1
        return True

    def forget(self, connection: object, network: str | None) -> None:
        """Stop counting a connection that was admitted."""
        if connection in self._open:
            self._open.remove(connection)
            if network is not None:
                self._networks[network] -= 1
                if not self._networks[network]:
                    del self._networks[network]


class RateLimit:
    """Token bucket for each peer: `rate` requests per second on average, and `burst` at once.

    Args:
        rate: requests per second; 0 means no limit.
        burst: requests at once.
        most: peers that are remembered; the one whose last request is oldest is forgotten first.
        clock: seconds; for tests.
    """

    def __init__(
        self, rate: float, burst: float, most: int = 100_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst, self._most, self._clock = rate, burst, most, clock
        self._left: dict[Hashable, tuple[float, float]] = {}

    def wait(self, peer: Hashable) -> float:
        """Count a request and return 0, or return the seconds until one is allowed."""
        if not self.rate:
            return 0.0
        now = self._clock()
        left, then = self._left.pop(peer, (self.burst, now))
        left = min(self.burst, left + (now - then) * self.rate)
        allowed = left >= 1.0
        self._left[peer] = (left - 1.0 if allowed else left), now
        if len(self._left) > self._most:
            del self._left[next(iter(self._left))]
        return 0.0 if allowed else (1.0 - left) / self.rate

    def give_back(self, peer: Hashable) -> None:
        """Take back the last request of a peer."""
        if (entry := self._left.get(peer)) is not None:
            self._left[peer] = min(self.burst, entry[0] + 1.0), entry[1]


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LONGEST = 45  # characters of an address
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

    def __contains__(self, address: str | _Address) -> bool:
        parsed = _parsed(address) if isinstance(address, str) else address
        return parsed is not None and any(parsed in network for network in self._networks)


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
            forwarded: the values of X-Forwarded-For, in the order of the headers.

        Returns:
            The rightmost address that is not a trusted proxy, or the leftmost one if all are; the peer where the header is
            malformed; None without the header, or on a connection from another machine.
        """
        if not forwarded or peer not in self.addresses:
            return None
        client = None
        entries = b",".join(forwarded).decode("latin-1").split(",")
        for entry in reversed(entries[-_MOST:]):
            client = _parsed(entry.strip(" \t"))
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
