"""Refused requests are explained in the caller's words: JSON's types, pointers to the field,
what was probably meant."""

import json
from typing import Any

import msgspec
import pytest

from sharequeue.protocol.messages.groups import (
    ResetShareGroupOffsetsRequest,
    ShareGroupHeartbeatRequest,
)
from sharequeue.protocol.messages.records import AcknowledgeRequest, FetchRequest, ProduceRequest
from sharequeue.protocol.messages.topics import CreateTopicRequest
from sharequeue_http.forms import mistakes
from sharequeue_http.forms.errors import ApiError
from tests.core.cpu import times_as_much

MIB = 1 << 20


def refusal(kind: Any, body: bytes) -> ApiError:
    """The answer to a body that the type `kind` does not take."""
    try:
        msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as fault:
        return mistakes.unfit_body(fault, kind)
    except msgspec.DecodeError as fault:
        return mistakes.unreadable(fault, body, kind)
    raise AssertionError(f"{body!r} was taken")


MISTAKES = {
    "an unknown field": (
        FetchRequest,
        b'{"max_record":1}',
        {"/max_record": "is an unknown field; did you mean `max_records`?"},
    ),
    "an unknown field in camel case": (
        FetchRequest,
        b'{"maxRecords":1}',
        {"/maxRecords": "is an unknown field; did you mean `max_records`?"},
    ),
    "an unknown field that is near to none": (FetchRequest, b'{"colour":1}', {"/colour": "is an unknown field"}),
    "an unknown field before the required one": (
        ProduceRequest,
        b'{"value":1,"records":[]}',
        {"/value": "is an unknown field"},
    ),
    "a nested unknown field": (
        ProduceRequest,
        b'{"records":[{"value":1},{"valeu":1}]}',
        {"/records/1/valeu": "is an unknown field; did you mean `value`?"},
    ),
    "an unknown field of an object in a field": (
        ProduceRequest,
        b'{"records":[{"value":1}],"unique":{"within":1}}',
        {"/unique/within": "is an unknown field; did you mean `within_ms`?"},
    ),
    "an unknown field with a slash and a tilde": (FetchRequest, b'{"a/b~c":1}', {"/a~1b~0c": "is an unknown field"}),
    "a missing field": (AcknowledgeRequest, b"{}", {"/member_id": "is missing"}),
    "a missing field of an entry": (
        AcknowledgeRequest,
        b'{"member_id":"m","acknowledgements":[{"topic":"t","partition":0,"last_offset":1}]}',
        {"/acknowledgements/0/first_offset": "is missing"},
    ),
    "no object": (ProduceRequest, b"[]", {"": "must be an object, not an array"}),
    "an array": (FetchRequest, b'{"topics":"x"}', {"/topics": "must be an array, not a string"}),
    "a string": (FetchRequest, b'{"member_id":5}', {"/member_id": "must be a string, not a number"}),
    "a string in an array": (FetchRequest, b'{"topics":["t",1.5]}', {"/topics/1": "must be a string, not a number"}),
    "a boolean": (FetchRequest, b'{"atomic":null}', {"/atomic": "must be a boolean, not null"}),
    "an integer": (FetchRequest, b'{"max_records":"1"}', {"/max_records": "must be an integer, not a string"}),
    "a fraction": (
        FetchRequest,
        b'{"max_records":5.0}',
        {"/max_records": "must be an integer, without a fraction or an exponent"},
    ),
    "a number beyond all": (FetchRequest, b'{"max_records":1e400}', {"/max_records": "must be from 0 to 2147483647"}),
    "a negative number": (FetchRequest, b'{"max_records":-1}', {"/max_records": "must be from 0 to 2147483647"}),
    "an empty string": (FetchRequest, b'{"member_id":""}', {"/member_id": "must have 1 to 36 characters"}),
    "a control character": (
        FetchRequest,
        b'{"member_id":"\\u0000"}',
        {"/member_id": "must not hold control characters"},
    ),
    "a name that no topic has": (
        ShareGroupHeartbeatRequest,
        b'{"member_id":"m","subscribed_topic_names":["t","a b"]}',
        {"/subscribed_topic_names/1": "must have 1 to 249 characters of a-z, A-Z, 0-9, `.`, `_` and `-`"},
    ),
    "an empty array": (ProduceRequest, b'{"records":[]}', {"/records": "must have 1 to 10000 entries"}),
    "a word that is not known": (
        ResetShareGroupOffsetsRequest,
        b'{"to":"earlist"}',
        {"/to": "must be one of `current`, `datetime`, `earliest`, `latest`, `offset`; did you mean `earliest`?"},
    ),
    "a member with a free name": (
        CreateTopicRequest,
        b'{"name":"x","config":{"good":"1","a/b~c":[]}}',
        {"/config": "has a member that must be a string, not an array"},
    ),
}


@pytest.mark.parametrize(("kind", "body", "faults"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_reported_with_its_place(kind: Any, body: bytes, faults: dict[str, str]) -> None:
    refused = refusal(kind, body)
    assert refused.status == 422
    assert dict(refused.pointers) == faults
    for pointer, words in faults.items():
        assert f"{mistakes.shown(pointer)} {words}" in refused.detail


def test_the_detail_is_a_sentence() -> None:
    assert refusal(ProduceRequest, b'{"value":1}').detail == "`value` is an unknown field"
    nested = refusal(ProduceRequest, b'{"records":[{"partition":"1"}]}')
    assert nested.detail == "`/records/0/partition` must be an integer, not a string"


HEADERS = dict[str, str]


def test_the_pointer_of_a_part_begins_where_the_part_is() -> None:
    body = b'{"h":"x","a/b":5}'
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(body, type=HEADERS)
    refused = mistakes.unfit_body(raised.value, HEADERS, "/records/3/headers")
    assert refused.pointers == (("/records/3/headers", "has a member that must be a string, not a number"),)


UNREADABLE = {
    b"": "there is no body; send a JSON object with `records`",
    b" \r\n": "there is no body; send a JSON object with `records`",
    b'{"records":[': "the body is not JSON: it ends too early",
    b'{"records":[{"value":1}]} x': "the body is not JSON: trailing characters (byte 27)",
    rb'{"records":[{"value":"\\\ud800"}]}': r"the body is not JSON: half of a surrogate pair (\ud800) at byte 24",
    rb'{"records":[{"value":"\ud83d\ude00","key":"\\ud800': "the body is not JSON: it ends too early",
}


@pytest.mark.parametrize(("body", "detail"), UNREADABLE.items())
def test_a_body_that_is_not_json_is_400(body: bytes, detail: str) -> None:
    refused = refusal(ProduceRequest, body)
    assert (refused.status, refused.detail) == (400, detail)


def test_a_missing_body_names_what_to_send() -> None:
    assert mistakes.no_body(AcknowledgeRequest).detail == (
        "there is no body; send a JSON object with `member_id` and `acknowledgements`"
    )
    assert mistakes.no_body(FetchRequest).detail == "there is no body; send a JSON object; the empty one is `{}`"


LARGE = {
    "100,000 unknown fields": b"{%b}" % b",".join(b'"f%095d":1' % number for number in range(100_000)),
    "one long unknown name": b'{"%b":1}' % (b"n" * 10 * MIB),
    "many places in a name": b'{"%b":1}' % (b"` - at `$." * MIB),
}


@pytest.mark.parametrize("body", LARGE.values(), ids=LARGE.keys())
def test_explaining_a_large_body_costs_little(body: bytes) -> None:
    """About as much as reading the body once, and a short answer."""
    refused = refusal(FetchRequest, body)
    assert times_as_much(lambda: refusal(FetchRequest, body), lambda: json.loads(body)) < 10
    assert len(refused.detail) < 500
    assert all(len(pointer) < 500 for pointer, _ in refused.pointers)


def test_a_name_of_any_form_is_answered() -> None:
    """Names that look like the places that msgspec tells."""
    for name in (" - at `$", "x` - at `$.topics", "x` - at `$[0]", "x` - at `$[...]", "x` - at `$.topics[0].y", ""):
        refused = refusal(FetchRequest, msgspec.json.encode({name: 1}))
        assert (refused.status, "is an unknown field" in refused.detail) == (422, True)
