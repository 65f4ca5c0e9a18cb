"""JSON bodies of requests and answers, each declared once: both sides validate them, and ``openapi.json`` describes them.

An optional field has a default. Unknown fields are allowed everywhere, and ignored.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, RootModel, model_validator

from turnout.core.checks import TurnoutError
from turnout.record.contents import Finite
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.data_shape import DataShape, within_limits
from turnout_serve.wire.edge import BIG, WHOLE, Body, Count, Digest, Printable
from turnout_serve.wire.format import PROTOCOL

_MAX_NUMBERS = 1 << 28  # of an example

Version = Annotated[int, Field(strict=True, ge=0, le=(1 << 31) - 1), WHOLE]
"""A version of the protocol."""
RunName = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
"""The name of a run, which may be the name of a folder."""


class OtherProtocol(TurnoutError):
    """The other side speaks another version of the protocol."""


class Reason(Body):
    """Reason of a refusal."""

    reason: str
    seconds: Finite = 0.0
    offset: Count = 0


class Nothing(Body):
    """An object without fields."""


class Seen(Body):
    """One kind of information about a client that the server sees."""

    kind: str
    what: str
    piece: str


def _check_input_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if math.prod(shape) > _MAX_NUMBERS:
        raise ValueError(f"needed an example of at most {_MAX_NUMBERS:,} numbers")
    return shape


class Run(Body):
    """Description of a run, and of the computation of its clients."""

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
    evaluation: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any]
    secure: dict[str, Any] | None = None


class Enroll(Body):
    """A request to become a client."""

    protocol: Annotated[Version, Field(json_schema_extra={"const": PROTOCOL})]
    name: Printable | None = None
    code: Printable | None = None
    data: Annotated[DataShape, AfterValidator(within_limits)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_protocol(cls, fields: Any) -> Any:
        # Before all other fields, whose type may differ in another version of the protocol.
        protocol = fields.get("protocol", 0) if isinstance(fields, dict) else PROTOCOL
        if type(protocol) in (int, float) and protocol != PROTOCOL:
            raise OtherProtocol(f"this server speaks protocol {PROTOCOL}, the client {protocol}: update it")
        return fields


class Client(Body):
    """A client of the run."""

    client: Count
    run: RunName


class Checkin(Body):
    """A request for work: seconds that it may wait, and with ``after`` the version that the model has to be later than."""

    protocol: Version = PROTOCOL
    wait: Annotated[Finite, Field(ge=0, le=1e9)] = 0.0
    after: Annotated[int, Field(strict=True, ge=-1, le=BIG), WHOLE] = -1


class Links(Body):
    """Links to an object store for the model and the report of a task."""

    model: Annotated[str, Field(max_length=4096)] = ""
    report: Annotated[str, Field(max_length=4096)] = ""


class Assigned(Body):
    """A task, and links where the run has an object store."""

    task: Assignment
    store: Links = Links()


class ComeBack(Body):
    """Minimum and maximum of the seconds after which to ask again."""

    come_back: tuple[Annotated[Finite, Field(ge=0)], Annotated[Finite, Field(ge=0)]]


class Over(Body):
    """Reason that the run is over, and digest of its last model."""

    over: str
    model: Digest | None = None


class Work(RootModel[Assigned | ComeBack | Over]):
    """The answer to a request for work."""


class TaskState(Body):
    """State of a task; of an open one, the number of received bytes of a report."""

    state: Literal["open", "taken", "dropped"]
    digest: Digest = ""
    reason: str = ""
    offset: Count = 0
    store: Links = Links()


class Fail(Body):
    """Reason for which a client gives a task up."""

    reason: Printable | None = None
