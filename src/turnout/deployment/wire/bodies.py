"""JSON bodies of requests and answers, each declared once: read strictly by both sides, and described in ``openapi.json``.

A field that may be left out has a default. Further fields are allowed everywhere: readers ignore what they do not know.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, TypeAdapter, model_validator

from turnout.core.checks import TurnoutError
from turnout.deployment.wire.administrator import MOST_CODES, Change
from turnout.deployment.wire.data_shape import DataShape, within_limits
from turnout.deployment.wire.edge import BIG, WHOLE, Count, Digest, Number, Printable, read
from turnout.deployment.wire.format import PROTOCOL, Assignment
from turnout.protocol.survey import SurveyPhase

_LONGEST = 30 * 86_400.0  # seconds that an evaluation can go on
_MOST_NUMBERS = 1 << 28  # of an example

Version = Annotated[int, Field(strict=True, ge=0, le=(1 << 31) - 1), WHOLE]
"""A version of the protocol."""
RunName = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
"""The name of a run, which is also that of a folder."""
Share = Annotated[Number, Field(ge=0, le=1)]


class OtherProtocol(TurnoutError):
    """The other side speaks another version of the protocol."""


class Body(BaseModel):
    """A JSON object."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls, fields: Any) -> Self:
        """Read a parsed body.

        Raises:
            Malformed: where a field is missing or wrong.
            OtherProtocol: for an enrolment by another version of the protocol.
        """
        return read(TypeAdapter(cls), fields)


class Reason(Body):
    """Why a request was not done."""

    reason: str
    seconds: Number = 0.0
    offset: Count = 0


class Offset(Body):
    """From which byte on a report is to be sent."""

    reason: str
    offset: Count = 0


class Nothing(Body):
    """An object without fields that matter."""


class Seen(Body):
    """One thing that the server sees of a client."""

    kind: str
    what: str
    piece: str


def _check_input_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if math.prod(shape) > _MOST_NUMBERS:
        raise ValueError(f"needed an example of at most {_MOST_NUMBERS:,} numbers")
    return shape


class Run(Body):
    """The run of a server, and what clients compute in it."""

    protocol: Version
    run: RunName
    algorithm: str
    engine: str | None = None
    settings: dict[str, Any] | None
    describes: dict[str, Any]
    num_classes: Annotated[int, Field(strict=True, gt=0, lt=1 << 31), WHOLE] | None
    input_shape: (
        Annotated[
            tuple[Annotated[int, Field(strict=True, ge=1, le=BIG), WHOLE], ...],
            Field(max_length=9),
            AfterValidator(_check_input_shape),
        ]
        | None
    )
    data: dict[str, Any] | None = None
    enrolment: Literal["open", "codes"]
    sees: list[Seen]
    evaluation: dict[str, Any] = {}
    training: dict[str, Any]
    secure: dict[str, Any] | None = None


class Enrol(Body):
    """Who wants to become a client."""

    protocol: Annotated[Version, Field(json_schema_extra={"const": PROTOCOL})]
    name: Printable | None = None
    code: Printable | None = None
    data: Annotated[DataShape, AfterValidator(within_limits)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_protocol(cls, fields: Any) -> Any:
        # Before all other fields, whose form another version of the protocol may have changed.
        protocol = fields.get("protocol", 0) if isinstance(fields, dict) else PROTOCOL
        if type(protocol) in (int, float) and protocol != PROTOCOL:
            raise OtherProtocol(f"this server speaks protocol {PROTOCOL}, the client {protocol}: update it")
        return fields


class Client(Body):
    """A client of the run."""

    client: Count
    run: RunName


class Checkin(Body):
    """A question for work, and for how many seconds it may be held; ``after`` is a version that is of no use any more."""

    protocol: Version = PROTOCOL
    wait: Annotated[Number, Field(ge=0, le=1e9)] = 0.0
    after: Annotated[int, Field(strict=True, ge=-1, le=BIG), WHOLE] = -1


class Links(Body):
    """Links to an object store, each for one thing that a task needs."""

    model: Annotated[str, Field(max_length=4096)] = ""
    report: Annotated[str, Field(max_length=4096)] = ""


class Assigned(Body):
    """A task, and links where the run has an object store."""

    task: Assignment
    store: Links = Links()


class ComeBack(Body):
    """The seconds after which to ask again, at least and at most."""

    come_back: tuple[Annotated[Number, Field(ge=0)], Annotated[Number, Field(ge=0)]]


class Over(Body):
    """Why the run is over, and the digest of its last model."""

    over: str
    model: Digest | None = None


class Work(RootModel[Assigned | ComeBack | Over]):
    """The answer to a question for work."""


class TaskState(Body):
    """What became of a task; of an open one, how many bytes of a report have arrived."""

    state: Literal["open", "taken", "dropped"]
    digest: Digest = ""
    reason: str = ""
    offset: Count = 0
    store: Links = Links()


class Fail(Body):
    """Why a client gives a task up."""

    reason: Printable | None = None


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
    """What a client is after a change."""

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
    """How an evaluation or query stands, or what came of it."""

    survey: Count
    phase: SurveyPhase
    state: Literal["open", "closed"]
    version: Count
    asked: Count
    answered: Count
    lost: dict[str, Any]
    figures: dict[str, Any] = {}
    epsilon: Number = 0.0
    unopened: str = ""


class NumberOfCodes(Body):
    """How many one-time codes to draw."""

    number: Annotated[int, Field(strict=True, ge=1, le=MOST_CODES), WHOLE] = 1


class NewCodes(Body):
    """New one-time codes."""

    codes: list[str]


class Code(Body):
    """A one-time code; None is all that nobody has used."""

    code: Printable | None = None


class Codes(Body):
    """How many one-time codes were used, were not, and were withdrawn by this request."""

    used: Count
    unused: Count
    withdrawn: Count = 0


class Privacy(Body):
    """What a run with differential privacy has spent; an infinite epsilon is null."""

    epsilon: Number | None
    delta: Number
    budget: Number | None = None
    answers: Count = 0
    most_answers: Count = 0


class Heard(Body):
    """Distributions over clients at a version: the share of those never heard, and eleven quantiles of each figure."""

    version: Count = 0
    never: Share = 0.0
    deciles: dict[str, Annotated[list[Number], Field(min_length=11, max_length=11)]] = {}


class Evaluation(Body):
    """What came of the last evaluation by clients."""

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
    curves: dict[str, Any] = {}
    privacy: Privacy | None = None
    heard: Heard = Heard()
    evaluation: Evaluation | None = None
