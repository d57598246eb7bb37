"""A run in which topics are made again, grow and lose records, groups begin at `latest`, and PostgreSQL goes back.

All the time, services are killed, paused and restarted.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from sharequeue.stack.postgres import Postgres
from sharequeue.stack.stack import Stack
from tests.chaos.clients import HANG_UPS, SETTLE_S, Gateways, Producer
from tests.chaos.history import Acknowledge, Fetch, Outcome, Produce, Range, Span
from tests.chaos.nemesis import Nemesis, plan
from tests.chaos.returns_checker import Alive, Begun, Deleted, Returns, Sized, Trimmed, WentBack
from tests.chaos.run import FINISH_S, LOCK_MS, PAGE, PAUSE_S
from tests.older_postgres import forget, stop_and_copy, stop_and_put_back

TOPICS: Final = {"orders": 3, "events": 2}
MOST_PARTITIONS: Final = 6
GROUPS: Final = {
    "billing": ("topics", "session"),
    "audit": ("partitions", "topics"),
    "stock": ("session", "partitions"),
}
"""The groups at `earliest`, and how their two consumers fetch."""
LIMIT: Final = 100
"""Deliveries of a record: nothing dies."""
ROUNDS: Final = 2
STEPS: Final = ("remake", "remake", "grow", "trim", "trim", "latest", "back")
LATER: Final = ("remake", "remake", "grow", "trim", "trim")
BEGIN_S: Final = 3.0
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS = 1, 3, 36
NAMES: Final = ("topic", "topic_id", "partition", "first_offset", "last_offset", "delivery_count")


class SpreadingProducer(Producer):
    """Names a partition, gives a key, or neither. The topics may change in the meantime."""

    async def _request(self, key: str | None) -> None:
        draw = self._random
        topic, way = draw.choice(list(self._topics)), draw.choice(("partition", "key", "neither"))
        values = tuple(next(self._values) for _ in range(draw.randint(1, 8)))
        records: list[dict[str, Any]] = [{"value": value} for value in values]
        for record in records if way != "neither" else ():
            record[way] = draw.randrange(self._topics[topic]) if way == "partition" else f"key {draw.randrange(50)}"
        headers = None if key is None else {"Idempotency-Key": key}
        while True:
            answer = await self._gateways.ask(
                "POST",
                f"/v1/topics/{topic}/records",
                {"records": records},
                headers=headers,
                hang_up=draw.random() < HANG_UPS,
            )
            places = answer.document["records"] if answer.ok else ()
            at = tuple((place["partition"], place["offset"]) for place in places)
            self._history.produced.append(Produce(answer.span, topic, values, answer.outcome, at))
            if answer.outcome is not Outcome.UNKNOWN or key is None:
                return
            await asyncio.sleep(0.1)


class Consumer:
    """One member of one group. It accepts most of what it gets, some of it late, and names the topic by its id."""

    def __init__(
        self, name: str, group: str, gateways: Gateways, history: Returns, topics: dict[str, int], way: str
    ) -> None:
        self._name = name
        self._group = group
        self._random = random.Random(name)
        self._gateways = gateways
        self._history = history
        self._topics = topics
        self._way = way
        self._epoch = 0
        self._late: list[tuple[float, dict[str, Any]]] = []
        self.draining = False
        """Accept every record at once: the run is about to end."""
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await self.fetch(**self._where())
            now_s = time.monotonic()
            due = [entry for due_s, entry in self._late if due_s <= now_s or self.draining]
            self._late = [late for late in self._late if late[1] not in due]
            for entry in due:
                await self._settle(entry)

    def _where(self) -> dict[str, Any]:
        if self._way == "partitions":
            topic = self._random.choice(list(self._topics))
            some = self._random.sample(range(self._topics[topic]), self._random.randint(1, self._topics[topic]))
            return {"topic_partitions": [{"topic": topic, "partitions": some}]}
        session = {"share_session_epoch": self._epoch} if self._way == "session" else {}
        return session | ({} if self._epoch else {"topics": list(self._topics)})

    async def fetch(self, **where: Any) -> None:
        draw = self._random
        wait_ms = draw.choice((0, 200, 2000))
        body = {"member_id": self._name, "max_records": draw.choice((5, 20, 50)), "max_wait_ms": wait_ms, **where}
        hang_up = not self.draining and draw.random() < HANG_UPS
        path = f"/v1/share-groups/{self._group}/fetch"
        answer = await self._gateways.ask("POST", path, body, wait_s=wait_ms / 1000, hang_up=hang_up)
        self._epoch = self._epoch + 1 if answer.ok and self._way == "session" else 0
        batches = answer.document["batches"] if answer.ok else ()
        ranges = tuple(
            Range(
                *(batch[name] for name in NAMES[1:]),
                values=tuple((record["offset"], record["value"]) for record in batch["records"]),
            )
            for batch in batches
        )
        self._history.fetched.append(
            Fetch(answer.span, self._group, self._name, None, answer.gateway, answer.outcome, ranges)
        )
        for batch in batches:
            entry = {name: batch[name] for name in NAMES} | {"type": "accept"}
            chance = 1 if self.draining else draw.random()
            if chance < 0.25:
                self._late.append((time.monotonic() + draw.uniform(0.3, 3 * LOCK_MS / 1000), entry))
            elif chance < 0.35:
                await self._settle(entry | {"type": "release", "delay_ms": draw.choice((0, 1000))})
            else:
                await self._settle(entry)
        if not answer.ok:
            await asyncio.sleep(0.05)

    async def _settle(self, entry: dict[str, Any]) -> None:
        """Repeat an acknowledgement until its outcome is known: `delivery_count` makes that safe."""
        until_s = time.monotonic() + SETTLE_S
        while time.monotonic() < until_s:
            body = {"member_id": self._name, "acknowledgements": [entry]}
            hang_up = not self.draining and self._random.random() < HANG_UPS
            path = f"/v1/share-groups/{self._group}/acknowledge"
            answer = await self._gateways.ask("POST", path, body, hang_up=hang_up)
            otherwise = {"status": "failed" if answer.outcome is Outcome.REFUSED else "unknown", "retriable": True}
            (result,) = (answer.document or {}).get("results") or [otherwise]
            status = "applied" if result["status"] == "already_applied" else result["status"]
            ack = Acknowledge(
                answer.span,
                self._group,
                self._name,
                *(entry[name] for name in NAMES[1:]),
                kinds=(entry["type"],),
                gateway=answer.gateway,
                status=status,
                kafka_code=result.get("kafka_code", answer.code),
            )
            self._history.acknowledged.append(ack)
            if status != "unknown" and not (status == "failed" and result.get("retriable")):
                return
            await asyncio.sleep(0.05)


class Run:
    """Everything of one run, and the owner of its topics. `history`, `complaints` and `steps` are what it leaves.

    The stack has a PostgreSQL of its own, which goes back once in each of ROUNDS rounds.
    """

    def __init__(self, stack: Stack, seed: int, seconds: float) -> None:
        self._stack = stack
        self._seed = seed
        self._seconds = seconds
        self._random = random.Random(f"owner {seed}")
        self._gateways = Gateways(stack.urls, f"returns {seed}")
        self._alone = [Gateways([url], url) for url in stack.urls]
        self.history = Returns(limit=LIMIT, lock_s=LOCK_MS / 1000, groups=tuple(GROUPS))
        self._nemesis = Nemesis(stack, self.history)
        # one gateway lives on, which has seen what gets lost: a copy of the files has the same history
        names = [service.name for service in stack.services if service.name != "gateway"]
        self.faults = plan(seed, seconds, names, stores=False, pause_s=PAUSE_S)
        self.steps: list[tuple[float, str]] = []
        self._topics = dict(TOPICS)
        self._alive: dict[str, Alive] = {}
        self._numbers, values = itertools.count(), itertools.count()
        self._producers = [
            SpreadingProducer(f"p{number}-{seed}", self._gateways, self.history, self._topics, values)
            for number in range(2)
        ]
        self._consumers: list[Consumer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []

    @property
    def complaints(self) -> list[str]:
        return self._nemesis.complaints

    def _consumer(self, group: str, way: str) -> Consumer:
        name = f"c{len(self._consumers)}-{self._seed}"
        self._consumers.append(Consumer(name, group, self._gateways, self.history, self._topics, way))
        return self._consumers[-1]

    def _consume(self, group: str, ways: tuple[str, ...]) -> None:
        self._tasks += [asyncio.create_task(self._consumer(group, way).run()) for way in ways]

    async def run(self) -> None:
        """Raises: AssertionError: a call is not answered; any error that ended a client."""
        for topic in TOPICS:
            await self._make(topic, TOPICS[topic])
        for group in GROUPS:
            await self._configure(group, "earliest")
        self._watching.append(asyncio.create_task(self._nemesis.supervise()))
        producing = [asyncio.create_task(producer.run()) for producer in self._producers]
        try:
            for group, ways in GROUPS.items():
                self._consume(group, ways)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._nemesis.run(self.faults))
                both.create_task(self._own())
            for producer in self._producers:
                producer.stopping = True
            await asyncio.gather(*producing)
            for consumer in self._consumers:
                consumer.draining = True
            await self._note_the_end()
        finally:
            for producer in self._producers:
                producer.stopping = True
            for consumer in self._consumers:
                consumer.stopping = True
            ends = await asyncio.gather(*producing, *self._tasks, return_exceptions=True)
            for task in self._watching:
                task.cancel()
            if self._stack.postgres is not None:
                forget(self._stack.postgres)
            for gateways in (self._gateways, *self._alone):
                await gateways.close()
        assert not any(ends), ends

    # The owner

    async def _own(self) -> None:
        """One step after the other: in each round every kind of step, and then others."""
        draw, started_s = self._random, time.monotonic()
        for number in range(1, ROUNDS + 1):
            steps = draw.sample(STEPS, len(STEPS))
            while steps or time.monotonic() - started_s < self._seconds * number / ROUNDS:
                await self._step(steps.pop(0) if steps else draw.choice(LATER))
                await asyncio.sleep(draw.uniform(0.3, 1.2))

    async def _step(self, step: str) -> None:
        self.steps.append((time.monotonic(), step))
        topic = self._random.choice(list(self._topics))
        match step:
            case "remake":
                await self._delete(topic)
                await asyncio.sleep(self._random.choice((0, 0, 0.5)))
                await self._make(topic, self._random.randint(1, 4))
            case "grow":
                if self._topics[topic] < MOST_PARTITIONS:
                    await self._change(topic, {"partitions": self._topics[topic] + 1}, time.monotonic())
            case "trim":
                await self._trim(topic)
            case "latest":
                await self._begin_at_latest(topic)
            case "back":
                await self._go_back()

    async def _make(self, topic: str, partitions: int) -> None:
        """A producer may have made it already, with one partition."""
        body, started_s = {"name": topic, "partitions": partitions}, time.monotonic()
        await self._gateways.until_answered("POST", "/v1/topics", body, done=TOPIC_ALREADY_EXISTS)
        await self._learn(topic, started_s)

    async def _delete(self, topic: str) -> None:
        alive = self._alive.pop(topic)
        self.history.alive.append(self._until_now(alive))
        path = f"/v1/topics/{topic}"
        answer = await self._gateways.until_answered("DELETE", path, done=UNKNOWN_TOPIC_OR_PARTITION)
        self.history.deleted.append(Deleted(answer.span, alive.topic_id))

    async def _learn(self, topic: str, started_s: float) -> None:
        """Change a setting: the answer to a write is not from an old memory."""
        await self._change(topic, {"config": {"retention.ms": str(10**9 + next(self._numbers))}}, started_s)

    async def _change(self, topic: str, change: dict[str, Any], started_s: float) -> None:
        """`started_s`: before that the topic had not the partitions that it has now."""
        answer = await self._gateways.until_answered("PATCH", f"/v1/topics/{topic}", change)
        topic_id, partitions, now_s = answer.document["topic_id"], answer.document["partitions"], time.monotonic()
        self.history.sized.append(Sized(Span(started_s, now_s), topic_id, partitions))
        self._topics[topic] = partitions
        alive = self._alive.setdefault(topic, Alive(Span(now_s, float("inf")), topic, topic_id))
        assert alive.topic_id == topic_id, f"{topic} was {alive.topic_id} and is {topic_id}: nobody made it again"

    @staticmethod
    def _until_now(alive: Alive) -> Alive:
        return alive._replace(span=Span(alive.span.started_s, time.monotonic()))

    async def _trim(self, topic: str) -> None:
        path, topic_id = f"/v1/topics/{topic}", self._alive[topic].topic_id
        described = (await self._gateways.until_answered("GET", path)).document
        while described["topic_id"] != topic_id:  # from the memory of a gateway that was paused
            described = (await self._gateways.until_answered("GET", path)).document
        bounds = self._random.choice(described["partitions"])
        before = self._random.randint(bounds["log_start_offset"], bounds["log_end_offset"])
        some = [{"partition": bounds["partition"], "before_offset": before}]
        body = {"topic_id": topic_id, "partitions": some}
        answer = await self._gateways.until_answered("POST", f"{path}/delete-records", body)
        trim = Trimmed(answer.span, topic_id, bounds["partition"], before)
        self.history.trimmed.append(trim)
        if before:
            self._watching.append(asyncio.create_task(self._see(topic, trim)))

    async def _see(self, topic: str, trim: Trimmed) -> None:
        """Wait until no gateway reads what was removed: each one serves from its memory until it looks at the log."""
        last = f"/v1/topics/{topic}/partitions/{trim.partition}/records?offset={trim.before_offset - 1}&max_records=1"
        alive = self._alive[topic]
        for gateway in self._alone:
            answer = await gateway.ask("GET", last)
            while answer.code != OFFSET_OUT_OF_RANGE and self._alive.get(topic) is alive:
                await asyncio.sleep(0.2)
                answer = await gateway.ask("GET", last)
        if self._alive.get(topic) is alive:
            self.history.trimmed.append(trim._replace(seen_s=time.monotonic()))

    async def _begin_at_latest(self, topic: str) -> None:
        group = f"latest-{len(self.history.latest)}"
        await self._configure(group, "latest")
        way = self._random.choice(("topics", "partition", "heartbeat"))
        self.history.latest[group] = time.monotonic()
        if way == "heartbeat":
            body = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": list(self._topics)}
            await self._gateways.until_answered("POST", f"/v1/share-groups/{group}/heartbeat", body)
        elif way == "partition":
            partition = self._random.randrange(self._topics[topic])
            await self._consumer(group, way).fetch(topic_partitions=[{"topic": topic, "partitions": [partition]}])
        self._consume(group, ("topics", "session"))
        left, until_s = set(self._living()), time.monotonic() + BEGIN_S
        while left and time.monotonic() < until_s:
            answer = await self._gateways.ask("GET", f"/v1/share-groups/{group}/offsets")
            for partition in self._partitions(answer.document) if answer.ok else ():
                if partition["start_offset"] >= 0:
                    begun = Begun(answer.span, group, partition["topic_id"], partition["partition"])
                    self.history.begun.append(begun)
                    left.discard(begun[2:])
            await asyncio.sleep(0.1)

    async def _configure(self, group: str, reset: str) -> None:
        config = {
            "share.auto.offset.reset": reset,
            "share.record.lock.duration.ms": str(LOCK_MS),
            "share.delivery.count.limit": str(LIMIT),
        }
        await self._gateways.until_answered("PATCH", f"/v1/share-groups/{group}/config", {"config": config})

    async def _go_back(self) -> None:
        """Copy PostgreSQL, go on for some steps, and put the copy in its place."""
        copied = await self._with_stopped_postgres(stop_and_copy)
        for step in self._random.choices(LATER, k=3):
            await self._step(step)
            await asyncio.sleep(self._random.uniform(0.3, 1.5))
        self.history.alive += [self._until_now(alive) for alive in self._alive.values()]
        self._alive.clear()
        restored = await self._with_stopped_postgres(stop_and_put_back)
        self.history.went_back.append(WentBack(copied, restored))
        for topic in list(self._topics):
            await self._learn(topic, time.monotonic())

    async def _with_stopped_postgres(self, move: Callable[[Postgres], None]) -> Span:
        server, started_s = self._stack.postgres, time.monotonic()
        assert server is not None
        await asyncio.to_thread(move, server)
        server.launch()  # by this thread: the server ends with the thread that started it
        await asyncio.to_thread(server.wait)
        return Span(started_s, time.monotonic())

    # The end

    def _living(self) -> list[tuple[str, int]]:
        return [(self._alive[topic].topic_id, p) for topic, count in self._topics.items() for p in range(count)]

    @staticmethod
    def _partitions(document: Any) -> list[dict[str, Any]]:
        return [
            {**partition, "topic_id": topic["topic_id"]}
            for topic in document["topics"]
            for partition in topic["partitions"]
        ]

    async def _note_the_end(self) -> None:
        """Wait until no group lags behind, as long as some group comes nearer. Then read the log at each gateway."""
        history = self.history
        for topic in self._topics:
            await self._learn(topic, time.monotonic())
        history.alive += self._alive.values()
        living = self._living()
        until_s, least = time.monotonic() + FINISH_S, float("inf")
        while time.monotonic() < until_s:
            for group in (*history.groups, *history.latest):
                answer = await self._gateways.until_answered("GET", f"/v1/share-groups/{group}/offsets")
                for partition in self._partitions(answer.document):
                    history.lags[group, partition["topic_id"], partition["partition"]] = partition["lag"]
            lags = [history.lags.get((group, *p), 1) for group in (*history.groups, *history.latest) for p in living]
            if not any(lags):
                break
            if sum(lags) < least:
                until_s, least = time.monotonic() + FINISH_S, sum(lags)
            await asyncio.sleep(0.3)
        for number, gateway in enumerate(self._alone):
            history.logs[f"gateway-{number}"] = {
                (self._alive[topic].topic_id, partition): await self._read(gateway, topic, partition)
                for topic, count in self._topics.items()
                for partition in range(count)
            }
        history.log = history.logs["gateway-0"]

    @staticmethod
    async def _read(gateway: Gateways, topic: str, partition: int) -> dict[int, int]:
        described = (await gateway.until_answered("GET", f"/v1/topics/{topic}")).document["partitions"]
        offset, records = described[partition]["log_start_offset"], {}
        while True:
            path = f"/v1/topics/{topic}/partitions/{partition}/records?offset={offset}&max_records={PAGE}"
            page = (await gateway.until_answered("GET", path)).document
            records |= {record["offset"]: record["value"] for record in page["records"]}
            offset = page["next_offset"]
            if offset >= page["log_end_offset"]:
                return records

    def told(self) -> str:
        """What happened, in a few lines."""
        history = self.history
        outcomes = Counter(f"{ack.status} {ack.kafka_code or ''}".strip() for ack in history.acknowledged)
        steps = [f"{at_s - self.steps[0][0]:7.2f} s: {step}" for at_s, step in self.steps]
        counts = f"{len(history.produced)} produce requests, {len(history.fetched)} fetches"
        delivered = sum(1 for _ in history.deliveries())
        return "\n".join((f"seed {self._seed}: {counts}, {delivered} deliveries, {dict(outcomes)}", *steps))
