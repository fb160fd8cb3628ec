"""The OpenAPI description, made from the table of calls and the types in their signatures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from .call import Call
from .errors import WORDS, Error

ROOT = "/api"
VERSION = "1"
BASE = f"{ROOT}/v{VERSION}"
REF = "#/components/schemas/{name}"
ALWAYS = (400, 401, 403, 404, 405, 422, 503)
WITH_BODY = (409, 413, 415)
_PARAMETER = re.compile(r"{(\w+)}")

INTRODUCTION = (
    "What operators see and do, as on the command line. Every call needs a token: `Authorization: Bearer TOKEN`. "
    "Each role includes those before it: viewer, operator, admin. The token's name is the actor in the audit log. "
    "GET changes nothing. A decision about an event or an effect names what it was made on in `expected`; a repeated "
    "one, after an answer that was lost, gets 409, and the message says what was done and by whom."
)


def describe(calls: Sequence[Call]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description."""
    kinds = [kind for call in calls for kind in (call.query, call.body, call.answer)]
    schemas, components = msgspec.json.schema_components([*kinds, Error], ref_template=REF)
    refs = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        query, body, answer = next(refs), next(refs), next(refs)
        described = _operation(call, _resolved(query, components), body, answer)
        paths.setdefault(call.path, {})[call.method.lower()] = described
    used = _used([paths, next(refs)], components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hookledger", "version": VERSION, "description": INTRODUCTION},
        "servers": [{"url": BASE}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in components.items() if name in used},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(call: Call, query: dict[str, Any], body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    statuses = [*ALWAYS, *(WITH_BODY if call.takes_body else ())]
    described: dict[str, Any] = {
        "operationId": call.name,
        "summary": call.words.split("\n")[0],
        "description": f"{call.words}\n\nNeeds the role {call.role}.",
        "parameters": [*_in_path(call), *_in_query(query)],
        "responses": {
            "200": {"description": "As asked.", "content": {"application/json": {"schema": answer}}},
            **{str(status): _error(status) for status in sorted(statuses)},
        },
    }
    if call.takes_body:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return described


def _error(status: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": REF.format(name=Error.__name__)}}}
    return {"description": WORDS[status], "content": content}


def _in_path(call: Call) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": schema} for name in _PARAMETER.findall(call.path)
    ]


def _in_query(query: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each field of the query's type as a parameter; lists are repeated parameters."""
    required = query.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _given(schema)}
        for name, schema in query["properties"].items()
    ]


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that is present: never null."""
    if "anyOf" not in schema:
        return schema
    kinds = [kind for kind in schema["anyOf"] if kind != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**rest, **kinds[0]} if len(kinds) == 1 else {**rest, "anyOf": kinds}


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _used(parts: Iterable[Any], components: dict[str, Any]) -> set[str]:
    """Return the names of the types that are referenced; query types appear as parameters only."""
    found: set[str] = set()
    waiting = list(parts)
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found.add(name)
                waiting.append(components[name])
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return found
