"""What it costs to settle and produce in one step. `bench.transactions` prints it.

one call        `acknowledge` with `produce`, and in turns the same records in a produce and an acknowledgement
one commit      of a transaction that settles 10,000 records, each by an acknowledgement of its own
"""

import time
from statistics import median
from typing import Any, Final, NamedTuple

import httpx
import msgspec

from bench.hostile import Probes
from bench.processes import thread_cpu_seconds
from bench.queues import new_name
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import CreateTopicRequest
from sharequeue.stack.stack import Stack
from sharequeue_http.calling.caller import Client

RECORDS: Final = 10
"""Of one step: so many are settled, and as many are produced."""
ACKNOWLEDGEMENTS: Final = 10_000
"""The most that one commit may have."""
VALUES: Final = [{"value": "v" * 98}] * RECORDS

_encode: Final = msgspec.json.encode


class Steps(NamedTuple):
    """The medians of a step: milliseconds, and milliseconds of CPU of the gateway's event loop."""

    ms: float
    cpu_ms: float


class Worker:
    """Fetches RECORDS, and settles them with the produce of as many to another topic."""

    def __init__(self, url: str) -> None:
        self._client = Client(url, deadline_s=60)
        self._source, self._target = {"topic": new_name()}, {"topic": new_name()}
        self._group = {"group": new_name()}

    async def create(self) -> None:
        for path in (self._source, self._target):
            await self._client.call(apis.CREATE_TOPIC, CreateTopicRequest(name=path["topic"]))

    async def fill(self) -> None:
        """Produce one batch of RECORDS to fetch."""
        await self._client.relay(apis.PRODUCE_RECORDS, _encode({"records": VALUES}), path=self._source)

    async def fetch(self) -> dict[str, Any]:
        """Returns: the body of the acknowledgement of what was acquired."""
        wanted = {"topics": [self._source["topic"]], "max_records": RECORDS, "member_id": "m"}
        answer, _ = await self._client.relay(apis.FETCH_RECORDS, _encode(wanted), path=self._group)
        batches = msgspec.json.decode(answer)["batches"]
        fields = ("topic", "partition", "first_offset", "last_offset", "delivery_count")
        accepted = [{"type": "accept", **{field: batch[field] for field in fields}} for batch in batches]
        assert sum(batch["last_offset"] - batch["first_offset"] + 1 for batch in batches) == RECORDS
        return {"member_id": "m", "acknowledgements": accepted}

    async def apart(self, acknowledgement: dict[str, Any]) -> None:
        await self._client.relay(apis.PRODUCE_RECORDS, _encode({"records": VALUES}), path=self._target)
        await self._acknowledge(acknowledgement)

    async def together(self, acknowledgement: dict[str, Any]) -> None:
        await self._acknowledge({**acknowledgement, "produce": [{**self._target, "records": VALUES}]})

    async def _acknowledge(self, body: dict[str, Any]) -> None:
        answer, _ = await self._client.relay(apis.ACKNOWLEDGE_RECORDS, _encode(body), path=self._group)
        assert msgspec.json.decode(answer)["failed_count"] == 0

    async def close(self) -> None:
        await self._client.close()


async def steps(stack: Stack, rounds: int) -> tuple[Steps, Steps]:
    """Returns: of steps in two calls, and of steps in one."""
    worker, pid = Worker(stack.url), stack.service("gateway").pid
    await worker.create()
    times: tuple[list[Steps], list[Steps]] = ([], [])
    for turn in range(rounds + 2):
        for kind, work in enumerate((worker.apart, worker.together)):
            await worker.fill()
            acknowledgement = await worker.fetch()
            used, began = thread_cpu_seconds(pid), time.perf_counter()
            await work(acknowledgement)
            took = Steps(1000 * (time.perf_counter() - began), 1000 * (thread_cpu_seconds(pid) - used))
            if turn > 1:  # the first ones warm up
                times[kind].append(took)
    await worker.close()
    apart, together = (Steps(*map(median, zip(*some, strict=True))) for some in times)
    return apart, together


class Settled(NamedTuple):
    """Commits of ACKNOWLEDGEMENTS, in milliseconds: the median time, and the longest stop of the gateway's event loop
    by CPU."""

    ms: float
    stop_ms: float


def settle_many(stack: Stack, rounds: int) -> Settled:
    probes = Probes([stack.service("gateway")])
    found = []
    try:
        with httpx.Client(base_url=f"{stack.url}/v1", timeout=60, headers={"Content-Type": "application/json"}) as http:
            for turn in range(rounds + 1):
                path, body = hold(http)
                probes.reset()
                began = time.perf_counter()
                http.post(path, content=body).raise_for_status()
                took = 1000 * (time.perf_counter() - began)
                _, (stopped,) = probes.longest_ms()
                if turn:  # the first one warms up
                    found.append((took, stopped))
    finally:
        probes.close()
    times, stops = zip(*found, strict=True)
    return Settled(median(times), max(stops))


def hold(http: httpx.Client) -> tuple[str, bytes]:
    """Acquire ACKNOWLEDGEMENTS records of a new topic, and begin a transaction.

    Returns: path and body of the commit that settles each of them.
    """
    name = new_name()
    settings = {"share.partition.max.record.locks": str(ACKNOWLEDGEMENTS), "share.record.lock.duration.ms": "600000"}
    fetch = {"member_id": "m", "topics": [name], "max_records": ACKNOWLEDGEMENTS}
    http.post("/topics", json={"name": name}).raise_for_status()
    http.post(f"/topics/{name}/records", json={"records": [{"value": 1}] * ACKNOWLEDGEMENTS}).raise_for_status()
    http.patch(f"/share-groups/{name}/config", json={"config": settings}).raise_for_status()
    http.post(f"/share-groups/{name}/fetch", json=fetch).raise_for_status()
    begun = http.post("/transactions", json={}).raise_for_status().json()
    place = {"topic": name, "partition": 0, "type": "accept", "delivery_count": 1}
    accepted = [{**place, "first_offset": offset, "last_offset": offset} for offset in range(ACKNOWLEDGEMENTS)]
    body = {"acknowledgements": [{"group_id": name, "member_id": "m", "acknowledgements": accepted}]}
    return f"/transactions/{begun['transaction_id']}/commit", _encode(body)
