"""Whatever a caller sends, an error and a log line quote at most 100 characters of it.

Each place of each request of the document gets a long text: path, query, headers, and each field, name and value of the
body. Otherwise a request of 10 MiB makes an answer and log lines of as many bytes, which push out all others.
"""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from sharequeue.protocol.apis import ARROW_STREAM
from tests.http.calls import Gateway, good
from tests.http.test_produce_arrow import HEADERS, body

Json = dict[str, Any]
LONG = "zq" * 10_000
IN_HEAD = LONG[:4000]
TOO_MUCH = LONG[:101]
SETTINGS = ("share.auto.offset.reset", "errors.deadletterqueue.topic.name", "share.retry.backoff.ms", "retention.ms")
SETTINGS_OF_WORDS = ("cleanup.policy", "share.renew.acknowledge.enable", "errors.deadletterqueue.group.enable")
USUAL = ("Content-Type", "Content-Encoding", "Accept", "Host", "Origin", "X-Request-Id", "traceparent", "Authorization")


@pytest.fixture(scope="module")
def document(gateway: Gateway) -> Json:
    found: Json = good(gateway.http.get("/openapi.json"))
    return found


def whole(schema: Json, schemas: Json) -> Json:
    found: Json = schemas[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema
    return found


def sample(schema: Json, schemas: Json, name: str) -> Any:
    """A value that fits, with what is required alone."""
    schema = whole(schema, schemas)
    if "enum" in schema or "x-extensible-enum" in schema:
        return (schema.get("enum") or schema["x-extensible-enum"])[0]
    kind = schema.get("type")
    if kind == "object":
        return {each: sample(schema["properties"][each], schemas, name) for each in schema.get("required", ())}
    if kind == "array":
        return [sample(schema["items"], schemas, name)]
    return {"string": name, "boolean": False, "integer": max(0, schema.get("minimum", 0))}.get(str(kind), name)


def with_long(schema: Json, schemas: Json, name: str) -> Iterator[Any]:
    """Values with the long text in one place each."""
    schema = whole(schema, schemas)
    yield LONG
    if "items" in schema:
        yield from ([value] for value in with_long(schema["items"], schemas, name))
    if schema.get("type") != "object":
        return
    fitting = sample(schema, schemas, name)
    yield {**fitting, LONG: 1}
    for field, part in schema.get("properties", {}).items():
        yield from ({**fitting, field: value} for value in with_long(part, schemas, name))
    if schema.get("additionalProperties"):
        yield from ({setting: LONG} for setting in (*SETTINGS, *SETTINGS_OF_WORDS))


def arrow_bodies() -> Iterator[bytes]:
    """Streams with the long text in one place each."""
    yield body(**{LONG: ["1"]})
    yield body(value=pa.array([{LONG: 1}]))
    yield body(value=[LONG], value_is_json=[True])
    yield body(value=["1"], key=[LONG], partition=pa.array([99], pa.int32()))
    yield body(value=["1"], timestamp_ms=[LONG])
    yield body(value=["1"], headers=pa.array([[(LONG, None)]], HEADERS))
    yield body(value=["1"], headers=pa.array([[(LONG, LONG)] * 2000], HEADERS))


def requests(document: Json, name: str) -> Iterator[tuple[str, str, Json]]:
    """Method, path and the rest of each request."""
    schemas = document["components"]["schemas"]
    usual = {
        "topic": name,
        "group": name,
        "member_id": "m",
        "partition": "0",
        "offset": "0",
        "name": "n",
        "key_id": "0" * 16,
    }
    usual |= {each: str(uuid.UUID(int=1)) for each in ("transaction", "topic_id", "schedule")}
    for template, methods in document["paths"].items():
        for method, operation in methods.items():
            path = template.format(**usual)
            for parameter in operation["parameters"]:
                if parameter["in"] == "path":
                    yield method, template.format(**{**usual, parameter["name"]: IN_HEAD}), {}
                elif parameter["in"] == "query":
                    yield method, path, {"params": {parameter["name"]: IN_HEAD}}
            yield method, path, {"params": {IN_HEAD: "1"}}
            of_call = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "header"]
            empty = {} if method in ("get", "delete") else {"content": b"{}"}
            for header in (*of_call, *USUAL):
                yield method, path, {**empty, "headers": {"Content-Type": "application/json", header: IN_HEAD}}
            kinds = operation.get("requestBody", {}).get("content", {})
            for kind in kinds.keys() - {"application/json"}:
                for content in (LONG.encode(), *(arrow_bodies() if kind == ARROW_STREAM else ())):
                    yield method, path, {"content": content, "headers": {"Content-Type": kind}}
            for value in with_long(kinds.get("application/json", {}).get("schema", {}), schemas, name):
                if "application/json" in kinds:
                    yield method, path, {"json": value}
    yield "get", f"/v1/{IN_HEAD}", {}
    yield "put", f"/v1/topics/{IN_HEAD}", {}


def test_no_error_and_no_log_line_quotes_more_than_100_characters(
    gateway: Gateway, shared_data_dir: Path, document: Json, name: str
) -> None:
    refused = 0
    for method, path, rest in requests(document, name):
        answer: httpx.Response = gateway.http.request(method, path, **rest)
        if answer.status_code >= 400:
            refused += 1
            place = (method, path[:80], str(rest)[:200])
            assert TOO_MUCH not in answer.text, (place, len(answer.content), answer.text[:300])
            assert len(answer.content) < 8000, (place, answer.text[:300])
            assert answer.status_code < 500, (place, answer.text[:300])
    assert refused > 500
    for log in (shared_data_dir / "logs").glob("*.log"):
        long = [json.loads(line)["message"] for line in log.read_text().splitlines() if TOO_MUCH in line]
        assert long == [], log.name
