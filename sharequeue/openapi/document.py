"""The OpenAPI 3.1 document: its operations and all that they refer to."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sharequeue import __version__
from sharequeue.openapi.answers import responses, shared_headers, shared_responses, takes_key
from sharequeue.openapi.examples import examples_of
from sharequeue.openapi.parameters import parameters
from sharequeue.openapi.schemas import Schemas
from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue.protocol.messages.problems import Problem
from sharequeue_http.forms.api import Api

_ABOUT: Final = """
- Leave out optional fields that you do not set. An optional field of an answer is absent, not null.
- Fields in `_ms` are integers: durations, or milliseconds since the epoch. `last_offset` is inclusive, `log_end_offset`
  exclusive.
- An answer repeats the request's header `X-Request-Id`, or has a new one. The service passes `traceparent` on to the other services.
- Every error is a Problem. Repeat a request only if its problem is `retriable`; if it is not `definite`, the request may
  have had an effect, and a repeat may do the work twice.
"""
_TAGS: Final[Mapping[str, str]] = {
    "Records": "Produce records, fetch and acknowledge them as a member of a share group, or read them by offset.",
    "Topics": "The named logs that producers write to: create, describe, change and delete them, and compact their batches.",
    "Scheduled": "Records that enter their topic at a later time: schedule, list and cancel them.",
    "Transactions": "Records of several requests that become visible together, or never.",
    "Groups": "Share groups: their settings, members, offsets, records in flight and dead letters.",
    "Reports": "What went through the queue, counted by hour.",
    "Access": "Keys of callers, and rights of principals.",
    "Operations": "What a supervisor asks a service: whether it runs, whether it can work, and its metrics.",
}
_LICENSE: Final = {"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}
_RULES: Final = {
    "url": "https://cwiki.apache.org/confluence/display/KAFKA/KIP-932%3A+Queues+for+Kafka",
    "description": "KIP-932 of Apache Kafka: the rules of share groups, which the gateway follows.",
}
_SERVER: Final = {
    "url": "/",
    "description": "The gateway that serves this document. A client that is made from a file needs a gateway's address.",
}
_KEY: Final = "key"
_SCHEMES: Final = {
    _KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "A key, `sq_…`. A gateway with `authentication=required` wants it in every call of clients.",
    },
}


def document(title: str, description: str, calls: Sequence[Api]) -> dict[str, Any]:
    bodies = [api.request for api in calls if api.request is not None and api.takes_body]
    answers = [api.response for api in calls if api.response is not None]
    schemas = Schemas(bodies, [*answers, Problem])
    schemas.components["ErrorCode"]["x-extensible-enum"] = [
        error.code for error, number in KAFKA_CODES.items() if number != 0
    ]
    paths: dict[str, dict[str, Any]] = {}
    for api in calls:
        paths.setdefault(api.path, {})[api.method.lower()] = _operation(api, schemas)
    components = {
        "responses": shared_responses(schemas),
        "headers": shared_headers(schemas),
        "securitySchemes": _SCHEMES,
    }
    tags = dict.fromkeys(api.tag for api in calls)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": __version__,
            "description": f"{description}\n{_ABOUT}",
            "license": _LICENSE,
            "contact": {"name": "The sharequeue project"},
        },
        "externalDocs": _RULES,
        "servers": [_SERVER],
        "security": [],
        "tags": [{"name": tag, "description": _TAGS[tag]} for tag in tags],
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.components.items())), **components},
    }


def _operation(api: Api, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": api.operation_id,
        "summary": api.summary.removesuffix("."),
        **({"description": " ".join(api.description.split())} if api.description else {}),
        "tags": [api.tag],
        "parameters": list(parameters(api, schemas)),
    }
    shown = {
        example.name: {"summary": example.summary, "value": example.body}
        for example in examples_of(api)
        if example.body is not None and example.answered < 300
    }
    if api.raw_body:
        content: dict[str, Any] = {api.media_type: {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    elif api.takes_body:
        content = {"application/json": {"schema": schemas.reference(api.request), "examples": shown}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = responses(api, schemas)
    if takes_key(api):
        operation["security"] = [{_KEY: []}, {}]  # with `authentication=off` none is needed
    return operation
