"""What a program of a user looks like to a type checker: only public names, all of it right. Nothing runs it."""

import asyncio
from concurrent.futures import Future
from typing import TypedDict, assert_type

from sharequeue.client import (
    AcknowledgementError,
    AcknowledgementFailure,
    Admin,
    ApiError,
    Committed,
    IllegalState,
    NewRecord,
    Pending,
    Produced,
    Producer,
    Record,
    RecordStream,
    ShareConsumer,
    ValueTooDeep,
    sync,
)

URL = "http://127.0.0.1:8080"


async def produce() -> Produced:
    async with Producer(URL, deadline_ms=2.5, max_batch_records=100) as producer:
        pending: Pending = await producer.send_soon("orders", b"bytes", partition=0)
        places: list[Produced] = await producer.send_many("orders", [{"id": 2}, NewRecord(None, key="cust-9")])
        await producer.flush()
        await producer.close(timeout_ms=500)
        print(places[0].offset + 1, (await pending).topic.upper())
        return await producer.send("orders", {"id": 1}, key="cust-9", headers={"trace": "x"}, timestamp_ms=1)


async def consume() -> Committed:
    async with ShareConsumer(URL, "billing", ["orders"], acknowledgement="explicit", max_records=10) as consumer:
        consumer.subscribe(["orders"])
        records: list[Record] = await consumer.poll(timeout_ms=500)
        for record in records:
            consumer.acknowledge(record, "release", reason="busy", delay_ms=1000)
        consumer.commit_async(settled)
        consumer.commit_async()
        assigned: dict[str, list[int]] = consumer.assignment
        print(assigned, consumer.subscription, consumer.member_id, consumer.group)
        async for record in consumer:
            shown(record)
        return await consumer.commit()


class Order(TypedDict):
    id: int


async def typed() -> None:
    async for record in ShareConsumer(URL, "billing", ["orders"], value_type=Order):
        order = assert_type(record, Record[Order]).value
        print(order["id"] + 1)
    with sync.ShareConsumer(URL, "billing", ["orders"], value_type=list[int]) as consumer:
        print(sum(assert_type(next(consumer), Record[list[int]]).value), consumer.poll()[0].value[0] + 1)
    either: Record = await RecordStream(URL, "billing", ["orders"], value_type=int | str).__anext__()
    print(either.value)


def settled(committed: Committed, error: Exception | None) -> None:
    print(sum(committed.values()), error)


def shown(record: Record) -> None:
    place: tuple[str, int, int] = (record.topic, record.partition, record.offset)
    key: str | bytes | None = record.key
    json: bytes | None = record.json
    headers: dict[str, str] = record.headers
    numbers: list[int] = [record.timestamp_ms, record.delivery_count, record.lock_remaining_ms]
    try:
        print(place, key, json, headers, numbers, record.value["id"])
    except ValueTooDeep as fault:
        print(fault)


def without_async() -> None:
    with sync.Producer(URL, deadline_ms=1000) as producer:
        place: Produced = producer.send("orders", {"id": 1}, key=b"k")
        later: Future[Produced] = producer.send_soon("orders", {"id": 2})
        places: list[Produced] = producer.send_many("orders", ["a", NewRecord("b")])
        producer.flush()
        print(place.offset, later.result().partition, places)
    with sync.ShareConsumer(URL, "billing", ["orders"], acknowledgement="deferred", renew=False) as consumer:
        consumer.subscribe(["orders"])
        records: list[Record] = consumer.poll(500)
        for record in records:
            consumer.acknowledge(record, "reject", reason="no such customer")
        committed: Committed = consumer.commit()
        consumer.commit_async(settled)
        assigned: dict[str, list[int]] = consumer.assignment
        print(committed, assigned, consumer.subscription, consumer.member_id, consumer.group)
        for record in consumer:
            shown(record)
        consumer.close()


async def manage() -> list[str]:
    async with Admin(URL, token="key") as admin:
        await admin.create_topic("orders", partitions=4, config={"retention.ms": "1000"})
        settings: dict[str, str] = await admin.get_share_group_config("billing")
        await admin.reset_share_group_offsets("billing", "earliest", topics=[{"topic": "orders"}])
        print(settings, [letter.offset async for letter in admin.list_dead_letters("billing", cause="rejected")])
        return [topic.name async for topic in admin.list_topics()]


def manage_without_async() -> list[str]:
    with sync.Admin(URL) as admin:
        return [topic.name for topic in admin.list_topics(page_size=10)]


def failures() -> list[AcknowledgementFailure]:
    try:
        without_async()
    except AcknowledgementError as error:
        return [failure for failure in error.failures if failure.last_offset > 0 and failure.retriable]
    except ApiError as error:
        print(error.error.code, error.error.status, error.detail, error.definite, error.problem)
    except IllegalState:
        pass
    return []


asyncio.run(produce())
asyncio.run(consume())
