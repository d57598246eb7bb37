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

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator, OpenAPIV31SpecValidator

from sharequeue.protocol import apis
from sharequeue_http.forms.api import Api
from tests.http.calls import Gateway, Json, good
from tests.openapi.public import parts

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
    assert {place.replace("/anyOf", "") for place, part in parts(schemas) if part == {"type": "null"}} == {
        "/ConsumerRecord/properties/headers_base64/additionalProperties/items",
        "/ConsumerRecord/properties/key",
        "/ScheduleDescription/properties/key",
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


def test_texts_of_requests_and_parameters_have_bounds(document: Json) -> None:
    """Generated clients learn of a bound when they are written, not by a refusal. Numbers and lists: test_document."""
    schemas = document["components"]["schemas"]
    given = [parts(schemas[name], f"/{name}") for name in sorted(requests(document))]
    for _, _, operation in operations(document):
        given += [parts(parameter["schema"], parameter["name"]) for parameter in operation["parameters"]]
    texts = [each for each in itertools.chain.from_iterable(given) if each[1].get("type") == "string"]
    assert len(texts) > 50
    for place, schema in texts:
        assert FREE_TEXTS.fullmatch(place.replace("/anyOf", "")) or schema.keys() & {"maxLength", "enum", "format"}, (
            place
        )


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
