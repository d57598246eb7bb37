"""A stream of a group's records: what it sends, what a lost connection leaves, and who may open it."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from sharequeue.stack.stack import Stack
from tests.event_source import EventSource, StreamEvent
from tests.http.calls import LONG_MS, Gateway, good, problem, ranges, wait_until

Open = Any
RESUME_MS = 30_000
"""As long as a lock: a busy machine may take longer than the default of 5 s to open a stream again."""


@pytest.fixture
def open_stream(shared_stack: Stack) -> Iterator[Open]:
    """Opens streams at the shared stack's gateway, and cuts them at the end."""
    with ExitStack() as stack:

        def open_one(group: str, topic: str, **options: Any) -> EventSource:
            source = EventSource(shared_stack.url, group, topic, **{"resume_ms": RESUME_MS, **options})
            stack.callback(source.cut)
            return source

        yield open_one


def accept(gateway: Gateway, group: str, event: StreamEvent, **fields: Any) -> None:
    """Accept everything that an event brought, by the ordinary call."""
    entries = [
        {name: value for name, value in batch.items() if name != "records"} | {"type": "accept", **fields}
        for batch in event.data["batches"]
    ]
    answer = gateway.try_acknowledge(group, entries, member=event.data["member_id"])
    assert answer.json()["failed_count"] == 0, answer.text


def held(gateway: Gateway, group: str, topic: str) -> list[str]:
    """The window in short; empty while the group does not exist."""
    answer = gateway.http.get(f"/v1/share-groups/{group}/in-flight", params={"topic": topic})
    known = answer.status_code == 200 and answer.json()["partitions"]
    return gateway.window(group, topic)[1] if known else []


@pytest.mark.soak
def test_a_stream_whose_window_is_full_is_a_sign_of_life(gateway: Gateway, open_stream: Open, name: str) -> None:
    """It fetches nothing as long as its worker is busy."""
    gateway.configure(name, share_record_lock_duration_ms=600_000)
    gateway.produce(name, 1, 2)
    source = open_stream(name, name, window=1)
    source.next()

    def silent_s() -> int:
        (member,) = good(gateway.http.get(f"/v1/share-groups/{name}"))["workers"]
        return int(member["seconds_ago"])

    wait_until(lambda: silent_s() >= 10)
    wait_until(lambda: silent_s() < 10)
    assert held(gateway, name, name) == ["0-0 ACQUIRED×1", "1-1 AVAILABLE×0"]


def test_st_001_records_come_as_events_and_an_event_is_acknowledged_as_a_fetch(
    gateway: Gateway, open_stream: Open, name: str
) -> None:
    gateway.create_topic(name)
    source = open_stream(name, name)
    assert source.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert source.headers["cache-control"] == "no-store"
    assert source.headers["x-accel-buffering"] == "no"
    gateway.produce(name, {"id": 1}, {"id": 2})
    first = source.next()
    assert (first.kind, ranges(first.data)) == ("message", ["0-1×1"])
    assert [record["value"] for record in first.data["batches"][0]["records"]] == [{"id": 1}, {"id": 2}]
    stream, _, position = first.id.partition(".")
    assert (len(stream), position) == (16, "1")
    accept(gateway, name, first)
    assert gateway.window(name, name) == (2, [])
    gateway.produce(name, 3)
    second = source.next()
    assert (second.id, ranges(second.data)) == (f"{stream}.2", ["2-2×1"])


def test_st_002_no_more_than_the_window_is_held(gateway: Gateway, open_stream: Open, name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, *range(10))
    source = open_stream(name, name, window=4)
    first = source.next()
    assert ranges(first.data) == ["0-3×1"]
    assert source.silent(0.7)
    assert gateway.settle(name, name, 0, 0, "accept") == "applied"
    assert ranges(source.next().data) == ["4-4×1"]
    assert gateway.settle(name, name, 1, 3, "release", delay_ms=60_000) == "applied"
    assert ranges(source.next().data) == ["5-7×1"]
    assert source.silent(0.3)


def test_st_003_settling_opens_the_window_at_once(gateway: Gateway, open_stream: Open, name: str) -> None:
    """The leader tells: it takes no look each half second. An append to a stream that has room is the control."""
    other = f"{name}-other"
    for topic in (name, other):
        gateway.create_topic(topic)
    gateway.produce(name, *range(50))
    full, roomy = open_stream(name, name, window=1), open_stream(other, other)
    event = full.next()
    settled, appended = [], []
    for number in range(20):
        began = time.monotonic()
        accept(gateway, name, event)
        event = full.next()
        settled.append(time.monotonic() - began)
        began = time.monotonic()
        gateway.produce(other, number)
        roomy.next()
        appended.append(time.monotonic() - began)
    assert min(settled) < 10 * min(appended)


def test_st_004_a_reconnect_is_sent_what_it_lacks_with_the_same_delivery_count(
    gateway: Gateway, open_stream: Open, name: str
) -> None:
    gateway.create_topic(name)
    source = open_stream(name, name)
    events = []
    for value in range(4):
        gateway.produce(name, value)
        events.append(source.next())
    accept(gateway, name, events[2])
    resumed = gateway.metrics()["sharequeue_streams_resumed_total"]
    source.cut()
    again = open_stream(name, name, last_id=events[0].id)
    assert [(event.id, ranges(event.data)) for event in (again.next(), again.next())] == [
        (events[1].id, ["1-1×1"]),
        (events[3].id, ["3-3×1"]),
    ]
    assert gateway.metrics()["sharequeue_streams_resumed_total"] == resumed + 1
    gateway.produce(name, 4)
    assert ranges(again.next().data) == ["4-4×1"]
    for event in (events[0], events[1], events[3]):
        accept(gateway, name, event)


def test_st_006_a_client_that_does_not_come_back_loses_its_records(
    gateway: Gateway, open_stream: Open, name: str
) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 0, 1, 2)
    source = open_stream(name, name, resume_ms=300)
    assert ranges(source.next().data) == ["0-2×1"]
    source.cut()
    assert ranges(gateway.fetch(name, name, member="m2", max_wait_ms=LONG_MS)) == ["0-2×2"]


def test_st_007_records_stay_held_for_resume_ms(gateway: Gateway, open_stream: Open, name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 0)
    source = open_stream(name, name, resume_ms=60_000)
    source.next()
    source.cut()
    assert gateway.acquire(name, name, member="m2", max_wait_ms=1000) == []
    assert gateway.window(name, name) == (0, ["0-0 ACQUIRED×1"])
    assert gateway.settle(name, name, 0, 0, "accept") == "applied"


def test_st_008_the_older_connection_is_replaced(gateway: Gateway, open_stream: Open, name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 0)
    older = open_stream(name, name)
    first = older.next()
    before = gateway.metrics()["sharequeue_streams_replaced_total"]
    newer = open_stream(name, name, last_id=first.id)
    replaced = older.next()
    assert (replaced.kind, older.ended()) == ("replaced", True)
    assert gateway.metrics()["sharequeue_streams_replaced_total"] == before + 1
    gateway.produce(name, 1)
    assert ranges(newer.next().data) == ["1-1×1"]


def test_st_010_what_was_not_written_is_given_back_and_forgiven(gateway: Gateway, open_stream: Open, name: str) -> None:
    """A client that reads nothing: the end of the event stays in the gateway."""
    gateway.create_topic(name, max_message_bytes=9_000_000)
    gateway.produce(name, "x" * 8_000_000)
    source = open_stream(name, name, reads=False, resume_ms=0)
    wait_until(lambda: held(gateway, name, name))
    source.cut(reset=True)
    fetched = gateway.fetch(name, name, member="m2", max_wait_ms=LONG_MS)
    (batch,) = fetched["batches"]
    assert (batch["delivery_count"], batch["attempt"]) == (2, 1)


def test_st_014_line_breaks_in_a_value_do_not_break_the_event(gateway: Gateway, open_stream: Open, name: str) -> None:
    gateway.create_topic(name)
    body = b'{"records":[{"value":{\r\n\r\n"a":\n\n1,\r"b":"event: replaced"}}]}'
    answer = gateway.http.post(f"/v1/topics/{name}/records", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    event = open_stream(name, name).next()
    assert event.kind == "message"
    assert event.data["batches"][0]["records"][0]["value"] == {"a": 1, "b": "event: replaced"}


def test_new_partitions_join_a_stream_that_waits(gateway: Gateway, open_stream: Open, name: str) -> None:
    gateway.create_topic(name)
    source = open_stream(name, name)
    for partition in (1, 2):
        before = gateway.metrics()["sharequeue_delayed_share_fetch_expires_total"]
        good(gateway.http.patch(f"/v1/topics/{name}", json={"partitions": partition + 1}))
        gateway.produce(name, "new", partition=partition)
        event = source.next()
        assert ranges(event.data) == [f"{partition}:0-0×1"]
        assert gateway.metrics()["sharequeue_delayed_share_fetch_expires_total"] == before
        accept(gateway, name, event)


def test_st_016_a_deleted_topic_closes_the_stream(gateway: Gateway, open_stream: Open, name: str) -> None:
    gateway.create_topic(name)
    source = open_stream(name, name)
    assert gateway.http.delete(f"/v1/topics/{name}").status_code == 204
    event = source.next()
    while event.kind == "problem":
        event = source.next()
    assert (event.kind, event.data["code"], event.data["retriable"]) == (
        "closed",
        "UNKNOWN_TOPIC_OR_PARTITION",
        False,
    )
    assert source.ended()


@pytest.mark.parametrize("full", [False, True])
def test_st_017_a_reset_of_the_group_closes_the_stream(
    gateway: Gateway, open_stream: Open, name: str, full: bool
) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 0, 1)
    source = open_stream(name, name, window=1 if full else 100)
    source.next()
    gateway.reset(name, "earliest", name, force=True)
    event = source.next()
    assert (event.kind, event.data["retriable"], source.ended()) == ("closed", True, True)
    assert ranges(open_stream(name, name, last_id=event.id).next().data)[0].startswith("0-")


def test_st_018_heartbeats_are_comments(gateway: Gateway, own_gateway: Gateway, stack: Stack, name: str) -> None:
    own_gateway.create_topic(name)
    source = EventSource(stack.url, name, name, resume_ms=0)
    wait_until(lambda: source.comments >= 2)
    own_gateway.produce(name, 0)
    assert ranges(source.next().data) == ["0-0×1"]
    source.cut()


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_GATEWAY_STREAM_HEARTBEAT_MS": "500", "SHAREQUEUE_GATEWAY_MAX_STREAMS": "2"}


def test_st_019_the_number_of_streams_is_bounded(own_gateway: Gateway, stack: Stack, name: str) -> None:
    own_gateway.create_topic(name)
    sources = [EventSource(stack.url, name, name, member=f"m{number}", resume_ms=0) for number in range(2)]
    refused = own_gateway.http.get(
        f"/v1/share-groups/{name}/stream",
        params={"topic": name, "member_id": "m9"},
        headers={"accept": "text/event-stream"},
    )
    assert problem(refused, 429, "THROTTLING_QUOTA_EXCEEDED", 89)["limit"] == 2
    assert "max_streams" in refused.json()["detail"]
    assert own_gateway.metrics()["sharequeue_streams"] == 2
    sources[0].cut()
    wait_until(lambda: own_gateway.metrics()["sharequeue_streams"] == 1)
    EventSource(stack.url, name, name, member="m9").cut()
    sources[1].cut()


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        pytest.param({}, {"accept": "*/*"}, 406, id="any type"),
        pytest.param({}, {"accept": "text/event-stream;q=0, */*"}, 406, id="not this type"),
        pytest.param({}, {"sec-fetch-site": "cross-site"}, 403, id="cross-site"),
        pytest.param({}, {"origin": "https://example.com"}, 403, id="foreign origin"),
        pytest.param({"window": 0}, {}, 422, id="no window"),
        pytest.param({"window": 2001}, {}, 422, id="too large a window"),
        pytest.param({"member_id": ""}, {}, 422, id="no member"),
        pytest.param({"topic": "there-is-none"}, {}, 404, id="no topic"),
        pytest.param({"topic": ","}, {}, 422, id="no name"),
        pytest.param({"resume_ms": -1}, {}, 422, id="negative time"),
        pytest.param({}, {"last-event-id": "7"}, 422, id="foreign event id"),
    ],
)
def test_st_020_what_is_refused_acquires_nothing(
    gateway: Gateway, name: str, query: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 0)
    answer = gateway.http.get(
        f"/v1/share-groups/{name}/stream",
        params={"topic": name, "member_id": "m1", **query},
        headers={"accept": "text/event-stream", **headers},
    )
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert gateway.acquire(name, name, member="m2") == ["0-0×1"]


def test_st_021_head_acquires_nothing(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 0)
    answer = gateway.http.head(
        f"/v1/share-groups/{name}/stream",
        params={"topic": name, "member_id": "m1"},
        headers={"accept": "text/event-stream"},
    )
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert gateway.acquire(name, name, member="m2") == ["0-0×1"]


def test_st_022_a_cut_in_the_middle_of_an_event_loses_nothing(gateway: Gateway, open_stream: Open, name: str) -> None:
    gateway.create_topic(name)
    for _ in range(6):
        gateway.produce(name, "y" * 300_000)
    source = open_stream(name, name, reads=False)
    wait_until(lambda: held(gateway, name, name))
    source.cut(reset=True)
    again = open_stream(name, name)
    seen: set[int] = set()
    while len(seen) < 6:
        for batch in again.next().data["batches"]:
            assert batch["delivery_count"] == 1
            seen |= {record["offset"] for record in batch["records"]}
