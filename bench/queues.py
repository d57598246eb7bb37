"""The queues to compare, each through its fastest Python client: sharequeue, PGMQ, Redis Streams."""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, Final

import asyncpg
import msgspec
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from sharequeue.client import Producer, Record, ShareConsumer
from sharequeue.protocol import apis
from sharequeue.protocol.errors import TopicAlreadyExists
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import (
    Acknowledgement,
    AcknowledgeRequest,
    AcknowledgeResponse,
    FetchRequest,
    PartitionLeader,
    ProduceResponse,
)
from sharequeue.protocol.messages.topics import CreateTopicRequest
from sharequeue_http.calling.caller import Client

VISIBILITY_S: Final = 30
WAIT_MS: Final = 2000
EMPTY_PAUSE_S: Final = 0.001  # PGMQ's own poll pauses for 10 ms at least
_names: Final = itertools.count(1)


def new_name() -> str:
    """A name that no queue of this process has."""
    return f"bench_{next(_names)}"


class FetchedRecord(msgspec.Struct):
    value: str


class Batch(msgspec.Struct):
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    records: list[FetchedRecord]


class Fetched(msgspec.Struct):
    """A fetch's answer with values decoded as strings."""

    batches: list[Batch]
    failed_count: int
    acknowledgement_results: list[AcknowledgementResult]
    leaders: list[PartitionLeader] = []


_fetched: Final = msgspec.json.Decoder(Fetched).decode


def accepted(batches: Sequence[Batch]) -> list[Acknowledgement]:
    return [
        Acknowledgement(
            topic=batch.topic,
            partition=batch.partition,
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_count=batch.delivery_count,
            type="accept",
        )
        for batch in batches
    ]


class ShareQueue:
    """sharequeue over HTTP: fetch and acknowledge, or both in one call.

    `follow`: call the leading gateway, once an answer has named it. `keyed`: each produce has an Idempotency-Key.
    """

    def __init__(
        self, url: str, topic: str, group: str | None = None, *, follow: bool = False, keyed: bool = False
    ) -> None:
        self._client = Client(url, deadline_s=60)
        self._follow = follow
        self._keys = (f"{new_name()}-{number}" for number in itertools.count()) if keyed else None
        self._topic = {"topic": topic}
        self._group = {"group": group or topic}
        self._topics = [topic]
        self._member_id = new_name()

    @classmethod
    async def connect(cls, url: str, topic: str, *, keyed: bool = False) -> "ShareQueue":
        queue = cls(url, topic, keyed=keyed)
        with contextlib.suppress(TopicAlreadyExists):
            await queue._client.call(apis.CREATE_TOPIC, CreateTopicRequest(name=topic))
        return queue

    async def produce(self, values: list[str]) -> None:
        request = msgspec.json.encode({"records": [FetchedRecord(value) for value in values]})
        headers = {"Idempotency-Key": next(self._keys)} if self._keys else None
        answer: ProduceResponse = await self._client.call(
            apis.PRODUCE_RECORDS, request, path=self._topic, headers=headers
        )
        await self._call_leader(answer.leaders)

    async def fetch(self, max_records: int, done: list[Batch] | None = None) -> tuple[int, list[Batch]]:
        request = FetchRequest(
            topics=self._topics,
            member_id=self._member_id,
            max_records=max_records,
            max_wait_ms=WAIT_MS,
            acknowledgements=accepted(done or ()),
        )
        answer, _ = await self._client.relay(apis.FETCH_RECORDS, request, path=self._group)
        response = _fetched(answer)
        if response.failed_count:
            raise RuntimeError(f"acknowledgements failed: {response.acknowledgement_results}")
        await self._call_leader(response.leaders)
        values = [record.value for batch in response.batches for record in batch.records]
        return len(values), response.batches

    async def _call_leader(self, leaders: Sequence[PartitionLeader]) -> None:
        if self._follow and leaders:
            await self._client.close()
            self._client = Client(leaders[0].url, deadline_s=60)

    async def acknowledge(self, token: list[Batch]) -> None:
        request = AcknowledgeRequest(member_id=self._member_id, acknowledgements=accepted(token))
        response: AcknowledgeResponse = await self._client.call(apis.ACKNOWLEDGE_RECORDS, request, path=self._group)
        if response.failed_count:
            raise RuntimeError(f"acknowledgements failed: {response.results}")

    async def close(self) -> None:
        await self._client.close()


class PythonClient:
    """sharequeue through its own Python client: `Producer` and an explicit `ShareConsumer`, with their defaults."""

    def __init__(self, url: str, topic: str) -> None:
        self._url = url
        self._topic = topic
        self._producer = Producer(url)
        self._consumer: ShareConsumer | None = None

    @classmethod
    async def connect(cls, url: str, topic: str) -> "PythonClient":
        await (await ShareQueue.connect(url, topic)).close()
        return cls(url, topic)

    async def produce(self, values: list[str]) -> None:
        if len(values) == 1:
            await self._producer.send(self._topic, values[0])
        else:
            await self._producer.send_many(self._topic, values)

    async def fetch(self, max_records: int, done: list[Record] | None = None) -> tuple[int, list[Record]]:
        if self._consumer is None:
            self._consumer = ShareConsumer(
                self._url, self._topic, [self._topic], acknowledgement="explicit", max_records=max_records
            )
        for record in done or ():
            self._consumer.acknowledge(record)
        records = await self._consumer.poll(WAIT_MS)
        return len([record.value for record in records]), records

    async def acknowledge(self, token: list[Record]) -> None:
        assert self._consumer is not None, "fetch comes first"
        for record in token:
            self._consumer.acknowledge(record)
        await self._consumer.commit()

    async def close(self) -> None:
        await self._producer.close()
        if self._consumer is not None:
            await self._consumer.close()


class Pgmq:
    """PGMQ over asyncpg: send_batch, read, delete."""

    def __init__(self, connection: Any, queue: str) -> None:
        self._connection = connection
        self._queue = queue

    @classmethod
    async def connect(cls, url: str, queue: str) -> "Pgmq":
        connection = await asyncpg.connect(url)
        await connection.execute("SELECT pgmq.create($1)", queue)
        return cls(connection, queue)

    async def produce(self, values: list[str]) -> None:
        messages = [msgspec.json.encode(value).decode() for value in values]
        await self._connection.fetch("SELECT pgmq.send_batch($1, $2::text[]::jsonb[])", self._queue, messages)

    async def fetch(self, max_records: int, done: list[int] | None = None) -> tuple[int, list[int]]:
        arguments: list[Any] = [self._queue, VISIBILITY_S, max_records]
        query = "SELECT msg_id, message FROM pgmq.read($1, $2, $3)"
        if done:
            query = (
                f"WITH deleted AS MATERIALIZED (SELECT count(*) FROM pgmq.delete($1, $4::bigint[])) {query}, deleted"
            )
            arguments.append(done)
        rows = await self._connection.fetch(query, *arguments)
        if not rows:
            await asyncio.sleep(EMPTY_PAUSE_S)
        values = [msgspec.json.decode(row["message"]) for row in rows]
        return len(values), [row["msg_id"] for row in rows]

    async def acknowledge(self, token: list[int]) -> None:
        await self._connection.fetch("SELECT pgmq.delete($1, $2::bigint[])", self._queue, token)

    async def close(self) -> None:
        await self._connection.close()


class RedisStreams:
    """Redis Streams: XADD pipelined, XREADGROUP, XACK and XDEL in one pipeline."""

    GROUP: Final = "group"

    def __init__(self, redis: Any, stream: str) -> None:
        self._redis = redis
        self._stream = stream
        self._consumer = new_name()

    @classmethod
    async def connect(cls, url: str, stream: str) -> "RedisStreams":
        redis = Redis.from_url(url)
        try:
            await redis.xgroup_create(stream, cls.GROUP, id="0", mkstream=True)
        except ResponseError as fault:
            if "BUSYGROUP" not in str(fault):
                raise
        return cls(redis, stream)

    async def produce(self, values: list[str]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for value in values:
            pipeline.xadd(self._stream, {"value": value})
        await pipeline.execute()

    async def fetch(self, max_records: int, done: list[bytes] | None = None) -> tuple[int, list[bytes]]:
        pipeline = self._redis.pipeline(transaction=False)
        if done:
            pipeline.xack(self._stream, self.GROUP, *done)
            pipeline.xdel(self._stream, *done)
        pipeline.xreadgroup(self.GROUP, self._consumer, {self._stream: ">"}, count=max_records, block=WAIT_MS)
        answer = (await pipeline.execute())[-1] or {}
        streams = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer]
        entries = [
            entry for batch in streams for entry in (batch[0] if batch and isinstance(batch[0], list) else batch)
        ]
        values = [fields[b"value"].decode() for _, fields in entries]
        return len(values), [entry_id for entry_id, _ in entries]

    async def acknowledge(self, token: list[bytes]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.xack(self._stream, self.GROUP, *token)
        pipeline.xdel(self._stream, *token)
        await pipeline.execute()

    async def close(self) -> None:
        await self._redis.aclose()
