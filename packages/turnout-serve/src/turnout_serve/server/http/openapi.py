"""Build the OpenAPI document of the protocol from the routes and the types of their bodies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from turnout.version import __version__
from turnout_serve.server.http.routes import BINARY, JSON, Route
from turnout_serve.wire.format import PROTOCOL

_PATTERNS = {"digest": "^[0-9a-f]{64}$"}
"""Patterns of the parameters of paths that are not numbers."""


class _Untitled(GenerateJsonSchema):
    """Schemas without titles of fields, which only repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False."""
        return False


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of routes, as plain values."""
    routes = tuple(routes)
    bodies = [route.body for route in routes if route.takes_json]
    bodies += [body for route in routes for body, _ in route.statuses.values() if not isinstance(body, str)]
    types = [(body, "validation", TypeAdapter(body)) for body in dict.fromkeys(bodies)]
    references, definitions = TypeAdapter.json_schemas(
        types,  # type: ignore[arg-type]
        ref_template="#/components/schemas/{model}",
        schema_generator=_Untitled,
    )
    schemas = {body: references[body, "validation"] for body, *_ in types}  # type: ignore[index]
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
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
            "schemas": definitions["$defs"],
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": whose}
                for name, whose in {"token": "A client's.", "administrator": "The administrator's."}.items()
            },
        },
    }


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    """Return the operation of a route."""
    administrator: list[dict[str, list[str]]] = [{"administrator": []}]
    known = {"anyone": [], "administrator": administrator, "operator": [*administrator, {}]}  # {}: without a token
    security = known.get(route.sender, [{"token": []}])
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": list(_parameters(route)),
        "responses": {
            str(status): _response(route, status, body, meaning, schemas)
            for status, (body, meaning) in route.statuses.items()
        },
        "security": security,
    }
    if route.body is not None:
        required = not route.takes_json or any(field.is_required() for field in route.body.model_fields.values())
        operation["requestBody"] = {"required": required, "content": _content(route.body, schemas)}
    return operation


def _parameters(route: Route) -> Iterable[dict[str, Any]]:
    """Yield the parameters of the path, the query and the headers of a route."""
    for name in route.parameters:
        pattern = _PATTERNS.get(name, "^[0-9]{1,15}$")
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}
    for name in route.query:
        number = {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
        yield {"name": name, "in": "query", "required": False, "schema": number}
    for name, (pattern, required) in route.headers.items():
        yield {"name": name, "in": "header", "required": required, "schema": {"type": "string", "pattern": pattern}}


def _response(route: Route, status: int, body: Any, meaning: str, schemas: dict[Any, Any]) -> dict[str, Any]:
    """Return the response object of a status."""
    response: dict[str, Any] = {"description": meaning}
    if body:
        response["content"] = _content(body, schemas)
    if body == BINARY and route.sends:
        response["headers"] = {name: {"schema": {"type": "string"}} for name in route.sends}
    if status in (429, 503):
        wait = {"type": "integer", "minimum": 0, "maximum": 3600}
        response["headers"] = {"retry-after": {"description": "Seconds.", "schema": wait}}
    return response


def _content(body: Any, schemas: dict[Any, Any]) -> dict[str, Any]:
    """Return the content object of a body: its media type, with a schema for JSON."""
    return {body: {}} if isinstance(body, str) else {JSON: {"schema": schemas[body]}}
