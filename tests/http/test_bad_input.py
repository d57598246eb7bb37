"""Bad input: each fault has its status and code, its problem document, and changes nothing.

Source: the HTTP contract's problem table. 422: the body is JSON and something it says is refused.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.http.calls import Gateway, acknowledge_range, good, outcomes, problem

INVALID_REQUEST = ("INVALID_REQUEST", 42)
RECORDS = "/v1/topics/{topic}/records"
FETCH = "/v1/share-groups/{group}/fetch"
HEARTBEAT = "/v1/share-groups/{group}/heartbeat"
ACKNOWLEDGE = "/v1/share-groups/{group}/acknowledge"


class Setting(NamedTuple):
    """A topic of two partitions with five records in the first, which member `m1` of the group holds."""

    topic: str
    group: str


@pytest.fixture(scope="module")
def made(gateway: Gateway) -> Setting:
    gateway.configure("bad-input", share_record_lock_duration_ms=600_000)
    gateway.create_topic("bad-input", partitions=2)
    gateway.produce_batches("bad-input", 5)
    gateway.acquire("bad-input", "bad-input")
    return Setting("bad-input", "bad-input")


@pytest.fixture
def setting(gateway: Gateway, made: Setting) -> Iterator[Setting]:
    """Checks after the test that nothing changed: topics, log ends, members, records in flight and their deadlines."""

    def everything() -> Any:
        topics = good(gateway.http.get("/v1/topics", params={"page_size": 10_000}))
        group = good(gateway.http.get(f"/v1/share-groups/{made.group}"))
        del group["work"], group["workers"]  # ages, and calls
        return topics, group, gateway.describe_topic(made.topic), gateway.in_flight(made.group)

    before = everything()
    yield made
    assert everything() == before


def record(**fields: Any) -> dict[str, Any]:
    return {"records": [fields]}


def fetch(**fields: Any) -> dict[str, Any]:
    return {"topics": ["{topic}"], "max_wait_ms": 0, "member_id": "m1", **fields}


def heartbeat(**fields: Any) -> dict[str, Any]:
    return {"member_id": "m1", "subscribed_topic_names": ["{topic}"], **fields}


def acknowledge(first: Any = 0, last: Any = 4, type: str | None = "accept", **fields: Any) -> dict[str, Any]:
    given = {} if type is None else {"type": type}
    entry = {"topic": "{topic}", "partition": 0, "first_offset": first, "last_offset": last, **given, **fields}
    return {"member_id": "m1", "acknowledgements": [entry]}


def filled(value: Any, setting: Setting) -> Any:
    """`value` with the topic's and the group's name in the place of `{topic}` and `{group}`."""
    if isinstance(value, str):
        return value.replace("{topic}", setting.topic).replace("{group}", setting.group)
    if isinstance(value, list):
        return [filled(item, setting) for item in value]
    if isinstance(value, dict):
        return {filled(key, setting): filled(item, setting) for key, item in value.items()}
    return value


UNFIT = {
    "produce: unknown field of a record": (RECORDS, record(value=1, valeu=2)),
    "produce: value and value_base64": (RECORDS, record(value=1, value_base64="AQ==")),
    "produce: bad base64 of a value": (RECORDS, record(value_base64="A*==")),
    "produce: one bad record among good ones": (RECORDS, {"records": [{"value": 1}, {"value_base64": "?"}]}),
    "fetch: max_records beyond int32": (FETCH, fetch(max_records=2**31)),
    "fetch: unknown acquire_mode": (FETCH, fetch(acquire_mode="batches")),
    "acknowledge: no last_offset": (ACKNOWLEDGE, {"member_id": "m1", "acknowledgements": [{"topic": "{topic}"}]}),
    "acknowledge: a delay above twelve hours": (ACKNOWLEDGE, acknowledge(type="release", delay_ms=12 * 3_600_000 + 1)),
    "fetch: a control character in the member id": (FETCH, fetch(member_id="m\x00")),
    "heartbeat: a name that no topic has": (HEARTBEAT, heartbeat(subscribed_topic_names=["a b"])),
    "delete-records: below -1": (
        "/v1/topics/{topic}/delete-records",
        {"partitions": [{"partition": 0, "before_offset": -2}]},
    ),
}


@pytest.mark.parametrize(("path", "body"), UNFIT.values(), ids=UNFIT.keys())
def test_a_body_that_does_not_fit_the_schema_is_422(gateway: Gateway, setting: Setting, path: str, body: Any) -> None:
    response = gateway.http.post(filled(path, setting), json=filled(body, setting))
    document = problem(response, 422, *INVALID_REQUEST)
    assert (document["retriable"], document["definite"]) == (False, True)
    assert all(set(fault) == {"pointer", "detail"} for fault in document["errors"])


def test_a_problem_names_the_faulty_field_as_a_json_pointer(gateway: Gateway, setting: Setting) -> None:
    faults = {"value": 1}, {"value": 1, "value_base64": "AQ=="}
    response = gateway.http.post(f"/v1/topics/{setting.topic}/records", json={"records": list(faults)})
    assert problem(response, 422, *INVALID_REQUEST)["errors"][0]["pointer"] == "/records/1/value"
    body = filled(fetch(topic_partitions=[{"topic": "{topic}", "partitions": [0, "1"]}]), setting)
    response = gateway.http.post(f"/v1/share-groups/{setting.group}/fetch", json=body)
    assert problem(response, 422, *INVALID_REQUEST)["errors"][0]["pointer"] == "/topic_partitions/0/partitions/1"


def test_a_query_parameter_is_explained(gateway: Gateway, setting: Setting) -> None:
    for path in ("/v1/topics", "/v1/share-groups", filled("/v1/share-groups/{group}/in-flight", setting)):
        document = problem(gateway.http.get(path, params={"page_size": 0}), 422, *INVALID_REQUEST)
        assert document["detail"] == "`page_size` must be from 1 to 10000"
        assert document["errors"] == [{"pointer": "/page_size", "detail": "must be from 1 to 10000"}]
        assert "limit" not in document
        document = problem(gateway.http.get(path, params={"page_sise": 1}), 422, *INVALID_REQUEST)
        detail = "is an unknown query parameter; did you mean `page_size`?"
        assert document["errors"] == [{"pointer": "/page_sise", "detail": detail}]
        twice = problem(gateway.http.get(f"{path}?page_size=1&page_size=2"), 422, *INVALID_REQUEST)
        assert twice["errors"][0]["pointer"] == "/page_size"


REFUSED = {
    "topics: bad character": ("/v1/topics", {"name": "a b"}, "INVALID_TOPIC_EXCEPTION", 17),
    "topics: reserved": ("/v1/topics", {"name": "__state"}, "INVALID_TOPIC_EXCEPTION", 17),
    "topics: no partitions": ("/v1/topics", {"name": "n", "partitions": 0}, "INVALID_PARTITIONS", 37),
    "topics: too many": ("/v1/topics", {"name": "n", "partitions": 10_001}, "INVALID_PARTITIONS", 37),
    "topics: unknown setting": ("/v1/topics", {"name": "n", "config": {"retention": "1"}}, "INVALID_CONFIG", 40),
    "topics: setting out of bounds": (
        "/v1/topics",
        {"name": "n", "config": {"retention.ms": "-2"}},
        "INVALID_CONFIG",
        40,
    ),
    "produce: bad topic name": ("/v1/topics/a%20b/records", record(value=1), "INVALID_TOPIC_EXCEPTION", 17),
    "fetch: bad topic name": (FETCH, fetch(topics=["a b"]), "INVALID_TOPIC_EXCEPTION", 17),
    "fetch: control character in the group": ("/v1/share-groups/a%07b/fetch", fetch(), "INVALID_GROUP_ID", 24),
    "fetch: nothing named": (FETCH, {"member_id": "m1"}, *INVALID_REQUEST),
    "fetch: acknowledgements with epoch 0": (
        FETCH,
        {**fetch(share_session_epoch=0), "acknowledgements": acknowledge()["acknowledgements"]},
        *INVALID_REQUEST,
    ),
    "fetch: is_renew_ack with limits": (FETCH, fetch(is_renew_ack=True, max_records=1), *INVALID_REQUEST),
    "acknowledge: a negative offset": (ACKNOWLEDGE, acknowledge(-1, 4), *INVALID_REQUEST),
    "AV-001 first after last": (ACKNOWLEDGE, acknowledge(3, 2), *INVALID_REQUEST),
    "AV-005 no types": (ACKNOWLEDGE, acknowledge(type=None, types=[]), *INVALID_REQUEST),
    "acknowledge: neither type nor types": (ACKNOWLEDGE, acknowledge(type=None), *INVALID_REQUEST),
    "acknowledge: type and types": (ACKNOWLEDGE, acknowledge(types=["accept"] * 5), *INVALID_REQUEST),
    "acknowledge: four types for five": (
        ACKNOWLEDGE,
        acknowledge(type=None, types=["accept"] * 4),
        *INVALID_REQUEST,
    ),
    "AV-009 unknown type": (ACKNOWLEDGE, acknowledge(type="keep"), *INVALID_REQUEST),
    "acknowledge: types that are one text": (ACKNOWLEDGE, acknowledge(type=None, types="accept"), *INVALID_REQUEST),
    "acknowledge: types that are null": (ACKNOWLEDGE, acknowledge(type=None, types=None), *INVALID_REQUEST),
    "acknowledge: a delay without release": (ACKNOWLEDGE, acknowledge(delay_ms=5), *INVALID_REQUEST),
    "acknowledge: a reason for an accept": (ACKNOWLEDGE, acknowledge(reason="good"), *INVALID_REQUEST),
    "acknowledge: offsets never fetched": (ACKNOWLEDGE, acknowledge(3, 9), *INVALID_REQUEST),
    "delete-records: a partition twice": (
        "/v1/topics/{topic}/delete-records",
        {"partitions": [{"partition": 0, "before_offset": 1}, {"partition": 0, "before_offset": 2}]},
        *INVALID_REQUEST,
    ),
    "delete-records: behind the end": (
        "/v1/topics/{topic}/delete-records",
        {"partitions": [{"partition": 0, "before_offset": 2}, {"partition": 1, "before_offset": 1}]},
        "OFFSET_OUT_OF_RANGE",
        1,
    ),
}


@pytest.mark.parametrize(("path", "body", "code", "number"), REFUSED.values(), ids=REFUSED.keys())
def test_a_body_that_breaks_a_rule_of_its_call_is_422(
    gateway: Gateway, setting: Setting, path: str, body: Any, code: str, number: int
) -> None:
    response = gateway.http.post(filled(path, setting), json=filled(body, setting))
    document = problem(response, 422, code, number)
    assert (document["retriable"], document["definite"]) == (False, True)


MISSING = {
    "produce: no such partition": (RECORDS, record(value=1, partition=2)),
    "fetch: no such topic": (FETCH, fetch(topics=["no-such-topic"])),
    "FA-023 no such partition": (FETCH, fetch(topics=None, topic_partitions=[{"topic": "{topic}", "partitions": [9]}])),
    "acknowledge: no such topic": (ACKNOWLEDGE, acknowledge(topic="no-such-topic")),
    "FA-023 acknowledge: no such partition": (ACKNOWLEDGE, acknowledge(partition=9)),
    "acknowledge: a negative partition": (ACKNOWLEDGE, acknowledge(partition=-1)),
    "delete-records: no such partition": (
        "/v1/topics/{topic}/delete-records",
        {"partitions": [{"partition": 0, "before_offset": 1}, {"partition": 2, "before_offset": 0}]},
    ),
    "delete-records: no such topic": (
        "/v1/topics/no-such-topic/delete-records",
        {"partitions": [{"partition": 0, "before_offset": 0}]},
    ),
}


@pytest.mark.parametrize(("path", "body"), MISSING.values(), ids=MISSING.keys())
def test_unknown_topics_and_partitions_are_404(gateway: Gateway, setting: Setting, path: str, body: Any) -> None:
    problem(gateway.http.post(filled(path, setting), json=filled(body, setting)), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


def test_only_calls_that_a_new_topic_helps_say_how_to_make_one(gateway: Gateway, setting: Setting) -> None:
    said = "there is no topic 'no-such-topic'"
    topic, group = "/v1/topics/no-such-topic", f"/v1/share-groups/{setting.group}"
    reads = ("", "/partitions/0/records", "/partitions/0/batches")
    for response in (
        gateway.http.delete(topic),
        *(gateway.http.get(topic + path) for path in reads),
        gateway.http.get(f"{group}/in-flight", params={"topic": "no-such-topic"}),
        gateway.http.post(f"{topic}/delete-records", json={"partitions": [{"partition": 0, "before_offset": 0}]}),
        gateway.try_acknowledge(setting.group, [acknowledge_range("no-such-topic", 0, 0, "accept")]),
    ):
        assert problem(response, 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)["detail"] == said
    fetched = gateway.http.post(f"{group}/fetch", json=fetch(topics=["no-such-topic"]))
    detail = problem(fetched, 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)["detail"]
    assert detail == f"{said}; make it with POST /v1/topics or produce to it"


WRONG_STATE = {
    "a foreign holder": {**acknowledge(), "member_id": "m2"},
    "a stale delivery count": acknowledge(delivery_count=2),
    "a partition never fetched": acknowledge(partition=1),
}


@pytest.mark.parametrize("body", WRONG_STATE.values(), ids=WRONG_STATE.keys())
def test_records_in_another_state_are_409(gateway: Gateway, setting: Setting, body: Any) -> None:
    response = gateway.http.post(filled(ACKNOWLEDGE, setting), json=filled(body, setting))
    document = problem(response, 409, "INVALID_RECORD_STATE", 121)
    assert document["failed_count"] == 1
    assert [result["status"] for result in document["results"]] == ["failed"]


ATOMIC = {
    "AV-003 unsorted": [("accept", 3, 4), ("accept", 0, 2)],
    "overlapping": [("accept", 0, 2), ("accept", 2, 4)],
}


@pytest.mark.parametrize("given", ATOMIC.values(), ids=ATOMIC.keys())
def test_unsorted_or_overlapping_under_atomic_is_422(
    gateway: Gateway, setting: Setting, given: list[tuple[str, int, int]]
) -> None:
    acknowledgements = [acknowledge_range(setting.topic, first, last, type) for type, first, last in given]
    response = gateway.try_acknowledge(setting.group, acknowledgements, atomic=True)
    problem(response, 422, *INVALID_REQUEST)
    assert outcomes(response) == [42, 42]


def test_av_017_the_group_id_is_checked_in_every_group_call(gateway: Gateway, setting: Setting) -> None:
    for call, path in (("POST", "fetch"), ("POST", "acknowledge"), ("GET", "in-flight"), ("GET", "offsets")):
        body = filled(fetch() if path == "fetch" else acknowledge(), setting) if call == "POST" else None
        response = gateway.http.request(call, f"/v1/share-groups/a%1fb/{path}", json=body)
        problem(response, 422, "INVALID_GROUP_ID", 24)
    for call, body in (("GET", None), ("PATCH", {"config": {"share.delivery.count.limit": "3"}})):
        problem(gateway.http.request(call, "/v1/share-groups/a%00b/config", json=body), 422, "INVALID_GROUP_ID", 24)


def test_a_wait_above_the_cap_is_accepted(gateway: Gateway, setting: Setting) -> None:
    assert gateway.acquire("bad-input-2", setting.topic, max_wait_ms=2**31 - 1) == ["0-4×1"]


@pytest.mark.soak
def test_a_wait_above_the_cap_ends_at_the_cap(gateway: Gateway, setting: Setting) -> None:
    started = time.monotonic()
    assert gateway.acquire(setting.group, setting.topic, max_wait_ms=2**31 - 1) == []
    assert 29.5 < time.monotonic() - started < 36


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/share-groups", "/v1/share-groups/{group}"])
def test_a_control_character_in_a_page_token_is_422(gateway: Gateway, setting: Setting, path: str) -> None:
    response = gateway.http.get(filled(path, setting), params={"page_token": "a\x00"})
    problem(response, 422, *INVALID_REQUEST)
