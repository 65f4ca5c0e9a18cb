"""Declare the faults of a trial of a client, one in each round, and the required reaction of the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from turnout_serve.conform.faults import Exchange, Fault

Check = Callable[[Exchange, Sequence[Exchange]], str | None]
"""Returns the mistake of a client, given the exchange with the fault and those after it; None without a mistake."""


@dataclass(frozen=True)
class Scenario:
    """A fault, and the required reaction.

    Attributes:
        name: name of the scenario.
        route: method, and beginning or end of the path, of the request.
        fault: that is injected.
        check: function that returns the mistake of the client; by default none, where the general rules suffice.
    """

    name: str
    route: tuple[str, str]
    fault: Fault
    check: Check = lambda *_: None

    def fits(self, exchange: Exchange) -> bool:
        """Return whether the fault can be injected into a request."""
        method, end = self.route
        return exchange.method == method and (exchange.path.endswith(end) or exchange.path.startswith(end))


def _again(exchange: Exchange, later: Sequence[Exchange]) -> str | None:
    """Check that the client repeats the request."""
    for request in later:
        if (request.method, request.path) == (exchange.method, exchange.path):
            same = request.headers.get("authorization") == exchange.headers.get("authorization")
            return None if same else "the request comes again with another token"
    return "the request does not come again"


def _same_report(exchange: Exchange, later: Sequence[Exchange]) -> str | None:
    """Check that the client repeats the report or asks for its task, and sends no other report on the task."""
    task = exchange.path.removesuffix("/report")
    reports = [request for request in later if request.path == exchange.path and request.method == "PUT"]
    if any(request.digest != exchange.digest for request in reports):
        return "another report on the same task comes, so the client has trained again"
    confirmed = any(request.path == task and request.table.get("state") == "taken" for request in later)
    return None if reports or confirmed else "the report does not come again"


def _from_the_start(exchange: Exchange, later: Sequence[Exchange]) -> str | None:
    """Check that the client sends the report again from byte 0."""
    reports = [request for request in later if request.path == exchange.path and request.method == "PUT"]
    if reports and reports[0].headers.get("upload-offset", "0") != "0":
        return f"the report goes on at byte {reports[0].headers['upload-offset']}, and the server wants it from 0"
    return _same_report(exchange, later)


def _dropped(exchange: Exchange, later: Sequence[Exchange]) -> str | None:
    """Check that the client drops the report and asks for work."""
    before = takewhile(lambda request: request.path != "/v1/checkin", later)
    if any(request.path == exchange.path and request.method == "PUT" for request in before):
        return "the report comes again, and it will never be taken"
    return None if any(request.path == "/v1/checkin" for request in later) else "the client does not ask for work again"


def _downloaded_again(exchange: Exchange, later: Sequence[Exchange]) -> str | None:
    """Check that the client downloads the model again before it reports."""
    before = list(takewhile(lambda request: request.method != "PUT", later))
    if any(request.path == exchange.path and request.method == "GET" for request in before):
        return None
    return "the model is not asked for again, although its digest is wrong"


def _refused(status: int, **fields: object) -> Fault:
    wait = {"retry-after": "1"} if status in (429, 503) else {}
    return Fault("status", status, {"reason": "on purpose", **fields}, wait)


_RUN, _ENROLL, _CHECKIN = ("GET", "/v1/run"), ("POST", "/v1/enrol"), ("POST", "/v1/checkin")
_MODEL, _REPORT = ("GET", "/v1/models/"), ("PUT", "/report")

SCENARIOS = (
    Scenario("503 to a description", _RUN, _refused(503), _again),
    Scenario("503 to an enrollment", _ENROLL, _refused(503), _again),
    Scenario("an enrollment whose answer is lost", _ENROLL, Fault("lose_answer"), _again),
    Scenario("429 to a question for work", _CHECKIN, _refused(429, seconds=1.0), _again),
    Scenario("come_back", _CHECKIN, Fault("status", 200, {"come_back": [0.3, 0.4]}), _again),
    Scenario("a question that is lost", _CHECKIN, Fault("drop"), _again),
    Scenario("an answer of somebody else", _CHECKIN, Fault("status", 200, {"hello": "proxy"}), _again),
    Scenario("a model that is cut", _MODEL, Fault("cut_answer"), _downloaded_again),
    Scenario("a model that is damaged", _MODEL, Fault("damage"), _downloaded_again),
    Scenario("an upload that is cut", _REPORT, Fault("cut_request"), _same_report),
    Scenario("a report whose answer is lost", _REPORT, Fault("lose_answer"), _same_report),
    Scenario("a report that a proxy sends twice", _REPORT, Fault("twice")),
    Scenario("409 with offset 0", _REPORT, _refused(409, offset=0), _from_the_start),
    Scenario("503 to a report", _REPORT, _refused(503), _same_report),
    Scenario("429 to a report", _REPORT, _refused(429, seconds=1.0), _same_report),
    Scenario("500 to a report", _REPORT, _refused(500), _same_report),
    Scenario("200 of a proxy to a report", _REPORT, Fault("status", 200, {"hello": "proxy"}), _same_report),
    Scenario("404 of a proxy to a report", _REPORT, Fault("status", 404), _same_report),
    Scenario("410 to a report", _REPORT, _refused(410), _dropped),
    Scenario("413 to a report", _REPORT, _refused(413), _dropped),
    Scenario("422 to a report", _REPORT, _refused(422), _dropped),
    Scenario("409 without offset", _REPORT, _refused(409), _dropped),
    Scenario("a restart of the server", _REPORT, Fault("drop", action="restart"), _same_report),
    Scenario("a client that is killed", _REPORT, Fault("drop", action="kill"), _same_report),
)
"""All scenarios in their order; each takes place once, in a round of its own."""
