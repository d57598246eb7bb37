"""The parameters of an operation: in its path, its query and its headers."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sharequeue.openapi.examples import examples_of
from sharequeue.openapi.schemas import Schemas
from sharequeue.protocol.types import (
    EVENT_ID,
    GROUP_ID,
    MAX_IDEMPOTENCY_KEY_LENGTH,
    MAX_IDEMPOTENCY_RETENTION_MS,
    MAX_INT32,
    MAX_INT64,
    MAX_MEMBER_ID_LENGTH,
    MAX_NAME_LENGTH,
    PLAIN_TEXT,
    TOPIC_NAME,
)
from sharequeue_http.forms.api import Api

_IN_PATH: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "key_id": (
        "The id of the key: the 16 characters after `sq_`.",
        {"type": "string", "pattern": "^[0-9a-f]{16}$", "maxLength": 16},
    ),
    "group": (
        "The share group: 1 to 249 characters without `/` and control characters, percent-encoded. A fetch creates it.",
        {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH, "pattern": GROUP_ID},
    ),
    "member_id": (
        "The member: 1 to 36 characters without control characters, percent-encoded, `/` as well.",
        {"type": "string", "minLength": 1, "maxLength": MAX_MEMBER_ID_LENGTH, "pattern": PLAIN_TEXT},
    ),
    "partition": (
        "The number of the partition, from 0 to one less than the topic has.",
        {"type": "integer", "format": "int32", "minimum": 0, "maximum": MAX_INT32},
    ),
    "offset": (
        "The offset of the record in its partition.",
        {"type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_INT64},
    ),
    "topic": (
        "The name of the topic: 1 to 249 characters of `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`.",
        {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH, "pattern": TOPIC_NAME},
    ),
    "name": (
        "The name of the schedule: 1 to 100 characters of `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`.",
        {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[a-zA-Z0-9._-]+$"},
    ),
    "transaction": (
        "The id of the transaction, as beginTransaction answers it.",
        {"type": "string", "format": "uuid"},
    ),
}
_HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": MAX_IDEMPOTENCY_KEY_LENGTH},
    "Idempotency-Retention-Ms": {
        "type": "integer",
        "format": "int64",
        "minimum": 1,
        "maximum": MAX_IDEMPOTENCY_RETENTION_MS,
    },
    "Last-Event-ID": {"type": "string", "maxLength": 33, "pattern": EVENT_ID},
    "Transaction-Id": _IN_PATH["transaction"][1],
    "Record-Partition": _IN_PATH["partition"][1],
}
"""Other headers take any text."""


def parameters(api: Api, schemas: Schemas) -> Iterator[dict[str, Any]]:
    """The parameters of a call, those in the path first; those that must be sent have the values of the examples.

    `/docs` sends each example: of an optional header it would be a key that was used, or a transaction that is unknown.
    """
    given: dict[str, Any] = {}
    for example in examples_of(api):
        given = {**example.query, **example.path, **given}
    for parameter in _plain_parameters(api, schemas):
        name = parameter["name"]
        yield {**parameter, "example": given[name]} if parameter["required"] and name in given else parameter


def _plain_parameters(api: Api, schemas: Schemas) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", api.path):
        text, schema = _IN_PATH[name]
        yield {"name": name, "in": "path", "required": True, "description": text, "schema": schemas.part(schema)}
    if api.query_parameters:
        yield from schemas.parameters(api.request)
    for name, meaning in api.headers:
        schema = schemas.part(_HEADERS.get(name, {"type": "string"}))
        yield {"name": name, "in": "header", "required": False, "description": meaning, "schema": schema}
