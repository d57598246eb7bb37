"""The OpenAPI document as its readers and code generators need it. It is made here without a service."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from docs.calls_page import markdown
from sharequeue.openapi import document, to_3_0
from sharequeue.openapi.field_texts import field_texts
from sharequeue.protocol import apis
from sharequeue.protocol.errors import BY_CODE, KAFKA_CODES
from sharequeue.protocol.messages.fields import Request
from sharequeue_http.forms.api import Api
from tests.openapi.public import parts

Json = dict[str, Any]

PAGE = Path(__file__).parents[2] / "docs" / "calls.md"

PUBLIC = [value for value in vars(apis).values() if isinstance(value, Api) and not value.internal]
DOCUMENT = document("sharequeue", "Records over HTTP.", PUBLIC)
SCHEMAS: Json = DOCUMENT["components"]["schemas"]
OPERATIONS: list[Json] = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
WITH_BODY = [api for api in PUBLIC if api.takes_body]


def says_more(name: str, description: str) -> bool:
    """Whether a description has at least two words that the name does not have."""
    known = set(re.findall(r"[a-z]+", name.lower())) | {"the", "a", "an", "of", "is", "this", "to"}
    return len(set(re.findall(r"[a-z0-9]+", description.lower())) - known) >= 2


def properties() -> Iterator[tuple[str, Json]]:
    for name, schema in SCHEMAS.items():
        for field, part in schema.get("properties", {}).items():
            yield f"{name}.{field}", part


def test_every_property_is_described() -> None:
    missing = [name for name, part in properties() if not says_more(name, part.get("description", ""))]
    assert missing == [], "write a string behind each of these fields, in its struct (CONTRIBUTING: Add a call)"
    assert sum(1 for _ in properties()) > 290


def test_every_parameter_is_described() -> None:
    described = {
        f"{operation['operationId']}.{parameter['name']}": parameter.get("description", "")
        for operation in OPERATIONS
        for parameter in operation["parameters"]
    }
    assert [name for name, text in described.items() if not says_more(name, text)] == []
    assert len(described) > 60


def test_only_what_must_be_sent_has_an_example() -> None:
    """`/docs` sends the examples: of an optional header it would be a used key, or an unknown transaction."""
    optional = [each for operation in OPERATIONS for each in operation["parameters"] if not each["required"]]
    assert len(optional) > 20
    assert [each["name"] for each in optional if "example" in each] == []


def test_every_schema_is_described() -> None:
    assert [name for name, schema in SCHEMAS.items() if not says_more(name, schema.get("description", ""))] == []


def test_every_operation_and_tag_is_described() -> None:
    for operation in OPERATIONS:
        assert says_more(operation["operationId"] + operation["summary"], operation.get("description", "")), operation
    assert all(tag["description"] for tag in DOCUMENT["tags"])
    assert {operation["tags"][0] for operation in OPERATIONS} == {tag["name"] for tag in DOCUMENT["tags"]}


def test_every_response_and_header_is_described() -> None:
    shared = DOCUMENT["components"]["responses"]
    for operation in OPERATIONS:
        for status, response in operation["responses"].items():
            whole = shared[response["$ref"].rsplit("/", 1)[1]] if "$ref" in response else response
            assert len(whole["description"].split()) > 3, (operation["operationId"], status)
            assert "X-Request-Id" in whole["headers"]
            assert ("Retry-After" in whole["headers"]) == (
                status in ("429", "503")
                and "$ref" in whole["content"].get("application/problem+json", {}).get("schema", {})
            ), (operation["operationId"], status)
    assert all(header["description"] for header in DOCUMENT["components"]["headers"].values())


def test_no_property_has_a_default() -> None:
    """openapi-typescript takes a property with a default for one that must be sent, and that is always answered."""
    assert [name for name, part in properties() if "default" in part] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CreateTopicRequest.partitions", "Default: 1."),
        ("FetchRequest.with_records", "Default: true."),
        ("FetchRequest.acquire_mode", "Default: record_limit."),
        ("FetchResponse.more_errors", "Absent if 0."),
        ("ConsumerRecord.headers", "Absent if empty."),
    ],
)
def test_a_description_ends_with_the_default(name: str, words: str) -> None:
    assert dict(properties())[name]["description"].endswith(words)


def test_no_field_is_called_as_the_type_of_its_format() -> None:
    """Python code with `datetime: Optional[datetime]` does not load: the field hides the type."""
    types = {"date-time": "datetime", "date": "date", "uuid": "UUID", "byte": "bytes"}
    assert [name for name, part in properties() if name.split(".")[1] == types.get(part.get("format", ""))] == []


def test_words_are_named_enums_and_lists_of_answers_that_may_grow_are_open() -> None:
    enums = {place for place, part in parts(DOCUMENT) if part.keys() & {"enum", "x-extensible-enum"}}
    assert enums <= {f"/components/schemas/{name}" for name in SCHEMAS}
    assert {name for name, schema in SCHEMAS.items() if "x-extensible-enum" in schema} == {
        "AttentionReason",
        "DeadLetterCause",
        "ErrorCode",
        "TransactionReason",
        "TransactionState",
    }
    assert set(SCHEMAS["ErrorCode"]["x-extensible-enum"]) == BY_CODE.keys() - {"NONE"}


def test_an_answer_has_one_media_type() -> None:
    for operation in OPERATIONS:
        for response in operation["responses"].values():
            assert len(response.get("content", {})) <= 1, operation["operationId"]


@pytest.mark.parametrize("api", WITH_BODY, ids=lambda api: api.operation_id)
def test_a_call_with_a_body_names_the_refusals_of_bodies(api: Api) -> None:
    responses = DOCUMENT["paths"][api.path][api.method.lower()]["responses"]
    assert responses.keys() >= {"400", "403", "413", "415", "422", "429", "500", "503", "default"}


@pytest.mark.parametrize("api", PUBLIC, ids=lambda api: api.operation_id)
def test_a_call_names_its_own_errors_with_their_meaning(api: Api) -> None:
    responses = DOCUMENT["paths"][api.path][api.method.lower()]["responses"]
    for code in api.errors:
        assert f"{code} ({KAFKA_CODES[BY_CODE[code]]}): " in responses[str(BY_CODE[code].status)]["description"]


def test_a_call_says_whether_it_takes_a_key() -> None:
    assert DOCUMENT["security"] == []
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert {name: scheme["scheme"] for name, scheme in schemes.items()} == {"key": "bearer"}
    taken = {operation["operationId"]: operation.get("security") for operation in OPERATIONS}
    assert {name for name, schemes in taken.items() if schemes is None} == {"livez", "readyz", "describeService"}
    with_key = [operation for operation in OPERATIONS if operation.get("security") == [{"key": []}, {}]]
    assert len(with_key) == len(OPERATIONS) - 3
    assert all(operation["responses"].keys() >= {"401", "403"} for operation in with_key)


def of_type(kind: str) -> list[Json]:
    return [part for _, part in parts(DOCUMENT) if part.get("type") == kind]


def test_every_integer_has_a_range() -> None:
    found = of_type("integer")
    assert all(part.keys() >= {"format", "minimum", "maximum"} for part in found)
    assert len(found) > 100
    assert of_type("number") == []


def test_every_list_has_a_bound() -> None:
    found = of_type("array")
    assert all("maxItems" in part for part in found)
    assert len(found) > 50


def test_the_older_document_has_no_siblings_of_references() -> None:
    assert [place for place, part in parts(to_3_0(DOCUMENT)) if "$ref" in part and len(part) > 1] == []


def test_the_page_of_all_calls_is_up_to_date() -> None:
    made = markdown(DOCUMENT)
    if os.environ.get("RENEW_OPENAPI"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made, "RENEW_OPENAPI=1 .venv/bin/pytest tests/core/test_document.py"


class Parent(Request):
    """Fields of a base class."""

    first: int = 0
    """What the first one means,
    in two lines."""
    second: int = 0


class Child(Parent):
    """Fields of its own."""

    second: int = 0
    """What the second one means here."""
    third: int = 0
    """What the third one means."""


def test_texts_stand_behind_their_fields() -> None:
    assert field_texts(Parent) == {"first": "What the first one means, in two lines."}
    assert field_texts(Child) == {
        **field_texts(Parent),
        "second": "What the second one means here.",
        "third": "What the third one means.",
    }
    assert field_texts(msgspec.defstruct("Made", ["field"], module=__name__)) == {}


@pytest.mark.parametrize("api", [api for api in PUBLIC if api.request is not None], ids=lambda api: api.operation_id)
def test_no_client_can_claim_to_be_a_leader(api: Api) -> None:
    """The epochs that fence gateways and coordinators are in their own calls alone, which need the cluster token."""
    schema = msgspec.json.encode(msgspec.json.schema(api.request)).decode()
    assert not re.findall(r'"(?:leader|state|owner)_epoch"', schema)
