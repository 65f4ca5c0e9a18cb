"""The protocol as an OpenAPI document, built from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from turnout.deployment.server.routes import BINARY, JSON, ROUTES, Route
from turnout.deployment.wire.administrator import CHANGES, MOST_CODES
from turnout.deployment.wire.data_shape import MOST_NUMBERS, TYPES
from turnout.deployment.wire.format import PROTOCOL
from turnout.protocol.survey import SURVEYS
from turnout.version import __version__

Schema = dict[str, Any]


def _object(required: str = "", **properties: Schema) -> Schema:
    """Return the schema of an object. Further properties are allowed: readers ignore what they do not know."""
    return {"type": "object", "required": required.split(), "properties": properties}


def _text(**more: Any) -> Schema:
    return {"type": "string", **more}


def _whole(least: int, most: int, **more: Any) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def _nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_BIG = (1 << 53) - 1
_DIGEST = _text(pattern="^[0-9a-f]{64}$")
_NUMBER: Schema = {"type": "number"}
_FREE: Schema = {"type": "object"}
_PRINTABLE = _nullable(_text(maxLength=100, pattern=r"^( |[^\p{C}\p{Z}])*$"))
_STATES = {"enum": ["open", "taken", "dropped"]}

_LINKS = _object(model=_text(maxLength=4096), report=_text(maxLength=4096))

_ASSIGNMENT = _object(
    "task version phase repeat model size heartbeat told fingerprint",
    task=_whole(0, _BIG),
    version=_whole(-1, _BIG),
    phase=_text(pattern="^[a-z_]{1,40}$"),
    repeat=_whole(0, _BIG),
    model=_DIGEST,
    size=_whole(0, _BIG),
    heartbeat=_NUMBER,
    told={
        "type": "object",
        "additionalProperties": {
            "type": "array",
            "description": "Type, shape, and bytes in hexadecimal digits.",
            "items": {"type": ["string", "array"], "items": _whole(0, _BIG)},
            "minItems": 3,
            "maxItems": 3,
        },
    },
    fingerprint=_text(pattern="^[0-9a-f]{32}$"),
)

_SIZES: Schema = {"type": "array", "items": _whole(1, MOST_NUMBERS), "maxItems": 6}
_SHAPE = _object(
    inputs=_SIZES,
    input_type={"enum": list(TYPES)},
    target_shape=_SIZES,
    classes=_whole(1, MOST_NUMBERS),
    outputs=_whole(1, MOST_NUMBERS),
)

SCHEMAS: dict[str, Schema] = {
    "Reason": _object("reason", reason=_text(), seconds=_NUMBER, offset=_whole(0, _BIG)),
    "Offset": _object("reason", reason=_text(), offset=_whole(0, _BIG)),
    "Nothing": _object(),
    "Run": _object(
        "protocol run algorithm settings describes num_classes input_shape enrolment sees training",
        protocol=_whole(0, (1 << 31) - 1),
        run=_text(pattern="^[A-Za-z0-9_-]{1,64}$"),
        algorithm=_text(),
        engine={"type": ["string", "null"]},
        settings={"type": ["object", "null"]},
        describes=_FREE,
        num_classes={"type": ["integer", "null"]},
        input_shape={"type": ["array", "null"], "items": _whole(1, _BIG)},
        data=_nullable(_SHAPE),
        enrolment={"enum": ["open", "codes"]},
        sees={
            "type": "array",
            "items": _object("kind what piece", kind=_text(), what=_text(), piece=_text()),
        },
        evaluation=_FREE,
        training=_FREE,
        secure={"type": ["object", "null"]},
    ),
    "Enrol": _object(
        "protocol",
        protocol=_whole(PROTOCOL, PROTOCOL, description="The version of the protocol that the client speaks."),
        name=_PRINTABLE,
        code=_PRINTABLE,
        data=_nullable({**_SHAPE, "required": ["inputs", "input_type"]}),
    ),
    "DataShape": _SHAPE,
    "Client": _object("client run", client=_whole(0, _BIG), run=_text(pattern="^[A-Za-z0-9_-]{1,64}$")),
    "Checkin": _object(
        protocol=_whole(0, (1 << 31) - 1),
        wait={"type": "number", "minimum": 0, "maximum": 1e9},
        after=_whole(-1, _BIG),
    ),
    "Work": {
        "oneOf": [
            _object("task", task=_ASSIGNMENT, store=_LINKS),
            _object(
                "come_back",
                come_back={"type": "array", "items": {**_NUMBER, "minimum": 0}, "minItems": 2, "maxItems": 2},
            ),
            _object("over", over=_text(), model=_nullable(_DIGEST)),
        ]
    },
    "TaskState": _object("state", state=_STATES, digest=_DIGEST, reason=_text(), offset=_whole(0, _BIG), store=_LINKS),
    "Fail": _object(reason=_PRINTABLE),
    "Clients": _object(
        "clients next version",
        clients={
            "type": "array",
            "items": _object(
                "client name state reason seen reports participation unusable",
                client=_whole(0, _BIG),
                name=_text(),
                state={"enum": ["there", "away", "at work", "banned", "removed"]},
                reason=_nullable(_text()),
                seen=_nullable(_NUMBER),
                reports=_whole(0, _BIG),
                participation=_NUMBER,
                unusable=_whole(0, _BIG),
            ),
        },
        next=_nullable(_whole(0, _BIG)),
        version=_whole(0, _BIG),
    ),
    "Change": _object(
        "change",
        change={"enum": list(CHANGES)},
        text=_PRINTABLE,
    ),
    "Changed": _object("client state", client=_whole(0, _BIG), state=_text()),
    "Survey": _object(
        "phase",
        phase={"enum": list(SURVEYS)},
        share={**_NUMBER, "minimum": 0, "maximum": 1},
        seconds=_nullable(_NUMBER),
        question=_nullable(_FREE),
    ),
    "SurveyNumber": _object("survey", survey=_whole(0, _BIG)),
    "SurveyState": _object(
        "survey phase state version asked answered lost",
        survey=_whole(0, _BIG),
        phase={"enum": list(SURVEYS)},
        state={"enum": ["open", "closed"]},
        version=_whole(0, _BIG),
        asked=_whole(0, _BIG),
        answered=_whole(0, _BIG),
        lost=_FREE,
        figures=_FREE,
        epsilon=_NUMBER,
        unopened=_text(),
    ),
    "Number": _object(number=_whole(1, MOST_CODES)),
    "NewCodes": _object("codes", codes={"type": "array", "items": _text()}),
    "Code": _object(code=_PRINTABLE),
    "Codes": _object("used unused", used=_whole(0, _BIG), unused=_whole(0, _BIG), withdrawn=_whole(0, _BIG)),
    "Status": _object(
        "run algorithm pace version rounds state enrolled there at_work",
        run=_text(),
        algorithm=_text(),
        pace=_text(),
        version=_whole(0, _BIG),
        rounds=_whole(0, _BIG),
        state=_text(),
        enrolled=_whole(0, _BIG),
        there=_whole(0, _BIG),
        at_work=_whole(0, _BIG),
        curves=_FREE,
        privacy=_nullable(
            _object(
                "epsilon delta",
                epsilon=_nullable(_NUMBER),
                delta=_NUMBER,
                budget=_nullable(_NUMBER),
                answers=_whole(0, _BIG),
                most_answers=_whole(0, _BIG),
            )
        ),
        heard=_object(
            version=_whole(0, _BIG),
            never={"type": "number", "minimum": 0, "maximum": 1},
            deciles={
                "type": "object",
                "additionalProperties": {"type": "array", "items": _NUMBER, "minItems": 11, "maxItems": 11},
            },
        ),
        evaluation=_nullable(
            _object(
                "version asked answered lost figures",
                version=_whole(0, _BIG),
                asked=_whole(0, _BIG),
                answered=_whole(0, _BIG),
                lost=_FREE,
                figures={"type": "object", "additionalProperties": _NUMBER},
            )
        ),
    ),
}
"""The JSON documents of the protocol by name."""

_PARAMETERS: dict[str, Schema] = {
    "digest": _DIGEST,
    "task": _text(pattern="^[0-9]{1,15}$"),
    "client": _text(pattern="^[0-9]{1,15}$"),
    "survey": _text(pattern="^[0-9]{1,15}$"),
}


def document(routes: tuple[Route, ...] = ROUTES) -> dict[str, Any]:
    """Return the OpenAPI document of some routes.

    >>> document()["paths"]["/v1/leave"]["post"]["summary"]
    'Go away; an open task is given up.'
    """
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "turnout",
            "version": __version__,
            "summary": "The protocol between the server and the clients of a federation.",
            "description": f"Version {PROTOCOL} of the protocol, which docs/protocol.md explains.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": whose}
                for name, whose in {"token": "A client's.", "administrator": "The administrator's."}.items()
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    """Return one operation."""
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": list(_parameters(route)),
        "responses": {str(status): _response(route, status, what) for status, what in route.statuses.items()},
        "security": [] if route.security is None else [{route.security: []}],
    }
    if route.body == BINARY:
        operation["requestBody"] = {"required": True, "content": {BINARY: {}}}
    elif route.body is not None:
        operation["requestBody"] = {
            "required": bool(SCHEMAS[route.body]["required"]),
            "content": {JSON: _content(route.body)},
        }
    return operation


def _parameters(route: Route) -> Iterable[dict[str, Any]]:
    """Yield the parameters of a route: of its path, and its headers."""
    for name in re.findall(r"{(\w+)}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
    for name in route.query:
        yield {"name": name, "in": "query", "required": False, "schema": _whole(0, 10**15 - 1)}
    for name, (pattern, required) in route.headers.items():
        yield {"name": name, "in": "header", "required": required, "schema": _text(pattern=pattern)}


def _response(route: Route, status: int, what: str) -> dict[str, Any]:
    """Return the description of one answer."""
    response: dict[str, Any] = {"description": what}
    returns = route.returns.get(status, "Reason")
    if returns:
        response["content"] = {returns: {}} if "/" in returns else {JSON: _content(returns)}
    if returns == BINARY and route.sends:
        response["headers"] = {name: {"schema": _text()} for name in route.sends}
    if status in (429, 503):
        response["headers"] = {"retry-after": {"description": "Seconds.", "schema": _whole(0, 3600)}}
    return response


def _content(schema: str) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{schema}"}}
