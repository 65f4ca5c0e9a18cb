"""Limits of what anybody may send to a server: sizes, times, connections, and requests a second."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields

from turnout.core.checks import positive


@dataclass(frozen=True)
class Limits:
    """Limits of what a server reads, waits for and holds. All of them hold before a token is looked at.

    Attributes:
        connections: open connections of all clients; more are refused. There are fewer where the operating system does not
            have as many file descriptors and 256 more.
        per_address: open connections of one address (IPv6: one /64), and requests in flight of one address for which a
            trusted proxy asks. Connections from this machine are not limited, because a proxy or a swarm connects from there.
        head: bytes of the request line, the headers, chunk sizes and trailers of one request.
        num_headers: headers of one request.
        head_seconds: until the headers of a request have come, and until a connection has begun its next request.
        body_seconds: until a JSON body has come, and until the rest of a body has come that nobody reads.
        write_seconds: until a client has read what is waiting for it.
        stall_seconds: until the next piece of a report has come.
        upload_rate: bytes a second that an upload brings in the long run. A slower one is cut, and keeps no lease alive.
        upload_seconds: until an upload is cut; it goes on where it ended.
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
    """Return what one peer is counted by: its IPv4 address or its IPv6 network of 64 bits; None for this machine.

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
    """Open connections, or forwarded requests in flight, and how many there are by address.

    Args:
        limits: how many there may be.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._open = limits, set[object]()
        self._networks: Counter[str] = Counter()

    def admit(self, connection: object, network: str | None) -> bool:
        """Count a connection; return whether there may be one more."""
        full = network is not None and self._networks[network] >= self._limits.per_address
        if full or len(self._open) >= self._limits.connections:
            return False
        self._open.add(connection)
        if network is not None:
            self._networks[network] += 1
        return True

    def forget(self, connection: object, network: str | None) -> None:
        """Count a connection no more, if it was admitted."""
        if connection in self._open:
            self._open.remove(connection)
            if network is not None:
                self._networks[network] -= 1
                if not self._networks[network]:
                    del self._networks[network]


class RateLimit:
    """At most `rate` requests a second of anyone in the long run, and `burst` at once.

    Args:
        rate: requests a second; 0 is no limit.
        burst: requests that may come at once.
        most: how many are remembered; whoever has not asked for long is forgotten first.
        clock: seconds; for tests.
    """

    def __init__(
        self, rate: float, burst: float, most: int = 100_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst, self._most, self._clock = rate, burst, most, clock
        self._left: dict[Hashable, tuple[float, float]] = {}

    def wait(self, peer: Hashable) -> float:
        """Return 0 and count a request, or the seconds after which there may be one."""
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
        """Count the last request of `who` no more."""
        if (entry := self._left.get(peer)) is not None:
            self._left[peer] = min(self.burst, entry[0] + 1.0), entry[1]
