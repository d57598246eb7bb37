"""The Python client acknowledges: implicitly, explicitly, in the background; it reports each failure."""

import asyncio
from typing import Any

import httpx
import pytest

from sharequeue.client import (
    AcknowledgementError,
    IllegalState,
)
from sharequeue.client.consuming.acknowledging import Settled
from sharequeue.client.consuming.outcomes import ACCEPT
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import ConsumerRecord
from sharequeue.stack.stack import Stack
from tests.fetched import delivery_of
from tests.http.client_calls import (
    NOTHING_MS,
    ask,
    configure,
    consumers,
    in_event_loop,
    produce,
    seen_by_another,
    until,
)


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


# Implicitly


@in_event_loop
async def test_the_next_poll_accepts_records_of_the_last_one(stack: Stack, name: str) -> None:
    await produce(stack, name, *range(5))
    async with consumers(stack, name, name, max_records=3) as consumer:
        assert [record.value for record in await consumer.poll()] == [0, 1, 2]
        assert [record.value for record in await consumer.poll()] == [3, 4]
        with pytest.raises(IllegalState, match="implicitly"):
            consumer.acknowledge(next(iter(consumer._settling.held)).records[3])
    assert await seen_by_another(stack, name, name) == [(3, 2), (4, 2)]  # close released them


@in_event_loop
async def test_commit_accepts_records_and_returns_their_number(stack: Stack, client: httpx.Client, name: str) -> None:
    ask(client, "POST", "/v1/topics", {"name": name, "partitions": 2})
    await produce(stack, name, 1, 2, partition=0)
    await produce(stack, name, 3, partition=1)
    async with consumers(stack, name, name) as consumer:
        got = await consumer.poll()
        while len(got) < 3:
            got += await consumer.poll()
        assert await consumer.commit() in ({(name, 0): 2, (name, 1): 1}, {(name, 0): 2}, {(name, 1): 1})
        assert await consumer.commit() == {}
    assert await seen_by_another(stack, name, name, NOTHING_MS) == []


@in_event_loop
async def test_leaving_an_iteration_accepts_done_records_and_releases_the_rest(stack: Stack, name: str) -> None:
    await produce(stack, name, *range(5))
    async with consumers(stack, name, name) as consumer:
        async for record in consumer:
            if record.value == 2:
                break
    assert await seen_by_another(stack, name, name) == [(2, 2), (3, 2), (4, 2)]
    async with consumers(stack, name, name) as consumer:
        async for record in consumer:
            if record.value == 3:
                await consumer.commit()
                break
    assert await seen_by_another(stack, name, name) == [(4, 4)]


# Explicitly


@in_event_loop
async def test_each_record_must_be_acknowledged_before_the_next_poll(
    stack: Stack, client: httpx.Client, name: str
) -> None:
    await produce(stack, name, *range(6))
    async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
        records = await consumer.poll()
        for record in records[:5]:
            consumer.acknowledge(record)
        with pytest.raises(IllegalState, match="1 records are not acknowledged"):
            await consumer.poll()
        consumer.acknowledge(records[1], "release", reason="later")
        consumer.acknowledge(records[2], "reject", reason="bad")
        consumer.acknowledge(records[5], "release", delay_ms=3_600_000)
        again = await consumer.poll()
        assert [(record.offset, record.delivery_count) for record in again] == [(1, 2)]
        with pytest.raises(IllegalState, match="already acknowledged"):
            consumer.acknowledge(records[0])
        with pytest.raises(ValueError, match="no acknowledge type"):
            consumer.acknowledge(again[0], "forget")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="reason is allowed with"):
            consumer.acknowledge(again[0], "accept", reason="why")
        consumer.acknowledge(again[0])
        assert await consumer.commit() == {(name, 0): 1}
    async with consumers(stack, f"{name}-dlq", f"dlq.{name}") as dead:
        (letter,) = await dead.poll()
        assert (letter.value, letter.headers["__dlq.errors.reason"]) == (2, "bad")
    (partition,) = ask(client, "GET", f"/v1/share-groups/{name}/in-flight")["partitions"]
    (waiting,) = partition["batches"]
    assert (waiting["first_offset"], waiting["last_offset"], "available_at_ms" in waiting) == (5, 5, True)


@in_event_loop
async def test_ee_007_records_can_be_acknowledged_in_two_steps(stack: Stack, name: str) -> None:
    await produce(stack, name, *range(3))
    async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
        first = await consumer.poll()
        assert [record.offset for record in first] == [0, 1, 2]
        for record in first[:2]:
            consumer.acknowledge(record)
        covered = sum((await consumer.commit()).values())
        consumer.acknowledge(first[2])
        await produce(stack, name, 3)
        (last,) = await consumer.poll()
        assert last.offset == 3
        consumer.acknowledge(last)
        covered += sum((await consumer.commit()).values())
        assert covered + 1 == 4, "and the one that travelled with the poll"
    assert await seen_by_another(stack, name, name, NOTHING_MS) == []


@in_event_loop
async def test_deferred_acknowledgements_may_follow_many_polls(stack: Stack, name: str) -> None:
    await produce(stack, name, *range(4))
    async with consumers(stack, name, name, acknowledgement="deferred", max_records=2) as consumer:
        first = await consumer.poll()
        second = await consumer.poll()
        consumer.acknowledge(first[1])
        consumer.acknowledge(second[0])
        assert await consumer.poll(NOTHING_MS) == []
        consumer.acknowledge(first[0])
        assert await consumer.commit() == {(name, 0): 1}
    assert await seen_by_another(stack, name, name) == [(3, 2)]


@in_event_loop
async def test_acknowledgements_go_in_as_many_calls_as_they_need(stack: Stack, name: str) -> None:
    """1,200 reasons of 3 KB each: a call has at most 1 MiB."""
    await produce(stack, name, *range(1200))
    async with consumers(stack, name, name, max_records=1200, acknowledgement="explicit") as consumer:
        records = await consumer.poll(10_000)
        for record in records:
            consumer.acknowledge(record, "release", reason=f"{record.offset} " + "€" * 1000)
        assert await consumer.commit() == {(name, 0): len(records)}
    assert len(records) == 1200


def test_acknowledgements_are_sent_once_per_run_of_offsets() -> None:
    records = [ConsumerRecord(offset=offset, timestamp_ms=0) for offset in range(10, 20) if offset not in (14, 15)]
    delivery = delivery_of(10, 19, records, delivery_count=2)
    delivery.choose_all(ACCEPT)
    assert [(run.first_offset, run.last_offset, run.outcome.type) for run in delivery.take_chosen()] == [
        (10, 13, "accept"),
        (14, 15, "gap"),
        (16, 19, "accept"),
    ]
    assert delivery.in_flight == 3
    dense = delivery_of(10, 13, records[:4], delivery_count=2)
    dense.choose_all(ACCEPT)
    (run,) = dense.take_chosen()
    message = run.message()
    assert (message.first_offset, message.last_offset, message.delivery_count, message.type) == (10, 13, 2, "accept")


@in_event_loop
async def test_failed_acknowledgements_are_listed_and_the_others_applied(
    stack: Stack, client: httpx.Client, name: str
) -> None:
    await produce(stack, name, *range(5))
    async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
        records = await consumer.poll()
        taken = {"topic": name, "partition": 0, "first_offset": 2, "last_offset": 3, "type": "release"}
        theft = {"member_id": consumer.member_id, "acknowledgements": [taken]}
        ask(client, "POST", f"/v1/share-groups/{name}/acknowledge", theft)
        for record in records:
            consumer.acknowledge(record, "reject" if record.offset in (2, 3) else "accept")
        committed = await consumer.commit()
        assert committed == {(name, 0): 3}
        (failure,) = committed.failures
        assert [record.lost for record in records] == [False, False, True, True, False]
        with pytest.raises(AcknowledgementError, match="1 acknowledgements were not applied"):
            committed.raise_failures()
        assert (failure.topic, failure.partition, failure.first_offset, failure.last_offset) == (name, 0, 2, 3)
        assert (failure.code, failure.type, failure.retriable) == ("INVALID_RECORD_STATE", "reject", False)
        assert await consumer.commit() == {}
    assert await seen_by_another(stack, name, name) == [(2, 2), (3, 2)]


@in_event_loop
async def test_commits_in_the_background_report_to_their_callback(stack: Stack, name: str) -> None:
    await produce(stack, name, *range(4))
    reports: list[tuple[dict[tuple[str, int], int], Exception | None]] = []
    async with consumers(stack, name, name, acknowledgement="explicit", max_records=2) as consumer:
        first = await consumer.poll()
        for record in first:
            consumer.acknowledge(record)
        consumer.commit_async(lambda committed, error: reports.append((committed, error)))
        second = await consumer.poll()
        await until(lambda: len(reports) == 1)
        assert reports == [({(name, 0): 2}, None)]
        for record in second:
            consumer.acknowledge(record)
        polling = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(0)
        with pytest.raises(IllegalState, match="under way"):
            await consumer.poll()
        consumer.commit_async(lambda committed, error: reports.append((committed, error)))
        await until(lambda: len(reports) == 2)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
    assert await seen_by_another(stack, name, name, NOTHING_MS) == []


@in_event_loop
async def test_records_that_another_member_finished_are_not_counted(
    stack: Stack, client: httpx.Client, name: str
) -> None:
    """The start offset has passed them, so the service ignores the acknowledgement: it is not this member's."""
    configure(client, name, share_record_lock_duration_ms=1000)
    await produce(stack, name, 0, 1)
    async with consumers(stack, name, name, acknowledgement="explicit", renew=False) as consumer:
        for record in await consumer.poll():
            consumer.acknowledge(record)
        configure(client, name, share_record_lock_duration_ms=60_000)
        async with consumers(stack, name, name) as other:
            while not [record.value for record in await other.poll()]:
                pass
            assert await other.commit() == {(name, 0): 2}
        committed = await consumer.commit()
        assert committed == {}
        (failure,) = committed.failures
        assert (failure.last_offset, failure.code, failure.detail[:18]) == (
            1,
            "INVALID_RECORD_STATE",
            "the lock had ended",
        )


@in_event_loop
async def test_acknowledgements_that_travel_with_a_poll_report_to_their_callback(
    stack: Stack, client: httpx.Client, name: str
) -> None:
    await produce(stack, name, *range(2))
    reports: list[tuple[dict[tuple[str, int], int], Exception | None]] = []
    options: dict[str, Any] = {"acknowledgement": "explicit", "max_records": 1, "member_id": "m"}
    async with consumers(
        stack, name, name, on_acknowledged=lambda *report: reports.append(report), **options
    ) as consumer:
        (record,) = await consumer.poll()
        consumer.acknowledge(record)
        (record,) = await consumer.poll()
        assert reports == [({(name, 0): 1}, None)]
        consumer.acknowledge(record)
        taken = {"topic": name, "partition": 0, "first_offset": 1, "last_offset": 1, "type": "accept"}
        body = {"member_id": "m", "acknowledgements": [taken]}
        await asyncio.to_thread(ask, client, "POST", f"/v1/share-groups/{name}/acknowledge", body)
        assert await consumer.poll(NOTHING_MS) == []  # it does not raise
        committed, error = reports[1]
        assert committed == {}
        assert isinstance(error, AcknowledgementError)


def test_an_unknown_outcome_is_retried_until_the_timeout() -> None:
    delivery = delivery_of(0, 1)
    pending = delivery.take_chosen()
    unknown = AcknowledgementResult(
        status="unknown", code="REQUEST_TIMED_OUT", kafka_code=7, detail="who knows", retriable=True
    )
    settled = Settled()
    assert settled.add(pending, [unknown], patience_s=60) == pending
    assert not delivery.settled
    assert settled.add(pending, [AcknowledgementResult(status="applied")], patience_s=60) == []
    assert (settled.committed, settled.failures, delivery.settled) == ({("t", 0): 2}, [], True)
    late = delivery_of(0, 1)
    assert settled.add(late.take_chosen(), [unknown], patience_s=0) == []
    (failure,) = settled.take().failures
    assert (failure.first_offset, failure.last_offset, failure.retriable) == (0, 1, True)
    assert settled.take().failures == ()
    assert late.settled
