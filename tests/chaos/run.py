"""One run: producers and consumers on a cluster that is being broken, until every group has finished every record."""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sharequeue.stack.stack import Stack
from tests.chaos.clients import Consumer, Gateways, Login, Producer, reset
from tests.chaos.history import DeadLetter, History, Range, Trim
from tests.chaos.nemesis import BROKER, Nemesis, plan
from tests.chaos.transactions import CommittedReader, TransactionalProducer, outcomes
from tests.kafka_log.brokers import Brokers

TOPICS: Final = {"orders": 4, "events": 3}
GROUPS: Final = ("billing", "audit", "replayed", "booked")
RESET_GROUP: Final = "replayed"
COMMITTED: Final = frozenset({"booked"})
"""Groups with read_committed."""
CONSUMERS: Final = 10
PRODUCERS: Final = 3
TRANSACTIONAL: Final = 3
LIMIT: Final = 5
LOCK_MS: Final = 2000
BACKOFF_MS: Final = {"audit": "300,900"}
"""By group; the others have none. Workers release with delays of their own too, in every group."""
LEASE_MS: Final = 1500
PAUSE_S: Final = 4.0
FINISH_S: Final = 90.0
PAGE: Final = 5000
HOLDER: Final = "holder"
"""A group that reads nothing and holds everything: retention asks for all records from the first one on."""
TRIM_S: Final = 30.0
LOOK_S: Final = 0.25

SETTINGS: Final = {
    "SHAREQUEUE_COORDINATOR_GATEWAY_LEASE_MS": str(LEASE_MS),
    "SHAREQUEUE_COORDINATOR_LEASE_MS": str(LEASE_MS),
    "SHAREQUEUE_SHARE_COORDINATOR_LEASE_MS": str(LEASE_MS),
    "SHAREQUEUE_GATEWAY_REDIS_TIMEOUT_MS": "50",
    "SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "3000",
    "SHAREQUEUE_GATEWAY_FLOOR_INTERVAL_MS": "200",
    "SHAREQUEUE_GATEWAY_RETENTION_INTERVAL_MS": "200",
    "SHAREQUEUE_GATEWAY_TRANSACTION_SWEEP_MS": "200",
}


class Run:
    """Everything of one run. `history` and `complaints` are what it leaves."""

    def __init__(
        self,
        stack: Stack,
        seed: int,
        seconds: float,
        *,
        stores: bool,
        resets: int,
        login: Callable[[str], Login | None] = lambda client: None,
        brokers: Brokers | None = None,
    ) -> None:
        """`login`: the keys of the client of a name. `brokers`: those of the record log, if that is Kafka.

        Kafka's log lacks transactions: their producers produce without. What it removes waits for no group. Groups get
        committed records only: the others may see what an append with a key has taken back before its repeat.
        """
        in_kafka = brokers is not None
        self._stack = stack
        self._login = login
        self._seed = seed
        self._seconds = seconds
        self._resets = resets
        self._gateways = self._open(f"run {seed}")
        least_s = {group: min(map(int, waits.split(","))) / 1000 for group, waits in BACKOFF_MS.items()}
        self.history = History(
            limit=LIMIT,
            lock_s=LOCK_MS / 1000,
            groups=GROUPS,
            backoff_s=least_s,
            committed_groups=frozenset(GROUPS) if in_kafka else COMMITTED,
            in_kafka=in_kafka,
        )
        self._nemesis = Nemesis(stack, self.history, brokers)
        names = [service.name for service in stack.services]
        names += [f"{BROKER}{node}" for node in brokers.nodes] if brokers is not None else []
        self.steps = plan(seed, seconds, names, stores=stores, pause_s=PAUSE_S)
        self.meanwhile: Callable[[], Awaitable[None]] = self._wait
        """Called after the last step."""
        values = itertools.count()
        self._producers = [
            Producer(f"p{number}-{seed}", self._open(f"p{number} {seed}"), self.history, TOPICS, values)
            for number in range(PRODUCERS + TRANSACTIONAL if in_kafka else PRODUCERS)
        ]
        self._transactional = [
            TransactionalProducer(f"t{number}-{seed}", self._open(f"t{number} {seed}"), self.history, TOPICS, values)
            for number in range(0 if in_kafka else TRANSACTIONAL)
        ]
        self._reader = CommittedReader(self._open(f"reader {seed}"), self.history, TOPICS)
        self._consumers = [
            Consumer(
                f"c{number}-{seed}",
                GROUPS[number % len(GROUPS)],
                self._open(f"c{number} {seed}"),
                self.history,
                TOPICS,
                in_session=number in (3, 4),
                elsewhere=self._elsewhere,
            )
            for number in range(CONSUMERS)
        ]

    def _open(self, client: str) -> Gateways:
        return Gateways(self._stack.urls, client, self._login(client))

    @property
    def complaints(self) -> list[str]:
        return self._nemesis.complaints

    def _elsewhere(self, group: str, member: str) -> Range | None:
        """The last records that another member of the group got."""
        others = (other for other in self._consumers if other.group == group and other.name != member)
        return next((other.latest for other in others if other.latest is not None), None)

    async def run(self) -> None:
        """Raises: AssertionError: the cluster did not finish in time; any error that ended a client."""
        await self._prepare()
        each_producer: list[Producer | TransactionalProducer] = [*self._producers, *self._transactional]
        producers = [asyncio.create_task(producer.run()) for producer in each_producer]
        reading = asyncio.create_task(self._reader.run())
        consumers = [asyncio.create_task(consumer.run()) for consumer in self._consumers]
        resetting = asyncio.create_task(self._reset_now_and_then())
        supervising = asyncio.create_task(self._nemesis.supervise())
        looking = asyncio.create_task(self._look_at_log_starts())
        tasks = [*producers, *consumers, resetting, supervising, looking, reading]
        try:
            await self._nemesis.run(self.steps)
            await self.meanwhile()
            if not self.history.in_kafka:
                await self._both_outcomes()
            for producer in each_producer:
                producer.stopping = True
            await asyncio.gather(*producers, resetting)
            reading.cancel()
            begun = [transaction for producer in self._transactional for transaction in producer.begun]
            await outcomes(self._gateways, self.history, begun, FINISH_S)
            self.complaints.extend(await self._reader.read_all(FINISH_S))
            for consumer in self._consumers:
                consumer.draining = True
            await self._finished(consumers)
            for consumer in self._consumers:
                consumer.stopping = True
            await asyncio.gather(*consumers)
            await self._note_the_end()
            if not self.history.in_kafka:
                await self._release()
        finally:
            self.history.without_redis = self._nemesis.windows_without_redis(self._stack._data_dir / "logs")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            askers = [self._gateways, self._reader.gateways, *(consumer._gateways for consumer in self._consumers)]
            askers += [producer._gateways for producer in self._producers]
            askers += [producer.gateways for producer in self._transactional]
            for asker in askers:
                await asker.close()

    async def _wait(self) -> None:
        await asyncio.sleep(max(0.0, self._seconds - (time.monotonic() - self._started_s)))

    async def _prepare(self) -> None:
        for topic, partitions in TOPICS.items():
            config = {} if self.history.in_kafka else {"retention.ms": "0"}
            body = {"name": topic, "partitions": partitions, "config": config}
            await self._gateways.until_answered("POST", "/v1/topics", body, done=36)
        if not self.history.in_kafka:
            held = {"to": "earliest", "topics": [{"topic": topic} for topic in TOPICS]}
            await self._gateways.until_answered("POST", f"/v1/share-groups/{HOLDER}/offsets/reset", held)
            self.history.held_until_s = float("inf")
        settings = {"share.record.lock.duration.ms": str(LOCK_MS), "share.delivery.count.limit": str(LIMIT)}
        for group in GROUPS:
            waits = {"share.retry.backoff.ms": BACKOFF_MS[group]} if group in BACKOFF_MS else {}
            level = {"share.isolation.level": "read_committed"} if group in self.history.committed_groups else {}
            path = f"/v1/share-groups/{group}/config"
            await self._gateways.until_answered("PATCH", path, {"config": {**settings, **waits, **level}})

    async def _reset_now_and_then(self) -> None:
        draw = random.Random(f"resets {self._seed}")
        for moment in sorted(draw.uniform(0.2, 0.9) * self._seconds for _ in range(self._resets)):
            await asyncio.sleep(max(0.0, moment - (time.monotonic() - self._started_s)))
            offsets = {topic: draw.choice((0, 10, 50, 1_000_000)) for topic in TOPICS}
            await reset(self._gateways, self.history, RESET_GROUP, offsets)

    @property
    def _started_s(self) -> float:
        return self.history.produced[0].span.started_s if self.history.produced else time.monotonic()

    async def _finished(self, consumers: "list[asyncio.Task[None]]") -> None:
        """Wait until no group lags behind, as long as some group comes nearer."""
        until_s, least = time.monotonic() + FINISH_S, float("inf")
        while True:
            for task in consumers:
                if task.done():
                    task.result()
            lags = [await self._lags(group) for group in GROUPS]
            left = sum(lag for of_group in lags for lag in of_group.values())
            if not left:
                return
            if left < least:
                until_s, least = time.monotonic() + FINISH_S, left
            if time.monotonic() > until_s:
                for consumer in self._consumers:
                    consumer.stopping = True
                await asyncio.gather(*consumers)
                await self._note_the_end()
                return  # the checker says which records are not finished
            await asyncio.sleep(0.3)

    async def _both_outcomes(self) -> None:
        """Let producers go on until a transaction was committed and one was not: a busy machine takes longer."""
        until_s = time.monotonic() + FINISH_S
        while not {"committed", "aborted"} <= {end.state for end in self.history.ends}:
            assert time.monotonic() < until_s, "transactions have no outcomes"
            await asyncio.sleep(0.1)

    async def _lags(self, group: str) -> dict[tuple[str, int], int]:
        answer = await self._gateways.until_answered("GET", f"/v1/share-groups/{group}/offsets")
        return {
            (topic["topic"], partition["partition"]): partition["lag"]
            for topic in answer.document["topics"]
            for partition in topic["partitions"]
        }

    async def _note_the_end(self) -> None:
        for group in GROUPS:
            for place, lag in (await self._lags(group)).items():
                self.history.lags[(group, *place)] = lag
        self.history.log.clear()
        self.history.dead_letters.clear()
        for topic, partitions in TOPICS.items():
            for partition in range(partitions):
                records, end = await self._read(topic, partition)
                self.history.log[topic, partition] = {record["offset"]: record["value"] for record in records}
                self.history.log_ends[topic, partition] = end
        for group in GROUPS:
            letters, _ = await self._read(f"dlq.{group}", 0)
            for record in letters:
                headers = record["headers"]
                letter = DeadLetter(
                    headers["__dlq.errors.group"],
                    headers["__dlq.errors.topic"],
                    int(headers["__dlq.errors.partition"]),
                    int(headers["__dlq.errors.offset"]),
                    int(headers["__dlq.errors.delivery.count"]),
                )
                self.history.dead_letters.append(letter)

    async def _look_at_log_starts(self) -> None:
        while True:
            await self._note_log_starts()
            await asyncio.sleep(LOOK_S)

    async def _note_log_starts(self) -> int:
        """Returns: how many records are removed by now."""
        removed = 0
        for topic in TOPICS:
            answer = await self._gateways.ask("GET", f"/v1/topics/{topic}")
            for partition in answer.document["partitions"] if answer.ok else ():
                start = partition["log_start_offset"]
                removed += start
                if start:
                    self.history.trims.append(Trim(answer.span, topic, partition["partition"], start))
        return removed

    async def _release(self) -> None:
        """Nobody holds what is finished any more: retention may remove it."""
        self.history.held_until_s = time.monotonic()
        until_s = time.monotonic() + TRIM_S
        while not await self._note_log_starts():
            await self._gateways.ask("DELETE", f"/v1/share-groups/{HOLDER}?force=true")
            if time.monotonic() > until_s:
                self.complaints.append("nothing was removed, although every group had finished everything")
                return
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(4 * LOOK_S)
        await self._note_log_starts()

    async def _read(self, topic: str, partition: int) -> tuple[list[dict[str, Any]], int]:
        """All records, in Kafka the committed ones, and the log end."""
        level = "&isolation_level=read_committed" if self.history.in_kafka else ""
        records: list[dict[str, Any]] = []
        offset = 0
        while True:
            path = f"/v1/topics/{topic}/partitions/{partition}/records?offset={offset}&max_records={PAGE}{level}"
            answer = await self._gateways.ask("GET", path)
            if answer.code == 3:
                return [], 0  # nothing was ever dead-lettered
            if not answer.ok:
                await asyncio.sleep(0.2)
                continue
            records += answer.document["records"]
            offset = answer.document["next_offset"]
            if offset >= answer.document["log_end_offset"]:
                return records, offset
