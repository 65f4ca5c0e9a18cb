"""JSON bodies of an administrator's requests and their answers, and of the status; see `turnout.deployment.wire.bodies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from turnout.deployment.wire.administrator import MOST_CODES, Change
from turnout.deployment.wire.bodies import Body
from turnout.deployment.wire.edge import WHOLE, Count, Number, Printable
from turnout.protocol.survey import SurveyPhase

_LONGEST = 30 * 86_400.0  # seconds that an evaluation can go on

Share = Annotated[Number, Field(ge=0, le=1)]


class Row(Body):
    """A client in the list of clients; ``seen`` is how many seconds ago it was heard of."""

    client: Count
    name: str
    state: Literal["there", "away", "at work", "banned", "removed"]
    reason: str | None
    seen: Number | None
    reports: Count
    participation: Number
    unusable: Count


class Clients(Body):
    """A page of the list of clients, and the number from which the next page goes on."""

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
    """An evaluation or query, of a share of the clients; ``seconds`` have it wait for clients who come."""

    phase: SurveyPhase
    share: Share = 1.0
    seconds: Annotated[Number, Field(ge=0, le=_LONGEST)] | None = None
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
    epsilon: Number = 0.0
    unopened: str = ""


class NumberOfCodes(Body):
    """The number of one-time codes to draw."""

    number: Annotated[int, Field(strict=True, ge=1, le=MOST_CODES), WHOLE] = 1


class NewCodes(Body):
    """New one-time codes."""

    codes: list[str]


class Code(Body):
    """A one-time code; None is all that nobody has used."""

    code: Printable | None = None


class Codes(Body):
    """The numbers of one-time codes that were used, that were not, and that this request withdrew."""

    used: Count
    unused: Count
    withdrawn: Count = 0


class Privacy(Body):
    """The privacy budget that a run has spent; an infinite epsilon is null."""

    epsilon: Number | None
    delta: Number
    budget: Number | None = None
    answers: Count = 0
    most_answers: Count = 0


class Heard(Body):
    """Distributions over clients at a version: the share of those never heard, and eleven quantiles of each figure."""

    version: Count = 0
    never: Share = 0.0
    deciles: dict[str, Annotated[list[Number], Field(min_length=11, max_length=11)]] = Field(default_factory=dict)


class Evaluation(Body):
    """The result of the last evaluation by clients."""

    version: Count
    asked: Count
    answered: Count
    lost: dict[str, Any]
    figures: dict[str, Number]


class Status(Body):
    """The figures of a run."""

    run: str
    algorithm: str
    pace: str
    version: Count
    rounds: Count
    state: str
    enrolled: Count
    there: Count
    at_work: Count
    curves: dict[str, Any] = Field(default_factory=dict)
    privacy: Privacy | None = None
    heard: Heard = Heard()
    evaluation: Evaluation | None = None
