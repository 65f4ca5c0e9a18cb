"""Whether what a server answers agrees with its OpenAPI document. Every request of `world.Host` is held against it."""

import json
import re
from functools import cache

from turnout_serve.server.http.app import ROUTES
from turnout_serve.server.http.openapi import document
from turnout_serve.server.http.routes import JSON

DOCUMENT = document(ROUTES)
SCHEMAS = DOCUMENT["components"]["schemas"]

_TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": int | float, "null": type(None),
    "boolean": bool,
}  # fmt: skip


def faults(value, schema, where="body"):
    """What of a JSON document breaks a schema, as far as the schemas here go; no fault is an empty list."""
    if "$ref" in schema:
        return faults(value, SCHEMAS[schema["$ref"].rpartition("/")[2]], where)
    if "anyOf" in schema:
        fits = [not faults(value, each) for each in schema["anyOf"]]
        return [] if any(fits) else [f"{where} fits none of {len(fits)} forms: {value!r}"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{where} is {value!r}"]
    kind = schema.get("type")  # True is an int in Python, and no number in JSON
    if kind is not None and (isinstance(value, bool) != (kind == "boolean") or not isinstance(value, _TYPES[kind])):
        return [f"{where} is {value!r}, needed {kind}"]
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return [f"{where} is {value!r}, needed {schema['pattern']}"]
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return [f"{where} is {value!r}, out of range"]
    return _inside(value, schema, where)


def _inside(value, schema, where):
    """What of the parts of an object or an array breaks a schema."""
    found = []
    if isinstance(value, dict):
        found += [f"{where} lacks {name}" for name in schema.get("required", ()) if name not in value]
        further = schema.get("additionalProperties", {})
        further = further if isinstance(further, dict) else {}
        for name, inner in value.items():
            found += faults(inner, schema.get("properties", {}).get(name, further), f"{where}.{name}")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{where} has {len(value)} items")
        items = schema.get("prefixItems", [schema.get("items", {})] * len(value))
        for number, (each, item) in enumerate(zip(value, items, strict=True)):
            found += faults(each, item, f"{where}[{number}]")
    return found


@cache
def _pattern(path):
    """The pattern of the paths that a route answers."""
    return re.compile(re.sub(r"{\w+}", "[^/]+", path))


def route_of(path):
    """The route that answers a path; None for one that no route has."""
    for route in ROUTES:
        if _pattern(route.path).fullmatch(path):
            return route
    return None


def check(path, status, headers, body):
    """Assert that an answer is one that the document has.

    Args:
        path: what was asked for; an answer to another method is a 405.
        status, headers, body: of the answer.
    """
    route = route_of(path)
    if route is None:
        assert status == 404
        return
    responses = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]
    assert str(status) in responses, f"{route.path} answers {status}: {body[:200]!r}"
    content = responses[str(status)].get("content", {})
    if status == 400 and not body:  # the connection was cut, and nobody reads it
        return
    if not content:
        assert not body
        return
    kind = headers.get("content-type", "").partition(";")[0]
    assert kind in content, f"{route.path} answers {status} with {kind}"
    if kind == JSON:
        wrong = faults(json.loads(body), content[kind].get("schema", {}))
        assert not wrong, f"{route.path} answers {status}: {wrong}"
