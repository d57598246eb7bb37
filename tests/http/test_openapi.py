"""The OpenAPI documents: valid, complete, fit for code generators, equal to their snapshot, and true.

After a change that is meant: `RENEW_OPENAPI=1 .venv/bin/pytest tests/http/test_openapi.py`, and commit openapi.json.
"""

import itertools
import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV30SpecValidator, OpenAPIV31SpecValidator

from sharequeue.protocol import apis
from sharequeue_http.forms.api import Api, path_of
from tests.http.calls import Gateway, Json, acknowledge_range, good
from tests.http.test_produce_arrow import body as arrow_body

SNAPSHOT = Path(__file__).parent / "openapi.json"
PUBLIC = [value for value in vars(apis).values() if isinstance(value, Api) and not value.internal]
PROBLEM = {"$ref": "#/components/schemas/Problem"}
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture
def document(gateway: Gateway) -> Json:
    return dict(good(gateway.http.get("/openapi.json")))


@pytest.fixture
def older(gateway: Gateway) -> Json:
    return dict(good(gateway.http.get("/openapi-3.0.json")))


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield path, method, methods[method]


def whole(document: Json, part: Json) -> Json:
    """A response itself, where an operation refers to a shared one."""
    return document["components"]["responses"][part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else part


def requests(document: Json) -> set[str]:
    """The names of the schemas that bodies of requests hold."""
    schemas = document["components"]["schemas"]
    found: set[str] = set()
    wanted = [operation.get("requestBody", {}) for _, _, operation in operations(document)]
    while wanted:
        names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(wanted))) - found
        found |= names
        wanted = [schemas[name] for name in names]
    return found


def typed(schema: Any, place: str) -> Iterator[tuple[str, Json]]:
    """The schemas with a type inside of one, each with its place."""
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield place, schema
        for name, inner in schema.items():
            yield from typed(inner, place if name == "anyOf" else f"{place}/{name}")
    if isinstance(schema, list):
        for inner in schema:
            yield from typed(inner, place)


def test_the_documents_are_valid(document: Json, older: Json) -> None:
    assert (document["openapi"], older["openapi"]) == ("3.1.0", "3.0.3")
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    assert list(OpenAPIV30SpecValidator(older).iter_errors()) == []


def test_the_document_has_every_public_call_and_no_internal_one(document: Json) -> None:
    documented = {(path, method, operation["operationId"]) for path, method, operation in operations(document)}
    assert documented == {(api.path, api.method.lower(), api.operation_id) for api in PUBLIC}


def test_operations_have_the_fields_that_code_generators_need(document: Json) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    tags = {tag["name"] for tag in document["tags"]}
    for path, method, operation in operations(document):
        where = f"{method} {path}"
        assert re.fullmatch(r"[a-z][a-zA-Z0-9]*", operation["operationId"]), where
        assert len(operation["tags"]) == 1, where
        assert operation["tags"][0] in tags, where
        assert operation["summary"], where
        in_path = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path)), where
        body = operation.get("requestBody", {}).get("content", {})
        assert body.keys() <= {"application/json", "application/octet-stream", apis.ARROW_STREAM}, where
        if "application/json" in body:
            assert body["application/json"]["schema"].keys() == {"$ref"}, where


def test_success_has_a_named_schema_and_every_error_is_a_problem(document: Json) -> None:
    for api in PUBLIC:
        responses = document["paths"][api.path][api.method.lower()]["responses"]
        for status, response in responses.items():
            content = whole(document, response).get("content", {})
            if status == str(api.status) or status in map(str, api.also):
                if api.streams:
                    assert content.keys() == {"text/event-stream"}
                elif api.response is not None:
                    assert content["application/json"]["schema"].keys() == {"$ref"}, api.operation_id
                else:
                    assert content.keys() <= {"text/plain"}, api.operation_id
            else:
                assert content.keys() == {"application/problem+json"}, (api.operation_id, status)
                assert content["application/problem+json"]["schema"] == PROBLEM, (api.operation_id, status)
        assert "default" in responses


def test_schemas_are_named_used_and_without_null(document: Json, older: Json) -> None:
    """Only a record's key may be null; other optional fields are absent, in requests too."""
    schemas = document["components"]["schemas"]
    used = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert used == set(schemas)
    assert all(schema["title"] == name for name, schema in schemas.items())

    def with_null(value: Any, place: str) -> Iterator[str]:
        if value == {"type": "null"}:
            yield place
        if isinstance(value, dict):
            for name, item in value.items():
                yield from with_null(item, f"{place}/{name}" if name != "anyOf" else place)
        if isinstance(value, list):
            for item in value:
                yield from with_null(item, place)

    assert set(with_null(schemas, "")) == {
        f"/{name}/properties/key" for name in ("ConsumerRecord", "ScheduleDescription")
    }
    text = json.dumps(older)
    assert '"null"' not in text
    assert '"const"' not in text


TAKEN = {
    "Record",
    "Object",
    "Error",
    "Exception",
    "List",
    "Map",
    "Set",
    "Date",
    "String",
    "Number",
    "Function",
    "Promise",
}
"""Types that a language has already: a generator renames a schema of such a name, each in its own way."""


def test_schema_names_collide_with_nobody(document: Json) -> None:
    """Generators name the wrapper of an answer after its operation: oapi-codegen's code with both did not compile."""
    operation_ids = {operation["operationId"] for _, _, operation in operations(document)}
    made = {f"{name[0].upper()}{name[1:]}{kind}" for name in operation_ids for kind in ("Response", "Params", "Result")}
    assert document["components"]["schemas"].keys() & (made | TAKEN) == set()


def test_offsets_are_int64(document: Json) -> None:
    for name, schema in document["components"]["schemas"].items():
        for field, kind in schema.get("properties", {}).items():
            if field.endswith(("_offset", "_at_ms")) or field in ("offset", "lag"):
                given = [part for part in kind.get("anyOf", [kind]) if part["type"] != "null"]
                assert [(part["type"], part["format"]) for part in given] == [("integer", "int64")], f"{name}.{field}"


FREE_TEXTS = re.compile(
    r"/(Produce|Schedule)Record/properties/(key|key_base64|value_base64|headers/additionalProperties)"
    r"|/(CreateTopic|UpdateTopic)Request/properties/config/additionalProperties"
    r"|/UpdateShareGroupConfigRequest/properties/config/additionalProperties"
    r"|Record-Key|Client-Id"
)
"""Fields that only the size of the whole request bounds."""


def test_requests_and_parameters_have_bounds(document: Json) -> None:
    """Generated clients learn of a bound when they are written, not by a refusal."""
    schemas = document["components"]["schemas"]
    given = [typed(schemas[name], f"/{name}") for name in sorted(requests(document))]
    for _, _, operation in operations(document):
        given += [typed(parameter["schema"], parameter["name"]) for parameter in operation["parameters"]]
    seen = 0
    for place, schema in itertools.chain.from_iterable(given):
        kind = schema["type"]
        if kind == "integer":
            assert schema.keys() >= {"format", "minimum", "maximum"}, place
        elif kind == "array":
            assert "maxItems" in schema, place
        elif kind == "string" and not FREE_TEXTS.fullmatch(place):
            assert schema.keys() & {"maxLength", "enum", "format"}, place
        seen += 1
    assert seen > 100


def test_the_document_lists_names_and_words(document: Json) -> None:
    schemas = document["components"]["schemas"]
    name = {"type": "string", "minLength": 1, "maxLength": 249, "pattern": "^[a-zA-Z0-9._-]{1,249}$"}
    create = schemas["CreateTopicRequest"]["properties"]
    assert create["name"].items() >= name.items()
    assert create["partitions"].items() >= {"minimum": 1, "maximum": 10_000}.items()
    assert schemas["FetchRequest"]["properties"]["topics"]["items"] == name
    acknowledgement = schemas["Acknowledgement"]["properties"]
    words = ["gap", "accept", "release", "reject", "renew"]
    assert acknowledgement["topic"].items() >= name.items()
    assert acknowledgement["type"]["$ref"] == "#/components/schemas/AcknowledgeType"
    assert acknowledgement["types"]["items"] == {"$ref": "#/components/schemas/AcknowledgeType"}
    assert (schemas["AcknowledgeType"]["type"], schemas["AcknowledgeType"]["enum"]) == ("string", words)
    assert schemas["ResetTarget"]["enum"] == ["current", "datetime", "earliest", "latest", "offset"]
    for listing in ("ShareGroupListing", "ShareGroupDescription"):
        assert schemas[listing]["properties"]["state"]["$ref"] == "#/components/schemas/ShareGroupState"
    assert schemas["ShareGroupState"]["enum"] == ["Empty", "Stable", "Dead"]


def bodies(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Each call with a JSON body: method, path, and the schema of the body."""
    schemas = document["components"]["schemas"]
    for path, method, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None:
            yield method, path, schemas[content["schema"]["$ref"].rsplit("/", 1)[1]]


def resolved(schema: Json, schemas: Json) -> Json:
    """Resolve `$ref` and `anyOf`: return the first alternative."""
    while "$ref" in schema or "anyOf" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema["anyOf"][0]
    return schema


def smallest(schema: Json, schemas: Json) -> Any:
    """A value that fits a schema: what is required, and of everything the least."""
    schema = resolved(schema, schemas)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        names = [
            *schema.get("required", []),
            *({"value", "deliver_at_ms"} & schema.get("properties", {}).keys()),
        ]  # no record without a value, and no scheduled one without a time
        return {
            name: "* * * * *" if name == "cron" else smallest(schema["properties"][name], schemas) for name in names
        }
    if kind == "array":
        return [smallest(schema["items"], schemas)]
    if schema.get("pattern", "").startswith("^User:"):
        return "User:x"
    return {"string": "x", "integer": max(schema.get("minimum", 0), 0), "boolean": False}.get(kind or "", 1)


def nullable_fields() -> set[tuple[str, str]]:
    """The fields of messages whose type takes null, which stands for absent."""
    seen: set[tuple[str, str]] = set()

    def visit(kind: Any) -> None:
        if isinstance(kind, msgspec.inspect.StructType):
            for field in kind.fields:
                types = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
                schema = getattr(field.type, "extra_json_schema", None) or {}  # of a field that is carried as JSON
                if any(isinstance(each, msgspec.inspect.NoneType) for each in types) or "anyOf" in schema:
                    seen.add((kind.cls.__name__, field.encode_name))
                for each in types:
                    visit(each)
        elif isinstance(kind, msgspec.inspect.Metadata):
            visit(kind.type)
        elif isinstance(kind, msgspec.inspect.ListType):
            visit(kind.item_type)

    for api in PUBLIC:
        if api.takes_body and api.request is not None:
            visit(msgspec.inspect.type_info(api.request))
    return seen


NULLABLE = nullable_fields()


def with_nulls(schema: Json, schemas: Json) -> Iterator[tuple[str, bool, Any]]:
    """Values that fit but for one property, which is null: its pointer, whether its type takes null, the value."""
    schema = resolved(schema, schemas)
    if schema.get("type") == "array":
        for pointer, allowed, value in with_nulls(schema["items"], schemas):
            yield f"/0{pointer}", allowed, [value]
    whole = smallest(schema, schemas)
    for name, part in schema.get("properties", {}).items():
        may_be_null = (schema["title"], name) in NULLABLE or not part.keys() & {"type", "$ref"}
        yield f"/{name}", may_be_null, {**whole, name: None}
        for pointer, allowed, value in with_nulls(part, schemas):
            yield f"/{name}{pointer}", allowed, {**whole, name: value}


def test_null_stands_for_an_absent_field_that_has_no_default(gateway: Gateway, document: Json, name: str) -> None:
    seen = {True: 0, False: 0}
    for method, path, schema in bodies(document):
        url = path.format(
            topic=name, partition=0, group=name, transaction=uuid.UUID(int=1), key_id="0" * 16, name="s", offset=0
        )
        for pointer, allowed, body in with_nulls(schema, document["components"]["schemas"]):
            if "max_wait_ms" in schema["properties"] and pointer != "/max_wait_ms":
                body.setdefault("max_wait_ms", 0)
            response = gateway.http.request(method, url, json=body)
            faults = response.json().get("errors", []) if response.status_code == 422 else []
            refused = any(fault["pointer"] == pointer and "not null" in fault["detail"] for fault in faults)
            assert refused is not allowed, (method, path, pointer, response.text)
            assert response.status_code < 500, (method, path, pointer, response.text)
            seen[allowed] += 1
    assert seen[True] > 30, seen
    assert seen[False] > 40, seen


def test_patterns_are_valid_in_every_dialect(document: Json) -> None:
    """RE2 looks neither ahead nor behind, only Python knows \\Z, and Ruby and PHP match bytes above ASCII."""
    patterns = set(re.findall(r'"pattern": ("(?:[^"\\\\]|\\\\.)*")', json.dumps(document)))
    assert len(patterns) >= 3
    assert not [pattern for pattern in patterns if "(?" in pattern or r"\\Z" in pattern]
    assert not [pattern for pattern in patterns if not pattern.isascii() or re.search(r"\\\\x[89a-f]", pattern)]


def test_requests_refuse_unknown_fields(document: Json) -> None:
    for name, schema in document["components"]["schemas"].items():
        if name.endswith("Request") and "properties" in schema:
            assert schema["additionalProperties"] is False, name


def test_the_document_equals_its_snapshot(document: Json) -> None:
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("RENEW_OPENAPI"):
        SNAPSHOT.write_text(text)
    assert SNAPSHOT.read_text() == text, (
        "The contract that clients generate code from has changed. If that is meant, renew the snapshot: "
        "RENEW_OPENAPI=1 .venv/bin/pytest tests/http/test_openapi.py"
    )


class Tour:
    """Makes calls and checks each answer against the schema that the document has for it, all fields known."""

    def __init__(self, http: httpx.Client, document: Json) -> None:
        self._http = http
        self._document = document
        self.seen: set[str] = set()

    def call(
        self, api: Api, status: int, *, query: Json | None = None, body: Any = None, token: str = "", **path: Any
    ) -> Any:
        raw: Json = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if api.raw_body:
            headers["Content-Type"] = api.media_type
        response = self._http.request(api.method, path_of(api, **path), params=query, headers=headers, **raw)
        assert response.status_code == status, response.text
        responses = self._document["paths"][api.path][api.method.lower()]["responses"]
        content = whole(self._document, responses.get(str(status), responses["default"])).get("content", {})
        self.seen.add(api.operation_id)
        if not content:
            assert response.content == b""
            return None
        media_type = response.headers["content-type"].split(";")[0]
        assert media_type in content
        if media_type == "text/plain":
            return response.text
        answer = response.json()
        self._check(content[media_type]["schema"], answer)
        return answer

    def _check(self, schema: Json, answer: Any) -> None:
        components = {name: closed(part) for name, part in self._document["components"]["schemas"].items()}
        whole = {**schema, "components": {"schemas": components}}
        faults = list(Draft202012Validator(whole).iter_errors(answer))
        assert not faults, faults[0]


def closed(schema: Json) -> Json:
    """The schema, refusing fields that it does not name: every field of an answer must be documented."""
    return {"additionalProperties": False, **schema} if "properties" in schema else schema


def test_every_answer_of_a_tour_fits_its_schema(
    gateway: Gateway, document: Json, name: str, shared_data_dir: Path
) -> None:
    tour = Tour(gateway.http, document)
    call, topic, group = tour.call, {"topic": name}, {"group": name}
    call(apis.CREATE_TOPIC, 201, body={"name": name, "partitions": 2, "config": {"retention.ms": "1000000"}})
    call(apis.CREATE_TOPIC, 409, body={"name": name})
    call(apis.CREATE_TOPIC, 422, body={"nam": name})
    call(apis.UPDATE_TOPIC, 200, **topic, body={"partitions": 3, "reset": ["retention.ms"]})
    call(apis.DESCRIBE_TOPIC, 200, **topic)
    call(apis.DESCRIBE_TOPIC, 404, topic="no-such-topic")
    call(apis.LIST_TOPICS, 200, query={"page_size": 1})
    records = [
        {"key": "k", "value": {"a": [1, None]}, "headers": {"h": "x"}, "partition": 0},
        {"value_base64": "AQ==", "partition": 0},
        {"key_base64": "AQ==", "value": None, "partition": 0},
        {"tombstone": True, "partition": 0, "timestamp_ms": 5},
    ]
    call(apis.PRODUCE_RECORDS, 200, **topic, body={"records": records})
    call(apis.PRODUCE_RECORDS, 413, **topic, body={"records": [{"value": "x" * 1_100_000}]})
    call(apis.PRODUCE_RAW_RECORD, 200, **topic, body=b"\xff")
    week = {"delay_ms": 604_800_000}
    later = [
        {"value": 1, "key": "k"} | week,
        {"value_base64": "AQ==", "key_base64": "AQ==", "headers": {"h": "x"}} | week,
    ]
    call(apis.SCHEDULE_RECORDS, 200, **topic, body={"records": later})
    assert call(apis.LIST_SCHEDULED_RECORDS, 200, **topic, query={"page_size": 1})["next_page_token"]
    assert call(apis.CANCEL_SCHEDULED_RECORDS, 200, **topic, body={"key": "k"})["cancelled"]
    schedule = {**topic, "name": "s"}
    call(apis.PUT_SCHEDULE, 200, **schedule, body={"cron": "0 0 1 1 *", "record": {"value": 1, "partition": 1}})
    call(apis.UPDATE_SCHEDULE, 200, **schedule, body={"paused": True, "run": True})
    call(apis.GET_SCHEDULE, 200, **schedule)
    assert call(apis.LIST_SCHEDULES, 200, **topic)["schedules"]
    call(apis.DELETE_SCHEDULE, 204, **schedule)
    call(apis.DELETE_SCHEDULE, 404, **schedule)
    call(apis.PRODUCE_ARROW, 200, **topic, body=arrow_body(value=["a"]))
    call(apis.PRODUCE_ARROW, 400, **topic, body=b"\xff")
    assert len(call(apis.READ_RECORDS, 200, **topic, partition=0, query={"offset": 0})["records"]) >= 4
    call(apis.READ_RECORDS, 422, **topic, partition=0, query={"offset": 99})
    call(
        apis.UPDATE_SHARE_GROUP_CONFIG, 200, **group, body={"config": {"share.delivery.count.limit": "3"}, "reset": []}
    )
    call(apis.UPDATE_SHARE_GROUP_CONFIG, 422, **group, body={"config": {"share.delivery.count.limit": "0"}})
    call(apis.GET_SHARE_GROUP_CONFIG, 200, **group)
    call(apis.GET_SHARE_GROUP_SERVICE_CONFIG, 200, **group)
    call(apis.LIST_SHARE_GROUP_OFFSETS, 404, group=f"{name}-no")
    stream = {"topic": name, "member_id": "m1", "window": 1}
    assert "text/event-stream" in call(apis.STREAM_RECORDS, 406, **group, query=stream)["detail"]
    wrong = [acknowledge_range(name, 0, 0, "accept")]
    fetch = {"topics": [name, "no-such-topic"], "member_id": "m1", "max_wait_ms": 0, "acknowledgements": wrong}
    fetched = call(apis.FETCH_RECORDS, 200, **group, body=fetch)
    assert (fetched["failed_count"], len(fetched["errors"])) == (1, 1)
    assert fetched["batches"]
    call(apis.FETCH_RECORDS, 200, **group, body={"topics": [name], "with_records": False, "max_wait_ms": 0})
    acknowledgements = [
        acknowledge_range(name, 0, 0, "release", delay_ms=60_000, reason="later"),
        acknowledge_range(name, 1, 1, "accept"),
        acknowledge_range(name, 1, 1, "accept"),
    ]
    acknowledged = {"member_id": "m1", "acknowledgements": acknowledgements}
    assert call(apis.ACKNOWLEDGE_RECORDS, 200, **group, body=acknowledged)["failed_count"] == 1
    refused = call(apis.ACKNOWLEDGE_RECORDS, 409, **group, body={**acknowledged, "member_id": "m2"})
    assert refused["failed_count"] == 3
    assert call(apis.LIST_SHARE_GROUPS, 200, query={"work": True})["groups"][0]["work"]
    in_flight = call(apis.LIST_IN_FLIGHT_RECORDS, 200, **group, query={"topic": name})["partitions"]
    assert any(batch.get("available_at_ms") for partition in in_flight for batch in partition["batches"])
    call(apis.LIST_SHARE_GROUP_OFFSETS, 200, **group)
    for end in (apis.COMMIT_TRANSACTION, apis.ABORT_TRANSACTION, apis.TERMINATE_TRANSACTION):
        transaction = {"transaction": call(apis.BEGIN_TRANSACTION, 201, body={})["transaction_id"]}
        call(apis.DESCRIBE_TRANSACTION, 200, **transaction)
        call(apis.LIST_TRANSACTIONS, 200, query={"older_than_ms": 0})
        call(end, 200, **transaction, body={})
        call(apis.DESCRIBE_TRANSACTION, 200, **transaction)
        call(end, 404, transaction="no-such-transaction", body={})
    call(apis.DELETE_RECORDS, 200, **topic, body={"partitions": [{"partition": 0, "before_offset": 1}]})
    heartbeat = {"member_id": "m3", "subscribed_topic_names": [name], "rack_id": "r"}
    call(apis.SHARE_GROUP_HEARTBEAT, 200, **group, body=heartbeat)
    call(apis.SHARE_GROUP_HEARTBEAT, 404, **group, body={"member_id": "m4", "member_epoch": 3})
    assert call(apis.DESCRIBE_SHARE_GROUP, 200, **group)["members"]
    assert call(apis.LIST_SHARE_GROUPS, 200, query={"state": "stable", "page_size": 1})["groups"]
    call(apis.LEAVE_SHARE_GROUP, 204, **group, member_id="m3")
    assert len(call(apis.LIST_ACTIVITY, 200, query={"topic": name, "page_size": 1})["activity"]) == 1
    assert call(apis.LIST_ACTIVITY, 200, query={"topic": name, "group_id": name})["activity"]
    call(apis.LIST_ATTENTION, 200, query={"page_size": 1})
    call(apis.LIST_ATTENTION, 422, query={"page_token": "x"})
    call(apis.LIST_SAMPLES, 200, query={"group_id": name, "from_ms": 0, "step_ms": 10_000})
    call(apis.LIST_SAMPLES, 422, query={"group_id": name, "topic": name})
    (token,) = shared_data_dir.rglob("cluster.token")
    secret = token.read_text().strip()
    query = {"group_id": name, "page_size": 1}
    (stored,) = call(apis.AUDIT_SHARE_STATE, 200, query=query, token=secret)["share_partitions"]
    assert call(apis.AUDIT_LOG, 200, topic_id=stored["topic_id"], partition=0, token=secret)["batches"]
    call(apis.AUDIT_LOG, 401, topic_id=stored["topic_id"], partition=0)
    call(apis.LIST_ACTIVITY, 422, query={"page_token": "x"})
    principal = f"User:{name}"
    made = call(apis.CREATE_KEY, 201, body={"principal": principal})
    call(apis.ROTATE_KEY, 201, key_id=made["key_id"], body={})
    call(apis.REVOKE_KEY, 200, key_id=made["key_id"])
    call(apis.REVOKE_KEY, 404, key_id="0" * 16)
    assert len(call(apis.LIST_KEYS, 200, query={"principal": principal})["keys"]) == 2
    call(apis.REVOKE_KEYS, 200, query={"made_before_ms": 1})
    right = {"principal": principal, "operation": "READ", "resource_type": "GROUP", "resource_name": name}
    for api, fits in ((apis.LIST_ACLS, 1), (apis.REMOVE_ACLS, 1), (apis.LIST_ACLS, 0)):
        call(apis.ADD_ACLS, 201, body={"acls": [right]}) if fits else None
        assert len(call(api, 200, query={"principal": principal})["acls"]) == fits
    call(apis.LEAVE_SHARE_GROUP, 404, **group, member_id="m3")
    call(apis.RESET_SHARE_GROUP_OFFSETS, 409, **group, body={"to": "latest"})
    topics = [{"topic": name, "partitions": [0, 9]}]
    reset = {"to": "offset", "offset": 1, "topics": topics, "force": True}
    assert call(apis.RESET_SHARE_GROUP_OFFSETS, 200, **group, body=reset)["failed_count"] == 1
    call(apis.LIST_DEAD_LETTERS, 200, **group)
    call(apis.DROP_DEAD_LETTERS, 200, **group, body={"reason": "x", "dry_run": True})
    call(apis.LOOK_UP_RECORD, 200, **group, **topic, partition=0, offset=0)
    call(apis.DESCRIBE_WINDOW, 200, **group, **topic, partition=0)
    body = {"action": "release", "delivery_count": 9}
    call(apis.CHANGE_RECORD, 409, **group, **topic, partition=0, offset=0, body=body)
    call(apis.FIND_RECORDS, 200, **group, **topic, query={"key": "k"})
    call(apis.REDRIVE_DEAD_LETTERS, 200, **group, body={"reason": "x", "dry_run": True})
    call(apis.DELETE_SHARE_GROUP_OFFSETS, 204, **group, **topic, query={"force": True})
    call(apis.DELETE_SHARE_GROUP_OFFSETS, 404, **group, **topic)
    call(apis.DELETE_SHARE_GROUP, 204, **group, query={"force": True})
    call(apis.UPDATE_TOPIC, 200, **topic, body={"config": {"cleanup.policy": "compact"}})
    call(apis.PRODUCE_RECORDS, 200, **topic, body={"records": [{"value": 1, "partition": 0}]})
    listed = call(apis.LIST_RECORD_BATCHES, 200, **topic, partition=0, query={"offset": 1})["batches"]
    last = {"first_offset": listed[0]["last_offset"], "last_offset": listed[0]["last_offset"]}
    replaced = {"base_offset": listed[0]["base_offset"], "generation": 0, "remove": [last]}
    call(apis.REPLACE_RECORD_BATCHES, 200, **topic, partition=0, body={"batches": [replaced]})
    replaced["remove"] = [{"first_offset": 1, "last_offset": 1}]
    call(apis.REPLACE_RECORD_BATCHES, 409, **topic, partition=0, body={"batches": [replaced]})
    call(apis.DELETE_TOPIC, 204, **topic)
    call(apis.DELETE_TOPIC, 404, **topic)
    for api in (apis.DESCRIBE_SERVICE, apis.LIVEZ, apis.READYZ, apis.METRICS):
        call(api, 200)
    assert tour.seen == {api.operation_id for api in PUBLIC}
