"""Limits by address: no client can choose the address by which it is counted, behind a proxy or without one."""

import contextlib
import json
import time

import pytest

from turnout.core.checks import ConfigurationError
from turnout_serve.server.enrollment import hashed
from turnout_serve.server.http import sockets
from turnout_serve.server.http.app import Http
from turnout_serve.server.http.limits import Limits
from turnout_serve.server.http.proxies import Networks, Proxies
from turnout_serve.server.options import Options

from .test_hostile import RUN
from .test_sockets import TOKEN, alive, ask, connected, listening
from .world import ADMINISTRATOR, World

PROXIES = Proxies(["127.0.0.1", "10.0.0.0/24", "2001:db8:1::/64"])
FORWARDED = b"GET /v1/run HTTP/1.1\r\nconnection: close\r\nx-forwarded-for: %s\r\n\r\n"
UPLOAD = b"POST /v1/enrol HTTP/1.1\r\ncontent-length: 99\r\nx-forwarded-for: %s\r\n" + TOKEN + b"\r\n"


@pytest.mark.parametrize(
    ("peer", "header", "client"),
    [
        ("127.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:127.0.0.1", ["::ffff:203.0.113.9"], "203.0.113.9"),
        ("2001:db8:1::7", ["203.0.113.9\t, 10.0.0.2", " 2001:db8:1::8"], "203.0.113.9"),
        ("127.0.0.1", ["192.0.2.1, 127.0.0.1, 203.0.113.9"], "203.0.113.9"),  # all but the last are the client's
        ("127.0.0.1", ["garbage, \xff, 203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["10.0.0.7, 10.0.0.2"], "10.0.0.7"),
        ("198.51.100.7", ["203.0.113.9"], None),
        ("10.0.1.2", ["203.0.113.9"], None),
        ("test", ["203.0.113.9"], None),
        *(
            ("10.0.0.2", [header], "10.0.0.2")
            for header in (
                *("", ",", "203.0.113.9,", "unknown", "203.0.113.9:80", "[2001:db8::1]", "fe80::1%eth0", "010.0.0.1"),
                *("\xb2.0.0.1", "0" * 5000, "203.0.113.9 " + " " * 5000 + "x", "10.0.0.3," * 5000 + "10.0.0.3"),
            )
        ),
    ],
)
def test_forwarded_address_is_used_for_trusted_proxies(peer, header, client):
    """The header counts from trusted proxies, from the right, and where it is malformed the address of the peer does."""
    assert PROXIES.client(peer, [value.encode("latin-1") for value in header]) == client


@pytest.mark.parametrize("network", ["nginx", "", "10.0.0.1/24", "0.0.0.0/0", "::/0", "::ffff:10.0.0.1"])
def test_invalid_networks_are_refused(network):
    with pytest.raises(ConfigurationError, match=r"^proxy_headers: got .*, needed the address of a proxy, such as"):
        Proxies(["127.0.0.1", network])


def test_requests_in_flight_are_counted_by_client():
    """Through one proxy: an address of IPv4 and a /64 have so many, whatever precedes them; others go on."""
    with listening(limits=Limits(per_address=2), proxies=PROXIES) as port:
        for busy, same, other in [
            (b"203.0.113.9", b"192.0.2.1, ::ffff:203.0.113.9", b"203.0.113.9, 192.0.2.1"),
            (b"2001:db8:2::1", b"2001:db8:2::2", b"2001:db8:2:1::1"),
            (b"127.0.0.2", b"127.0.0.2", b"127.0.0.3"),  # of this machine, as the proxy says
        ]:
            with contextlib.ExitStack() as stack:
                for _ in range(2):
                    stack.enter_context(connected(port)).sendall(UPLOAD % busy)
                while not (got := ask(port, FORWARDED % same)).startswith(b"HTTP/1.1 429 "):
                    assert got.startswith(b"HTTP/1.1 200 ")  # the two have not been read yet
                assert b"retry-after: 5\r\n" in got
                assert "in flight" in json.loads(got.partition(b"\r\n\r\n")[2])["reason"]
                assert ask(port, FORWARDED % other).startswith(b"HTTP/1.1 200 ")
                assert alive(port)
            while not ask(port, FORWARDED % same).startswith(b"HTTP/1.1 200 "):
                pass  # until the server has noticed that the two are gone


def test_connections_of_a_proxy_are_not_counted(monkeypatch):
    """A trusted proxy on another machine has as many as it needs; an untrusted one has not, whatever it says."""
    monkeypatch.setattr(sockets, "network_of", lambda address: address)
    for proxies, answer in ((PROXIES, b"HTTP/1.1 200 "), (Proxies(["10.0.0.2"]), b"HTTP/1.1 429 ")):
        with listening(limits=Limits(per_address=2), proxies=proxies) as port, contextlib.ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(connected(port))
            assert ask(port, FORWARDED % b"203.0.113.9").startswith(answer)


def test_connections_of_a_trusted_machine_are_not_counted(monkeypatch):
    """Of an operator's own swarm on another machine."""
    monkeypatch.setattr(sockets, "network_of", lambda address: address)
    for trusted, answer in ((Networks(["127.0.0.0/8"]), b"HTTP/1.1 200 "), (Networks(), b"HTTP/1.1 429 ")):
        with listening(limits=Limits(per_address=2), trusted=trusted) as port, contextlib.ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(connected(port))
            assert ask(port, b"GET /v1/run HTTP/1.1\r\nconnection: close\r\n\r\n").startswith(answer)


class TestEnrollments:
    """Two new clients an hour of each address; this machine's are counted only where a proxy forwards them."""

    @pytest.fixture
    def host(self, folder):
        with contextlib.closing(World(RUN, folder)) as world:
            world.host.service.enrollment.needs_code = True
            world.host.peer = "127.0.0.1"
            trusted = Networks(["198.51.100.0/24"])
            options = Options(rate=0, enrollments_per_address=2, proxies=PROXIES, trusted=trusted)
            self.http = Http(world.host.service, {}, options, hashed(ADMINISTRATOR))
            world.host.app = self.http.app()
            self.codes = world.host.administer("POST", "codes/add", number=20).table()["codes"]
            yield world.host

    def enroll(self, host, name, forwarded=None, code=None):
        """Enroll with the next code, or with another one."""
        headers = {"authorization": f"Bearer {name * 40}"}
        if forwarded is not None:
            headers["x-forwarded-for"] = forwarded
        body = {"protocol": 2, "code": self.codes[0] if code is None else code}
        answer = host.send("POST", "/v1/enrol", json.dumps(body).encode(), headers)
        if answer.status == 201:
            del self.codes[0]
        return answer

    def statuses(self, host, names, *forwarded):
        return [self.enroll(host, name, each).status for name, each in zip(names, forwarded, strict=True)]

    def test_of_one_network(self, host):
        """Also with other addresses of the /64, other notations, and other entries further left."""
        v6 = ("2001:db8:2::1", "2001:db8:2::2", "2001:db8:2:0:ffff::3", "192.0.2.1, 2001:DB8:2::4", "2001:db8:2:1::1")
        assert self.statuses(host, "abcde", *v6) == [201, 201, 429, 429, 201]
        v4 = ("203.0.113.9", "::ffff:203.0.113.9", "192.0.2.1, 203.0.113.9", "203.0.113.9, 192.0.2.1")
        assert self.statuses(host, "fghi", *v4) == [201, 201, 429, 201]
        assert self.statuses(host, "jkl", "127.0.0.2", "127.0.0.2", "127.0.0.2") == [201, 201, 429]

    def test_a_header_that_is_not_believed(self, host):
        """Another address in each request helps nobody without a proxy, and garbage nobody behind one."""
        host.peer = "192.0.2.7"
        assert self.statuses(host, "abc", "203.0.113.1", "203.0.113.2", "203.0.113.3") == [201, 201, 429]
        host.peer = "10.0.0.2"
        assert self.statuses(host, "def", "garbage1", "203.0.113.5:80", "9" * 5000) == [201, 201, 429]

    def test_this_machine_is_not_counted(self, host):
        assert self.statuses(host, "abcd", None, None, None, None) == [201] * 4

    def test_a_trusted_machine_is_not_counted(self, host):
        """By its own address or by that which a trusted proxy gives, and not because an untrusted peer says so."""
        assert self.statuses(host, "abcd", *["198.51.100.7"] * 4) == [201] * 4
        host.peer = "198.51.100.8"
        assert self.statuses(host, "efgh", None, None, None, "203.0.113.1") == [201] * 4
        host.peer = "192.0.2.7"
        assert self.statuses(host, "ijk", *["198.51.100.7"] * 3) == [201, 201, 429]

    def test_clients_and_refused_newcomers_are_not_counted(self, host):
        """Clients enroll again at every start, and those without a code do not keep others out."""
        address = "203.0.113.9"
        assert self.enroll(host, "a", address).status == 201
        assert [self.enroll(host, "a", address).status for _ in range(5)] == [200] * 5
        assert [self.enroll(host, name, address, "wrong").status for name in "bcdef"] == [403] * 5
        assert self.statuses(host, "bc", address, address) == [201, 429]
        assert [self.enroll(host, name, address).status for name in "ab"] == [200, 200]

    def test_a_refused_enrollment_uses_no_code(self, host, monkeypatch):
        """It gets 429 with a time, after which the same code makes a client; the journal has nothing of the refusal."""
        address, now = "203.0.113.9", [time.monotonic()]
        monkeypatch.setattr(self.http._gate.newcomers, "_clock", lambda: now[0])
        assert self.statuses(host, "ab", address, address) == [201, 201]
        code, entries = self.codes[0], host.service.num_clients
        refused = self.enroll(host, "c", address, code)
        assert refused.status == 429
        assert refused.table()["reason"] == (
            "too many new clients of this address: try again in 1800.0 seconds; or start the server with --trusted-addresses"
        )
        assert refused.headers["retry-after"] == "1801"
        assert host.service.num_clients == entries
        assert host.administer("GET", "codes").table() | {"free": []} == {"used": 2, "unused": 18, "free": []}
        assert self.enroll(host, "d", "203.0.113.10", code).status == 201
        now[0] += 1801
        assert self.enroll(host, "c", address).status == 201
