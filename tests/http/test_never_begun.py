"""Deliveries that were never begun, over HTTP: given back by a client, by one that closes, by one that hung up."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from sharequeue.client import IllegalState, ShareConsumer, ValueUndecodable
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, Json
from tests.http.client_calls import in_event_loop, produce, until


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


def counts(answer: Json) -> list[tuple[int, int, int, int]]:
    """(first, last, delivery count, attempt) of each fetched batch."""
    names = ("first_offset", "last_offset", "delivery_count", "attempt")
    return [tuple(batch[field] for field in names) for batch in answer["batches"]]  # type: ignore[misc]


@in_event_loop
async def test_a_consumer_that_closes_gives_back_what_it_never_handed_out(
    stack: Stack, gateway: Gateway, name: str
) -> None:
    await produce(stack, name, 0, 1, 2)
    async with ShareConsumer(stack.url, name, [name], acknowledgement="explicit", max_records=3) as consumer:
        record = await anext(consumer)
        assert (record.offset, record.delivery_count, record.attempt) == (0, 1, 1)
    assert counts(gateway.fetch(name, name)) == [(0, 0, 2, 2), (1, 2, 2, 1)]


@in_event_loop
@pytest.mark.parametrize("renew", [True, False], ids=["renews", "does not renew"])
@pytest.mark.parametrize("reads", ["loop", "value"])
async def test_a_program_that_fails_has_begun_what_its_loop_reached(
    stack: Stack, gateway: Gateway, name: str, reads: str, renew: bool
) -> None:
    """Its loop reached the third record, or it read the value of that one: the two behind it are no attempt."""
    await produce(stack, name, *range(5))

    async def work() -> None:
        async with ShareConsumer(stack.url, name, [name], renew=renew) as consumer:
            records = await consumer.poll()
            if reads == "value":
                records[2].value / 0
            for record in records:
                record.offset // (2 - record.offset)

    with pytest.raises(ZeroDivisionError):
        await work()
    assert counts(gateway.fetch(name, name)) == [(0, 2, 2, 2), (3, 4, 2, 1)]


STRANGE = Raw(b"1e400")
"""JSON that Python cannot decode."""


@in_event_loop
@pytest.mark.parametrize("acknowledgement", ["implicit", "explicit", "deferred"])
async def test_a_value_that_cannot_be_decoded_is_the_only_attempt(
    stack: Stack, gateway: Gateway, name: str, acknowledgement: Any
) -> None:
    """A program that reads all values before it works on any of them: those in front are not to blame."""
    await produce(stack, name, 0, 1, 2, 3, STRANGE, 5)
    polls, size = (3, 2) if acknowledgement == "deferred" else (1, 6)

    async def work() -> None:
        async with ShareConsumer(
            stack.url, name, [name], acknowledgement=acknowledgement, max_records=size
        ) as consumer:
            polled = [await consumer.poll() for _ in range(polls)]
            [record.value for records in polled for record in records]

    for attempt in (1, 2):
        with pytest.raises(ValueUndecodable, match="offset 4"):
            await work()
        (found,) = gateway.in_flight(name)
        places = [(batch["first_offset"], batch["last_offset"], batch["attempt"]) for batch in found["batches"]]
        assert [place for place in places if place[2]] == [(4, 4, attempt)]


@in_event_loop
async def test_a_consumer_that_hangs_gives_back_what_it_has_not_begun(
    stack: Stack, gateway: Gateway, name: str
) -> None:
    gateway.configure(name, share_record_lock_duration_ms=2000)
    await produce(stack, name, *range(4))
    async with ShareConsumer(stack.url, name, [name], acknowledgement="explicit", max_poll_interval_ms=0) as consumer:
        records = await consumer.poll()
        assert records[1].value == 1
        consumer.acknowledge(records[0])
        await until(lambda: records[3].delivery.given_back)
        assert records[3].lost
        assert records[0].delivery.given_back == {2, 3}
        got: list[tuple[int, int, int, int]] = []
        while not got:
            got = counts(await asyncio.to_thread(gateway.fetch, name, name))
        assert (2, 3, 2, 1) in got
        for record in records:
            consumer.acknowledge(record)
        with pytest.raises(IllegalState, match="offset 3 is already given back"):
            consumer.acknowledge(records[3])
        committed = await consumer.commit()
        refused = [(failure.first_offset, failure.last_offset) for failure in committed.failures]
        assert committed == {(name, 0): 2} or refused == [(0, 1)], "the first one too; their locks may have ended"


@in_event_loop
async def test_a_program_may_say_that_it_did_not_begin(stack: Stack, gateway: Gateway, name: str) -> None:
    await produce(stack, name, 0, 1)
    async with ShareConsumer(stack.url, name, [name], acknowledgement="explicit") as consumer:
        begun, waiting = await consumer.poll()
        consumer.acknowledge(begun, "release")
        consumer.acknowledge(waiting, "release", begun=False)
        with pytest.raises(ValueError, match="release only"):
            consumer.acknowledge(waiting, "accept", begun=False)
    assert counts(gateway.fetch(name, name)) == [(0, 0, 2, 2), (1, 1, 2, 1)]
