"""JSON bodies of requests and answers, each declared once: read strictly by both sides, and described in ``openapi.json``.

A field that may be left out has a default. Further fields are allowed everywhere: readers ignore what they do not know.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, model_validator

from turnout.core.checks import TurnoutError
from turnout.deployment.wire.data_shape import DataShape, within_limits
from turnout.deployment.wire.edge import BIG, WHOLE, Count, Digest, Number, Printable, read
from turnout.deployment.wire.format import PROTOCOL, Assignment

_MOST_NUMBERS = 1 << 28  # of an example

Version = Annotated[int, Field(strict=True, ge=0, le=(1 << 31) - 1), WHOLE]
"""A version of the protocol."""
RunName = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
"""The name of a run, which is also that of a folder."""


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
        return read(cls.model_validate, fields)


class Reason(Body):
    """Why a request was not done."""

    reason: str
    seconds: Number = 0.0
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
    """A request to become a client."""

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
    """The state of a task, and the bytes of a report that have arrived on an open one."""

    state: Literal["open", "taken", "dropped"]
    digest: Digest = ""
    reason: str = ""
    offset: Count = 0
    store: Links = Links()


class Fail(Body):
    """Why a client gives a task up."""

    reason: Printable | None = None
