"""Limits of connections and requests: their sizes, times and numbers."""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass, fields

from turnout.core.checks import positive

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LONGEST = 45  # characters of an address


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
    if (peer := parsed(address.partition("%")[0])) is None:
        return address
    if peer.is_loopback:
        return None
    return str(peer if peer.version == 4 else ipaddress.ip_network((peer, 64), strict=False))


def parsed(text: str) -> Address | None:
    """Parse an address, an IPv4-mapped one as IPv4; return None for anything else, such as one with a port or a zone."""
    if len(text) > _LONGEST or "%" in text:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


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
