"""Workers that fetch and settle single records, in a queue with delayed records or without, and what that costs."""

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any, Final

import asyncpg
import msgspec

from bench.processes import cpu_seconds, family_cpu_seconds
from sharequeue.protocol import apis
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import Stack
from sharequeue_http.calling.caller import Client
from sharequeue_http.forms.api import Api

WORKERS: Final = 10
AT_ONCE: Final = 1000
HOUR_MS: Final = 3_600_000
PRUNE_MS: Final = 2000
"""How often the share coordinator removes rows: so often that each turn pays for its own."""
SERVICES: Final = ("gateway", "share coordinator")


class Costs:
    """What one of the two queues has cost in all its turns."""

    def __init__(self) -> None:
        self.settled = 0
        self.wal_bytes = 0.0
        self.full_pages = 0
        self.cpu_s: dict[str, float] = {}
        self.times_ms: list[float] = []

    def p(self, percent: int) -> float:
        times = sorted(self.times_ms)
        return times[len(times) * percent // 100]


class Workers:
    """Ten workers that fetch from one topic, in the group of its name, through one gateway."""

    def __init__(self, stack: Stack) -> None:
        assert stack.postgres is not None
        self._stack = stack
        self._postgres = stack.postgres
        self._client = Client(stack.url, deadline_s=60)

    async def _call(self, api: Api, body: Any, **path: str) -> Any:
        answer, _ = await self._client.relay(api, body, path=path)
        return msgspec.json.decode(answer)

    async def fetch(self, topic: str, member: str, count: int) -> dict[str, Any]:
        body = {
            "topics": [topic],
            "member_id": member,
            "max_records": count,
            "max_wait_ms": 10_000,
            "with_records": False,
        }
        (batch,) = (await self._call(apis.FETCH_RECORDS, body, group=topic))["batches"]
        return {name: batch[name] for name in ("topic", "partition", "first_offset", "last_offset", "delivery_count")}

    async def settle(self, topic: str, member: str, settled: list[dict[str, Any]]) -> None:
        body = {"member_id": member, "acknowledgements": settled}
        answer = await self._call(apis.ACKNOWLEDGE_RECORDS, body, group=topic)
        assert answer["failed_count"] == 0, answer

    async def prepare(self, topic: str, delayed: int, settled: int) -> SharePartitionKey:
        """Make a topic with `delayed` delayed records, each beside an accepted one, and `settled` ready records.

        A delayed record has five reasons of 1,024 characters.
        """
        made = await self._call(apis.CREATE_TOPIC, {"name": topic})
        config = {
            "share.partition.max.delayed.records": str(2 * delayed + AT_ONCE),
            "share.record.lock.duration.ms": "600000",
            "share.delivery.count.limit": "10",
        }
        await self._call(apis.UPDATE_SHARE_GROUP_CONFIG, {"config": config}, group=topic)
        records = msgspec.json.encode({"records": [{"value": 1}] * AT_ONCE})
        for _ in range(0, 2 * delayed + settled, AT_ONCE):
            await self._call(apis.PRODUCE_RECORDS, records, topic=topic)
        rng = random.Random(7)
        for _ in range(0, 2 * delayed, AT_ONCE):
            for attempt in range(4):
                batch = await self.fetch(topic, "filler", AT_ONCE)
                again = {"type": "release", "reason": f"{attempt:<1024}", "delay_ms": 0}
                await self.settle(topic, "filler", [batch | again])
            batch = await self.fetch(topic, "filler", AT_ONCE)
            first, last = batch["first_offset"], batch["last_offset"]
            entries = []
            for offset in range(first, last + 1):
                entry = {
                    "topic": topic,
                    "partition": 0,
                    "first_offset": offset,
                    "last_offset": offset,
                    "type": "accept",
                }
                if offset % 2:
                    reason = f"{rng.randrange(50):<1024}"
                    delay_ms = rng.randrange(HOUR_MS, 12 * HOUR_MS)
                    entry |= {"type": "release", "reason": reason, "delay_ms": delay_ms}
                entries.append(entry)
            await self.settle(topic, "filler", entries)
        return SharePartitionKey(topic, made["topic_id"], 0)

    async def settle_down(self, connection: Any) -> None:
        """Have what was written so far removed where it is superseded: by the share coordinator, then by PostgreSQL."""
        await asyncio.sleep(2 * PRUNE_MS / 1000)
        await connection.execute("VACUUM share_state.share_records")

    async def begin(self) -> None:
        """Call it before all turns: what filling left behind is no cost of theirs.

        There is one checkpoint; later ones come when PostgreSQL wants them. With one before each turn, every row would
        be removed in a later turn than it was written in, with a full page in the WAL for 80 rows.
        """
        connection = await asyncpg.connect(self._postgres.url)
        await connection.execute("ALTER SYSTEM SET autovacuum = off")  # each turn ends with a VACUUM of its own
        await connection.execute("SELECT pg_reload_conf()")
        await self.settle_down(connection)
        await connection.execute("CHECKPOINT")
        await connection.close()

    async def turn(self, topic: str, count: int, costs: Costs) -> None:
        """Settle `count` records of a topic, and remove the rows that this makes superfluous."""
        connection = await asyncpg.connect(self._postgres.url)
        left = iter(range(count))

        async def work(member: str) -> None:
            for _ in left:
                batch = await self.fetch(topic, member, 1)
                before = time.perf_counter()
                await self.settle(topic, member, [batch | {"type": "accept"}])
                costs.times_ms.append(1000 * (time.perf_counter() - before))

        before = dict(self.cpu())
        begin = await connection.fetchval("SELECT pg_current_wal_insert_lsn()")
        pages = await connection.fetchval("SELECT wal_fpi FROM pg_stat_wal")
        await asyncio.gather(*(work(f"worker-{number}") for number in range(WORKERS)))
        await self.settle_down(connection)
        costs.wal_bytes += await connection.fetchval(
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)::float8", begin
        )
        for name, seconds in self.cpu():
            costs.cpu_s[name] = costs.cpu_s.get(name, 0) + seconds - before[name]
        await asyncio.sleep(0.2)  # PostgreSQL tells its counters late
        costs.full_pages += await connection.fetchval("SELECT wal_fpi FROM pg_stat_wal") - pages
        costs.settled += count
        await connection.close()

    def cpu(self) -> Iterator[tuple[str, float]]:
        """CPU seconds so far, by name."""
        for name in SERVICES:
            yield name, cpu_seconds(self._stack.service(name).pid)
        yield "PostgreSQL", family_cpu_seconds(self._postgres.pid)

    async def close(self) -> None:
        await self._client.close()
