"""OpenAPI of a service, made of its calls: 3.1 at `/openapi.json`, and a 3.0 down-conversion at `/openapi-3.0.json`.

Made for code generators: explicit operation ids, one tag and one named success schema per operation, the shared Problem
schema for every error. Optional fields of answers are absent, never `null`. A field of a request may be `null` if the
service takes `null` for absent.
"""

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from sharequeue import __version__
from sharequeue.http.answer import Answer
from sharequeue.http.app import App, serve
from sharequeue.http.endpoint import Call
from sharequeue.protocol.apis import Api
from sharequeue.protocol.codec import encode
from sharequeue.protocol.errors import BY_CODE
from sharequeue.protocol.messages.problems import Problem
from sharequeue.protocol.types import (
    GROUP_ID,
    MAX_IDEMPOTENCY_KEY_LENGTH,
    MAX_IDEMPOTENCY_RETENTION_MS,
    MAX_INT32,
    MAX_MEMBER_ID_LENGTH,
    MAX_NAME_LENGTH,
    PLAIN_TEXT,
    TOPIC_NAME,
)

OPENAPI: Final = Api("openapi", "GET", "/openapi.json", "This document.", tag="Operations")
OPENAPI_3_0: Final = Api("openapi30", "GET", "/openapi-3.0.json", "The document as OpenAPI 3.0.", tag="Operations")

_REFERENCE: Final = "#/components/schemas/{name}"
_PATH_PARAMETERS: Final[Mapping[str, dict[str, Any]]] = {
    "group": {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH, "pattern": GROUP_ID},
    "member_id": {"type": "string", "minLength": 1, "maxLength": MAX_MEMBER_ID_LENGTH, "pattern": PLAIN_TEXT},
    "partition": {"type": "integer", "format": "int32", "minimum": 0, "maximum": MAX_INT32},
    "topic": {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH, "pattern": TOPIC_NAME},
    "topic_id": {"type": "string", "format": "uuid"},
}
_HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": MAX_IDEMPOTENCY_KEY_LENGTH},
    "Idempotency-Retention-Ms": {
        "type": "integer",
        "format": "int64",
        "minimum": 1,
        "maximum": MAX_IDEMPOTENCY_RETENTION_MS,
    },
    "Record-Partition": _PATH_PARAMETERS["partition"],
}
"""Other headers take any text."""
_NULL: Final = {"type": "null"}
_NULLABLE: Final = frozenset({("ConsumerRecord", "key")})
"""The only optional field of answers that is null and not absent. `value` is any JSON, `null` included."""


def serve_openapi(app: App, description: str) -> None:
    """Add both documents, of all calls of `app` that clients may make."""
    public = [endpoint.api for endpoint in app.paths.endpoints if not endpoint.api.internal]
    current = document(app.title, description, public)
    newest, older = encode(current), encode(to_3_0(current))

    async def openapi(_: Call) -> Answer:
        return Answer(newest)

    async def openapi_3_0(_: Call) -> Answer:
        return Answer(older)

    serve(app, OPENAPI, openapi)
    serve(app, OPENAPI_3_0, openapi_3_0)


def document(title: str, description: str, calls: Sequence[Api]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the calls."""
    bodies = [api.request for api in calls if not api.query_parameters]
    requests = msgspec.json.schema_components([part for part in bodies if part is not None])[1].keys()
    types = [part for part in (*bodies, *(api.response for api in calls)) if part is not None]
    types = list({repr(part): part for part in (*types, Problem)}.values())
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    named: dict[str, dict[str, Any]] = dict(components)
    references: dict[str, dict[str, Any]] = {}
    for part, schema in zip(types, schemas, strict=True):
        if "$ref" in schema:
            references[repr(part)] = schema
        else:
            named[schema["title"]] = schema
            references[repr(part)] = {"$ref": _REFERENCE.format(name=schema["title"])}
    paths: dict[str, dict[str, Any]] = {}
    for api in calls:
        paths.setdefault(api.path, {})[api.method.lower()] = _operation(api, references)
    current = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "description": description},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(api.tag for api in calls)],
        "paths": paths,
        "components": {"schemas": {name: _readable(schema, requests) for name, schema in sorted(named.items())}},
    }
    return {name: _portable(part) for name, part in current.items()}


def _portable(part: Any) -> Any:
    """Write patterns as all dialects know them: only Python needs `\\Z` at the end, as its `$` allows a newline.

    Enumerated words get their type, which msgspec leaves out.
    """
    if isinstance(part, list):
        return [_portable(item) for item in part]
    if not isinstance(part, dict):
        return part
    portable = {
        name: re.sub(r"\\Z$", "$", value) if name == "pattern" and isinstance(value, str) else _portable(value)
        for name, value in part.items()
    }
    return {"type": "string", **portable} if isinstance(part.get("enum"), list) else portable


def _operation(api: Api, references: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": api.operation_id,
        "summary": api.summary,
        "tags": [api.tag],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS[name]}
            for name in re.findall(r"{(\w+)}", api.path)
        ],
        "responses": _responses(api, references),
    }
    if api.query_parameters:
        schema = msgspec.json.schema_components([api.request])[1][api.request.__name__]
        operation["parameters"] += [
            {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", []),
                "schema": _optional(schema["properties"][name]),
            }
            for name in api.query_parameters
        ]
    operation["parameters"] += [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": meaning,
            "schema": _HEADERS.get(name, {"type": "string"}),
        }
        for name, meaning in api.headers
    ]
    if api.raw_body:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    elif api.request is not None and not api.query_parameters:
        content = {"application/json": {"schema": references[repr(api.request)]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _responses(api: Api, references: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": api.summary}
    if api.response is not None:
        success["content"] = {
            "application/json": {"schema": references[repr(api.response)]},
            **{other: {"schema": {"type": "string", "format": "binary"}} for other in api.media_types},
        }
    elif api.status != 204:
        success["content"] = {"text/plain": {"schema": {"type": "string"}}}
    problem = {"application/problem+json": {"schema": references[repr(Problem)]}}
    codes: dict[int, list[str]] = {}
    for code in api.errors:
        codes.setdefault(BY_CODE[code].status, []).append(code)
    return {
        str(api.status): success,
        **{str(status): success for status in api.also},
        **{
            str(status): {"description": ", ".join(names), "content": problem}
            for status, names in sorted(codes.items())
        },
        "default": {"description": "Any other problem", "content": problem},
    }


def _readable(schema: dict[str, Any], requests: Collection[str]) -> dict[str, Any]:
    """A component as code generators like it: no null beside optional fields of answers, no empty lists.

    Args:
        requests: the names of the components that requests hold. Their optional fields may be null.
    """
    readable = dict(schema)
    if "description" in readable:
        readable["description"] = inspect.cleandoc(readable["description"])
    if not readable.get("required", True):
        del readable["required"]
    if "properties" in readable:
        readable["properties"] = {
            name: _nullable(field)
            if schema["title"] in requests or (schema["title"], name) in _NULLABLE
            else _optional(field)
            for name, field in readable["properties"].items()
        }
    return readable


def _nullable(field: dict[str, Any]) -> dict[str, Any]:
    """The field without the default null, which stands for absent."""
    return {name: value for name, value in field.items() if name != "default" or value is not None}


def _optional(field: dict[str, Any]) -> dict[str, Any]:
    """An optional field is absent, not null: `anyOf: [X, null]` becomes X."""
    rest = _nullable(field)
    choices = rest.pop("anyOf", None)
    if choices is None:
        return rest
    kept = [choice for choice in choices if choice != _NULL]
    return {**kept[0], **rest} if len(kept) == 1 else {"anyOf": kept, **rest}


def to_3_0(current: Mapping[str, Any]) -> dict[str, Any]:
    """The document in the words of OpenAPI 3.0."""
    converted: dict[str, Any] = _to_3_0(current)
    converted["openapi"] = "3.0.3"
    return converted


def _to_3_0(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_3_0(item) for item in value]
    if not isinstance(value, dict):
        return value
    converted = {name: _to_3_0(item) for name, item in value.items()}
    choices = converted.get("anyOf")
    if isinstance(choices, list) and _NULL in choices:
        kept = [choice for choice in choices if choice != _NULL]
        del converted["anyOf"]
        converted.update({"nullable": True}, **(kept[0] if len(kept) == 1 else {"anyOf": kept}))
        if "$ref" in converted:
            converted["type"] = "object"  # `nullable` needs a type beside it
    if "const" in converted:
        converted["enum"] = [converted.pop("const")]
    if "$ref" in converted and len(converted) > 1:
        return {"allOf": [{"$ref": converted.pop("$ref")}], **converted}
    return converted
