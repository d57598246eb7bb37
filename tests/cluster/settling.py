"""Records that a member holds and a transaction settles, as the tests of settling see them: what became of both."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.reading.cache import BatchCache, KnownLog
from sharequeue_gateway.record_log.transactions.ending import End, Ending
from sharequeue_gateway.record_log.transactions.settlements import Settlement, Settling
from sharequeue_gateway.record_log.transactions.transaction_rules import ABORT, COMMIT

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.cluster.calls import fetch, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import wait_until
from tests.storage.database import session
from tests.storage.record_logs import Heard

LEASE_MS = 1500
RECORDS = 10
TOKEN = "a token of these tests alone"
Json = dict[str, Any]


def settling_stack(
    data_dir: Path, log_url: str, state_url: str, redis_url: str, **settings: str
) -> contextlib.AbstractContextManager[Stack]:
    """Three gateways; the states of groups lie in another database than the log."""
    settings = {
        "SHAREQUEUE_COORDINATOR_GATEWAY_LEASE_MS": str(LEASE_MS),
        "SHAREQUEUE_SHARE_COORDINATOR_DATABASE_URL": state_url,
        "SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "1000",
        **{f"SHAREQUEUE_{service}_CLUSTER_TOKEN": TOKEN for service in ("COORDINATOR", "SHARE_COORDINATOR", "GATEWAY")},
        **settings,
    }
    return temporary_stack(data_dir, postgres_url=log_url, redis_url=redis_url, gateways=3, settings=settings)


def sql(url: str, *statements: str) -> None:
    """Run statements in a database."""

    async def execute() -> None:
        async with session(url) as connection:
            for statement in statements:
                await connection.execute(statement)

    asyncio.run(execute())


class Consumed:
    """All records of one partition, which the member `m` holds. Its leader is another gateway than the first one."""

    def __init__(self, cluster: GatewayCluster, client: httpx.Client, name: str, lock_ms: int | None = None) -> None:
        self.cluster, self.client, self.group = cluster, client, name
        self.results = f"{name}-out"
        make_topic(client, self.results, 1)
        if lock_ms is not None:
            config = {"config": {"share.record.lock.duration.ms": str(lock_ms)}}
            assert client.patch(f"/v1/share-groups/{name}/config", json=config).status_code == 200
        while True:
            self.topic_id = make_topic(client, name, 1)
            self.leader = cluster.leader_of(name, self.topic_id, 0)
            if self.leader is not cluster.gateways[0]:
                break
            assert client.delete(f"/v1/topics/{name}").status_code == 204
        produce(client, name, 0, RECORDS)
        self.answer = fetch(client, name, topics=[name], member_id="m", max_wait_ms=5000)
        assert len(places(self.answer)) == RECORDS

    def acknowledgements(self, last_offset: int = RECORDS - 1) -> list[Json]:
        entry = {"topic": self.group, "partition": 0, "first_offset": 0, "last_offset": last_offset, "type": "accept"}
        return [entry | {"delivery_count": 1}]

    def visible(self) -> bool:
        """Whether readers of committed records get the result."""
        path = f"/v1/topics/{self.results}/partitions/0/records"
        page = self.client.get(path, params={"isolation_level": "read_committed"})
        return bool(page.json()["records"])

    def start(self) -> int:
        """The stored start offset of the group: where its first unfinished record is."""
        listed = self.client.get(f"/v1/share-groups/{self.group}/offsets").json()["topics"]
        return next(
            (p["start_offset"] for topic in listed if topic["topic"] == self.group for p in topic["partitions"]), -1
        )

    def taken(self, wait_ms: int = 0) -> set[int]:
        """The offsets that another member gets now."""
        answer = self.client.post(
            f"/v1/share-groups/{self.group}/fetch",
            json={"topics": [self.group], "member_id": "thief", "max_wait_ms": wait_ms},
            timeout=40,
        )
        return {offset for _, offset in places(answer.json())} if answer.status_code == 200 else set()

    def wait_until_replaced(self, gone: ServiceProcess) -> None:
        self.cluster.wait_until_known([gateway for gateway in self.cluster.gateways if gateway is not gone])


class Held(Consumed):
    """They, and a transaction with one result, on which they are pending."""

    def __init__(
        self,
        cluster: GatewayCluster,
        client: httpx.Client,
        log_url: str,
        name: str,
        timeout_ms: int,
        lock_ms: int | None = None,
    ) -> None:
        super().__init__(cluster, client, name, lock_ms)
        self.log_url = log_url
        begun = client.post("/v1/transactions", json={"timeout_ms": timeout_ms})
        self.transaction: str = begun.json()["transaction_id"]
        sent = client.post(
            f"/v1/topics/{self.results}/records",
            json={"records": [{"value": "result"}]},
            headers={"Transaction-Id": self.transaction},
        )
        assert sent.status_code == 200, sent.text
        self.settlements: list[Settlement] = []

    def hold(self, last_offset: int = RECORDS - 1) -> None:
        answer = httpx.post(
            f"{self.leader.url}/v1/leader/{self.group}/hold",
            json={
                "member_id": "m",
                "transaction_id": self.transaction,
                "acknowledgements": self.acknowledgements(last_offset),
            },
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        assert [result["status"] for result in answer.json()["results"]] == ["applied"], answer.text
        self.settlements = [
            Settlement(SharePartitionKey(*key), state_epoch, leader_epoch, json.dumps(batches).encode())
            for key, state_epoch, leader_epoch, batches in answer.json()["held"]
        ]

    def decide(self, *, commit: bool = True) -> None:
        """End the transaction in the log, as another gateway, which tells nobody."""
        asyncio.run(self._decide(commit))

    async def _decide(self, commit: bool) -> None:
        database = await LogDatabase.open(self.log_url, connections=2)
        try:
            ending = Ending(database, KnownLog(BatchCache(1 << 20), Heard()), 10.0, lambda *_: None)
            settling = Settling(b"the test", self.settlements) if commit else None
            ended = await ending.end(self.transaction, End(COMMIT if commit else ABORT, settling=settling))
            assert ended is not None
            assert ended.state.name == ("COMMITTED" if commit else "ABORTED")
        finally:
            await database.close()

    def commit(self, client: httpx.Client, acknowledgements: Sequence[Json] | None = None) -> httpx.Response:
        """As a client does."""
        entry = {"group_id": self.group, "member_id": "m"}
        entry["acknowledgements"] = self.acknowledgements() if acknowledgements is None else acknowledgements
        path = f"/v1/transactions/{self.transaction}/commit"
        return client.post(path, json={"acknowledgements": [entry]}, timeout=40)

    def wait_until_settled(self, upto: int = RECORDS) -> None:
        wait_until(lambda: self.start() == upto)
        wait_until(lambda: not self.unapplied())
        assert self.visible()

    def unapplied(self) -> list[Json]:
        described = self.client.get(f"/v1/transactions/{self.transaction}").json()
        return list(described.get("unapplied", []))
