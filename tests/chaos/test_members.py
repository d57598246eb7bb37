"""Members of one group join and leave while topics come and go, the group is reset, and services die,
pause and restart."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from sharequeue.client import AcknowledgementError, Producer, ShareConsumer
from sharequeue.stack.stack import Stack, temporary_stack
from tests.chaos.clients import Gateways
from tests.chaos.history import History
from tests.chaos.nemesis import Nemesis, plan
from tests.chaos.run import PAUSE_S, SETTINGS

SECONDS: Final = 60.0
FINISH_S: Final = 60.0
MEMBERS: Final = 6
GROUP: Final = "g"
STEADY: Final = "steady"
PARTITIONS: Final = 6
PASSING: Final = ("passing-0", "passing-1", "passing-2")
"""Topics that are made, grow and are deleted."""
GROUP_SETTINGS: Final = {
    "share.assignment.interval.ms": "0",
    "share.heartbeat.interval.ms": "500",
    "share.session.timeout.ms": "8000",
    "share.record.lock.duration.ms": "5000",
    "share.delivery.count.limit": "100",
}


@pytest.fixture
def cluster(tmp_path: Path, new_database: Callable[[], str], new_redis: Callable[[], str]) -> Iterator[Stack]:
    stores = {"postgres_url": new_database(), "redis_url": new_redis(), "settings": SETTINGS}
    with temporary_stack(tmp_path / "data", **stores, gateways=3, coordinators=2, share_coordinators=2) as stack:
        yield stack


class Membership:
    """The members, and the records of their polls."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._urls = stack.urls
        self._seed = seed
        self._until_s = time.monotonic() + SECONDS
        self.consumers: dict[int, ShareConsumer] = {}
        self.seen: Counter[int] = Counter()
        self.sent = 0
        self.stopping = False

    async def member(self, number: int) -> None:
        """One member after the other under one id. Raises: every error of a poll, except failed acknowledgements."""
        draw = random.Random(f"member {number} {self._seed}")
        while not self.stopping:
            consumer = ShareConsumer(
                draw.choice(self._urls),
                GROUP,
                member_id=f"m{number}",
                acknowledgement=draw.choice(["implicit", "explicit", "deferred"]),
                max_records=draw.choice([1, 5, 500]),
                follow_leaders=draw.random() < 0.4,
                request_timeout_ms=60_000,
            )
            self.consumers[number] = consumer
            consumer.subscribe([STEADY, *draw.sample(PASSING, draw.randrange(len(PASSING) + 1))])
            leave_s = time.monotonic() + draw.uniform(0.2, 12)
            while not self.stopping and (time.monotonic() < leave_s or time.monotonic() > self._until_s):
                try:
                    await self._poll(consumer, draw)
                except AcknowledgementError:
                    continue
            try:
                await consumer.close()
            except AcknowledgementError:
                continue

    async def _poll(self, consumer: ShareConsumer, draw: random.Random) -> None:
        for record in await consumer.poll(draw.choice([0, 200, 2000])):
            if record.topic == STEADY:
                self.seen[record.value] += 1
            if not consumer._implicit:
                words = ["accept"] * 6 + ["release", "renew"]
                consumer.acknowledge(record, draw.choice(words) if time.monotonic() < self._until_s else "accept")  # type: ignore[arg-type]

    async def produce(self) -> None:
        async with Producer(self._urls[0], deadline_ms=90_000) as producer:
            while time.monotonic() < self._until_s:
                await producer.send_soon(STEADY, self.sent)
                self.sent += 1
                await asyncio.sleep(0.03)

    async def administer(self, gateways: Gateways) -> None:
        """The outcome does not matter."""
        draw = random.Random(f"administrator {self._seed}")
        group = f"/v1/share-groups/{GROUP}"
        current = {"to": "current", "topics": [{"topic": STEADY}], "force": True}
        while time.monotonic() < self._until_s:
            passing = draw.choice(PASSING)
            partitions = draw.randint(1, 6)
            calls = [
                ("POST", "/v1/topics", {"name": passing, "partitions": partitions}),
                ("PATCH", f"/v1/topics/{passing}", {"partitions": partitions}),
                ("DELETE", f"/v1/topics/{passing}", None),
                ("DELETE", f"{group}/members/m{draw.randrange(MEMBERS)}", None),
                ("POST", f"{group}/offsets/reset", current),
                ("DELETE", f"{group}/offsets/{STEADY}?force=true", None),
                ("DELETE", f"{group}?force=true", None),
            ]
            await gateways.ask(*draw.choices(calls, [8, 4, 8, 2, 2, 1, 1])[0], wait_s=20)
            await asyncio.sleep(draw.uniform(0, 0.5))

    async def settled(self, gateways: Gateways) -> bool:
        """Whether everything was consumed, and each member knows its assignment."""
        described = (await gateways.until_answered("GET", f"/v1/share-groups/{GROUP}")).document
        assigned = {
            member["member_id"]: {
                entry["topic"]: entry["partitions"] for entry in member["assignment"]["topic_partitions"]
            }
            for member in described["members"]
        }
        held = {partition for assignment in assigned.values() for partition in assignment.get(STEADY, ())}
        known = {consumer.member_id: consumer.assignment for consumer in self.consumers.values()}
        return len(self.seen) == self.sent and len(held) == PARTITIONS and assigned == known


@pytest.mark.soak
def test_members_keep_consuming_through_every_fault(cluster: Stack, seed: int) -> None:
    async def go() -> None:
        gateways = Gateways(cluster.urls, f"members {seed}")
        await gateways.until_answered("POST", "/v1/topics", {"name": STEADY, "partitions": PARTITIONS})
        await gateways.until_answered("PATCH", f"/v1/share-groups/{GROUP}/config", {"config": GROUP_SETTINGS})
        membership = Membership(cluster, seed)
        nemesis = Nemesis(cluster, History(limit=0, lock_s=0, groups=()))
        names = [service.name for service in cluster.services]
        async with asyncio.TaskGroup() as group:
            supervising = group.create_task(nemesis.supervise())
            for number in range(MEMBERS):
                group.create_task(membership.member(number))
            working = [
                group.create_task(membership.produce()),
                group.create_task(membership.administer(gateways)),
                group.create_task(nemesis.run(plan(seed, SECONDS, names, stores=False, pause_s=PAUSE_S))),
            ]
            await asyncio.wait(working)
            async with asyncio.timeout(FINISH_S):
                while not await membership.settled(gateways):  # noqa: ASYNC110 - what is waited for happens elsewhere
                    await asyncio.sleep(0.3)
            membership.stopping = True
            supervising.cancel()
        described = (await gateways.until_answered("GET", f"/v1/share-groups/{GROUP}")).document
        assert (described["state"], described["members"]) == ("Empty", [])
        await gateways.close()
        print(f"seed {seed}: {membership.sent} records, {membership.seen.total()} deliveries")
        assert not nemesis.complaints, "\n".join(nemesis.complaints)

    asyncio.run(go())
