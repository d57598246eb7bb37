"""The Python client's transactions: committed or aborted at the end of their block,
also through a network that loses answers."""

from typing import Literal

import httpx
import pytest

from sharequeue.client import ApiError, IllegalState, Producer, RecordStream, ShareConsumer
from sharequeue.stack.stack import Stack
from tests.http.client_calls import Network, in_event_loop, port_of


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


def committed(stack: Stack, topic: str) -> list[object]:
    """The values of partition 0 that readers of committed records get."""
    answer = httpx.get(
        f"{stack.url}/v1/topics/{topic}/partitions/0/records",
        params={"offset": 0, "isolation_level": "read_committed", "max_records": 100},
        timeout=60,
    )
    return [record["value"] for record in answer.json()["records"]]


def told(stack: Stack, transaction_id: str) -> tuple[str, str | None]:
    answer = httpx.get(f"{stack.url}/v1/transactions/{transaction_id}", timeout=60).json()
    return answer["state"], answer.get("reason")


def post(stack: Stack, path: str, body: dict[str, object]) -> None:
    httpx.post(f"{stack.url}{path}", json=body, timeout=60).raise_for_status()


@in_event_loop
async def test_a_block_is_committed_at_its_end(stack: Stack, name: str) -> None:
    """Also what was only handed over. What is sent with the producer is not part of it."""
    other = f"{name}-2"
    async with Producer(stack.url) as producer:
        async with producer.transaction(timeout_ms=30_000) as t:
            await t.send_soon(name, 1)
            await t.send_many(other, [2, 3])
            assert t.outcome is None
            assert (committed(stack, other), told(stack, t.transaction_id)) == ([], ("open", None))
        assert t.outcome is not None
        assert (t.outcome.state, t.outcome.partitions) == ("committed", 2)
        assert (committed(stack, name), committed(stack, other)) == ([1], [2, 3])
        with pytest.raises(RuntimeError, match="the transaction is closed"):
            await t.send(name, 4)
        with pytest.raises(IllegalState, match="used once"):
            await t.__aenter__()


@in_event_loop
async def test_a_block_that_raises_is_aborted(stack: Stack, name: str) -> None:
    async with Producer(stack.url) as producer:
        transaction = producer.transaction()

        async def block() -> None:
            async with transaction as t:
                await t.send(name, 1)
                await t.send_soon(name, 2)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await block()
        assert told(stack, transaction.transaction_id) == ("aborted", "client")
        await producer.send(name, "plain")
    assert committed(stack, name) == ["plain"]


@in_event_loop
async def test_a_record_that_failed_unseen_aborts(stack: Stack, name: str) -> None:
    post(stack, "/v1/topics", {"name": name, "config": {"max.message.bytes": "1000"}})
    async with Producer(stack.url) as producer:
        transaction = producer.transaction()

        async def block() -> None:
            async with transaction as t:
                await t.send(name, 1)
                await t.send_soon(name, "x" * 2000)

        with pytest.raises(ApiError) as caught:
            await block()
        assert caught.value.error.code == "MESSAGE_TOO_LARGE"
    assert told(stack, transaction.transaction_id) == ("aborted", "client")
    assert committed(stack, name) == []


@in_event_loop
@pytest.mark.parametrize("call", ["/v1/transactions", "/records", "/commit"])
async def test_a_lost_answer_changes_nothing(stack: Stack, name: str, call: str) -> None:
    async with Network(port_of(stack)) as network, Producer(network.url, transactional_id=name) as producer:
        for value in (1, 2):
            network.lose_answer_of(call)
            async with producer.transaction(note=str(value)) as t:
                assert t.committed_note == (None if value == 1 else "1")
                await t.send(name, value)
            assert t.outcome is not None
            assert t.outcome.state == "committed"
            assert network.lost.is_set()
    assert committed(stack, name) == [1, 2]


@in_event_loop
@pytest.mark.parametrize("sees", [False, True], ids=["unseen", "seen"])
async def test_records_without_the_header_of_their_transaction_abort_it(stack: Stack, name: str, sees: bool) -> None:
    """The answer does not repeat it: a proxy removed it. The transaction is aborted even if the program goes on."""
    async with Network(port_of(stack)) as network, Producer(network.url) as producer:
        network.rewrite = lambda answer: answer.replace(b"ransaction-", b"ransactiox-")
        transaction = producer.transaction()

        async def block() -> None:
            async with transaction as t:
                pending = await t.send_soon(name, 1)
                if sees:
                    with pytest.raises(ApiError, match="a proxy may have removed it"):
                        await pending

        with pytest.raises(ApiError, match="outside of the transaction") as caught:
            await block()
        assert not caught.value.definite
        assert told(stack, transaction.transaction_id) == ("aborted", "client")


@pytest.mark.parametrize("acknowledgement", ["implicit", "explicit"])
@in_event_loop
async def test_a_worker_settles_what_it_consumed_with_what_it_produced(
    stack: Stack, name: str, acknowledgement: Literal["implicit", "explicit"]
) -> None:
    async with Producer(stack.url) as producer:
        await producer.send_many(name, [1, 2, 3])
        async with ShareConsumer(stack.url, f"{name}-group", [name], acknowledgement=acknowledgement) as consumer:
            async for record in consumer:
                async with producer.transaction() as t:
                    await t.send(f"{name}-out", record.value * 10)
                    t.acknowledge(record)
                    with pytest.raises(IllegalState, match="already acknowledged"):
                        t.acknowledge(record)
                assert t.outcome is not None
                assert t.outcome.state == "committed"
                assert record.delivery.settled or record.value < 3
                if record.value == 3:
                    break
        assert committed(stack, f"{name}-out") == [10, 20, 30]
        async with ShareConsumer(stack.url, f"{name}-group", [name]) as consumer:
            assert await consumer.poll(timeout_ms=100) == []


@in_event_loop
async def test_a_consumer_keeps_what_an_aborted_transaction_did_not_settle(stack: Stack, name: str) -> None:
    async with Producer(stack.url) as producer:
        await producer.send_many(name, [1, 2])
        async with ShareConsumer(stack.url, f"{name}-group", [name], acknowledgement="explicit") as consumer:
            first, second = await consumer.poll(timeout_ms=60_000)

            async def block() -> None:
                async with producer.transaction() as t:
                    await t.send(f"{name}-out", 1)
                    t.acknowledge(first)
                    raise RuntimeError("no")

            with pytest.raises(RuntimeError):
                await block()
            consumer.acknowledge(first)
            consumer.acknowledge(second, "release", delay_ms=0)
            assert await consumer.commit() == {(name, 0): 2}
            (again,) = await consumer.poll(timeout_ms=60_000)
            assert (again.offset, again.delivery_count) == (1, 2)

            async def too_late() -> None:
                async with producer.transaction() as t:
                    await t.send(f"{name}-out", 2)
                    t.acknowledge(again)
                    path = f"/v1/share-groups/{name}-group/acknowledge"
                    entry = {"topic": name, "partition": 0, "first_offset": 1, "last_offset": 1, "type": "accept"}
                    post(stack, path, {"member_id": consumer.member_id, "acknowledgements": [entry]})

            with pytest.raises(ApiError) as caught:
                await too_late()
            assert caught.value.problem is not None
            assert caught.value.problem.reason == "refused"
            assert [result.code for result in caught.value.problem.results] == ["INVALID_RECORD_STATE"]
        assert committed(stack, f"{name}-out") == []


@in_event_loop
async def test_a_stream_settles_in_a_transaction(stack: Stack, name: str) -> None:
    async with Producer(stack.url) as producer:
        await producer.send(name, 1)
        async with RecordStream(stack.url, f"{name}-group", [name]) as stream:
            record = await anext(stream)
            async with producer.transaction() as t:
                await t.send(f"{name}-out", 2)
                t.acknowledge(record)
            assert record.delivery.settled
    assert committed(stack, f"{name}-out") == [2]
