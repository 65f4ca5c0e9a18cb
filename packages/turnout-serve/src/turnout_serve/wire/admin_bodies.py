"""JSON bodies of an administrator's requests and their answers; see `turnout_serve.wire.bodies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from turnout.record.contents import Finite
from turnout_serve.wire.administrator import MOST_CODES, Change
from turnout_serve.wire.edge import WHOLE, Body, Count, Digest, Printable, Share

SurveyPhase = Literal["evaluate", "query"]
"""That of `turnout.protocol.survey`, which needs PyTorch."""

_LONGEST = 30 * 86_400.0  # seconds of an evaluation


class Row(Body):
    """A client in the list of clients.

    ``seen`` is the number of seconds since its last request, ``dropped`` counts its tasks that ended without being used,
    ``refused`` its reports that broke a rule, and ``refusal`` is the reason of the last one. ``code`` is the SHA-256 of the
    one-time code with which it enrolled, and ``certificate`` the subject of the certificate that it showed last.
    """

    client: Count
    name: str
    state: Literal["there", "away", "at work", "banned", "removed"]
    reason: str | None
    seen: Finite | None
    reports: Count
    participation: Finite
    unusable: Count
    dropped: Count = 0
    refused: Count = 0
    refusal: str | None = None
    code: Digest | None = None
    certificate: str | None = None


class Clients(Body):
    """A page of the list of clients, and the first number of the next page."""

    clients: list[Row]
    next: Count | None
    version: Count


class ClientChange(Body):
    """A change of a client: ``text`` is its name, or the reason of a ban."""

    change: Change
    text: Printable | None = None


class Changed(Body):
    """The state of a client after a change."""

    client: Count
    state: str


class Survey(Body):
    """An evaluation or query, of a share of the clients; ``seconds`` keeps it open for clients that join."""

    phase: SurveyPhase
    share: Share = 1.0
    seconds: Annotated[Finite, Field(ge=0, le=_LONGEST)] | None = None
    question: dict[str, Any] | None = None


class SurveyNumber(Body):
    """The number of an evaluation or query."""

    survey: Count


class SurveyState(Body):
    """The state of an evaluation or query, and its result once it is closed."""

    survey: Count
    phase: SurveyPhase
    state: Literal["open", "closed"]
    version: Count
    asked: Count
    answered: Count
    lost: dict[str, Any]
    figures: dict[str, Any] = Field(default_factory=dict)
    epsilon: Finite = 0.0
    unopened: str = ""


class NumberOfCodes(Body):
    """The number of one-time codes to draw."""

    number: Annotated[int, Field(strict=True, ge=1, le=MOST_CODES), WHOLE] = 1


class NewCodes(Body):
    """New one-time codes."""

    codes: list[str]


class Code(Body):
    """A one-time code; None stands for all unused ones."""

    code: Printable | None = None


class Codes(Body):
    """The numbers of one-time codes that are used, that are unused, and that this request withdrew.

    The first 1,000 unused ones are listed by their SHA-256, because the server keeps no codes.
    """

    used: Count
    unused: Count
    withdrawn: Count = 0
    free: list[Digest] = Field(default_factory=list)
