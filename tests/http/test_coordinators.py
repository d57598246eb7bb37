"""Two coordinators of each kind: the owners of shards, calls at the wrong instance, and requests that span owners."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import httpx
import pytest

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.share_state import PartitionState, SharePartitionState
from sharequeue.protocol.shards import CLUSTER, shard_of
from sharequeue.protocol.state import StateBatch, StateBatches
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from sharequeue_http.forms.errors import CoordinatorNotAvailable
from tests.http.calls import wait_until

pytestmark = pytest.mark.three_programs

C = TypeVar("C", bound=CoordinatorClient)
KINDS = ("group coordinator", "share coordinator")
TOKEN = "a token of the cluster that only its services know"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def stack(data_dir: Path, database: str, redis_database: str) -> Iterator[Stack]:
    (data_dir / "cluster.token").write_text(TOKEN)
    both = {"coordinators": 2, "share_coordinators": 2}
    with temporary_stack(data_dir, postgres_url=database, redis_url=redis_database, **both) as stack:
        for kind in KINDS:
            wait_until(lambda k=kind: len(set(owners(pair(stack, k)[0]).values())) == 2)  # type: ignore[misc]
        yield stack


def pair(stack: Stack, kind: str) -> tuple[ServiceProcess, ServiceProcess]:
    return stack.service(kind), stack.service(f"{kind} 2")


def owners(at: ServiceProcess) -> dict[int, str]:
    """URL by shard, as one instance tells it."""
    answer = httpx.get(f"{at.url}/v1/shards", headers=HEADERS, timeout=30, verify=False).raise_for_status().json()
    assert answer["count"] == 16
    return {entry["shard"]: entry["url"] for entry in answer["shards"]}


def calling(client: C, test: Callable[[C], Awaitable[None]]) -> None:
    """Run a test with a client of coordinators."""

    async def run() -> None:
        try:
            await test(client)
        finally:
            await client.close()

    asyncio.run(run())


def group_at(stack: Stack, url: str, name: str) -> str:
    """A group that the group coordinator at `url` owns."""
    known = owners(stack.service("group coordinator"))
    return next(group for group in (f"{name}-{n}" for n in range(200)) if known[shard_of(group, 16)] == url)


# The owners of keys


def test_every_instance_names_the_same_owners(stack: Stack) -> None:
    for kind in KINDS:
        first, second = pair(stack, kind)
        wait_until(lambda first=first, second=second: owners(first) == owners(second))  # type: ignore[misc]


def test_a_call_at_the_wrong_instance_gets_the_owners_address(stack: Stack, name: str) -> None:
    """NOT_COORDINATOR, definite and retriable, before anything is done."""
    first, second = pair(stack, "group coordinator")
    owner = owners(first)[shard_of(CLUSTER, 16)]
    wrong = second if owner == first.url else first
    answer = httpx.post(f"{wrong.url}/v1/topics", json={"name": name}, headers=HEADERS, timeout=30, verify=False)
    document = answer.json()
    assert (answer.status_code, document["kafka_code"]) == (421, 16)
    assert (document["retriable"], document["definite"], document["owner_url"]) == (True, True, owner)
    group = group_at(stack, owner, name)
    refused = httpx.get(f"{wrong.url}/v1/share-groups/{group}/config", headers=HEADERS, timeout=30, verify=False)
    assert (refused.status_code, refused.json()["owner_url"]) == (421, owner)
    state = {"states": [[group, str(uuid.uuid4()), {"partition": 0}]]}
    codes = [
        httpx.post(
            f"{at.url}/v1/share-state/read-summary", json=state, headers=HEADERS, timeout=30, verify=False
        ).status_code
        for at in pair(stack, "share coordinator")
    ]
    assert sorted(codes) == [200, 421]


# The client


def test_one_url_of_several_is_enough(stack: Stack) -> None:
    async def run() -> None:
        urls = f"http://127.0.0.1:1, {stack.service('group coordinator 2').url}/"
        client = CoordinatorClient(urls, "group", cluster_token=TOKEN)
        await client.call(apis.LIST_TOPICS, key=CLUSTER)
        await client.close()
        nobody = CoordinatorClient("http://127.0.0.1:1", "group", cluster_token=TOKEN, deadline_s=0.5)
        with pytest.raises(CoordinatorNotAvailable) as refused:
            await nobody.call(apis.LIST_TOPICS, key=CLUSTER)
        assert refused.value.definite
        await nobody.close()

    asyncio.run(run())


PARTITIONS = 40


def states(**values: Any) -> list[PartitionState]:
    return [PartitionState(partition=number, **values) for number in range(PARTITIONS)]


def test_requests_over_several_owners_are_answered_in_order(stack: Stack, client: httpx.Client, name: str) -> None:
    """SC-033 over two owners: an uninitialised share-partition fails alone."""
    topics = [client.post("/v1/topics", json={"name": f"{name}-{n}", "partitions": PARTITIONS}).json() for n in (1, 2)]
    first, second = (topic["topic_id"] for topic in topics)

    async def test(coordinators: ShareStateClient) -> None:
        made = await coordinators.state(
            apis.INITIALIZE_STATE,
            name,
            {second: states(state_epoch=1, start_offset=5)[:7][::-1], first: states(state_epoch=1, start_offset=0)},
        )
        asked = [(second, number) for number in range(7)][::-1] + [(first, number) for number in range(PARTITIONS)]
        assert [(key.topic_id, key.partition) for key in made] == asked
        assert [result.partition for result in made.values()] == [number for _, number in asked]
        assert {result.error_code for result in made.values()} == {0}
        writes = [
            PartitionState(
                partition=number,
                state_epoch=1,
                leader_epoch=0,
                start_offset=number,
                state=StateBatches([StateBatch(number, number, 2, 1)]),
            )
            for number in range(PARTITIONS)
        ]
        named = [
            SharePartitionState(group, topic_id, write)
            for write in writes
            for group, topic_id in ((name, first), (f"{name}-new", first), (name, second))
        ]
        results = await coordinators.write(named)
        assert [result.partition for result in results] == [each.state.partition for each in named]
        codes = [result.error_code for result in results]
        assert codes == [code for number in range(PARTITIONS) for code in (0, 42, 0 if number < 7 else 42)]
        read = await coordinators.state(apis.READ_STATE, name, {first: states(leader_epoch=3)})
        assert [result.start_offset for result in read.values()] == list(range(PARTITIONS))

    calling(ShareStateClient(stack.service("share coordinator").url, cluster_token=TOKEN), test)


# Changes at one instance that another must know


def fetched(client: httpx.Client, group: str, topic: str) -> list[Any]:
    request = {"topics": [topic], "max_wait_ms": 10_000, "max_records": 1}
    answer = client.post(f"/v1/share-groups/{group}/fetch", json=request)
    assert answer.status_code == 200, answer.text
    return [record["value"] for batch in answer.json()["batches"] for record in batch["records"]]


def test_a_new_or_grown_topic_is_known_at_every_instance_at_once(stack: Stack, client: httpx.Client, name: str) -> None:
    """Groups of both group coordinators, share-partitions at both share coordinators."""
    groups = [group_at(stack, at.url, name) for at in pair(stack, "group coordinator")]
    for number in range(5):
        topic = f"{name}-{number}"
        assert client.post("/v1/topics", json={"name": topic}).status_code == 201
        client.post(f"/v1/topics/{topic}/records", json={"records": [{"value": 1}]}).raise_for_status()
        assert [fetched(client, group, topic) for group in groups] == [[1], [1]]
        assert client.patch(f"/v1/topics/{topic}", json={"partitions": 9}).status_code == 200
        grown = {"records": [{"value": 2, "partition": 8}]}
        client.post(f"/v1/topics/{topic}/records", json=grown).raise_for_status()
        assert [fetched(client, group, topic) for group in groups] == [[2], [2]]


def test_a_deleted_topic_leaves_no_state_at_any_share_coordinator(
    stack: Stack, client: httpx.Client, database: str, name: str
) -> None:
    topic_id = client.post("/v1/topics", json={"name": name, "partitions": 20}).json()["topic_id"]
    client.post(f"/v1/topics/{name}/records", json={"records": [{"value": 1}]}).raise_for_status()
    for group in (f"{name}-a", f"{name}-b"):
        assert fetched(client, group, name) == [1]

    def state() -> list[int]:
        query = """SELECT count(*) FROM share_state.share_partitions k WHERE topic_id = $1 AND 2 <> (
            SELECT kind FROM share_state.share_records r WHERE r.key_id = k.key_id ORDER BY seq DESC LIMIT 1)"""
        return [asyncio.run(value(database, query, topic_id))]

    assert state() == [40]
    assert client.delete(f"/v1/topics/{name}").status_code == 204
    wait_until(lambda: state() == [0])
    gone = "SELECT count(*) FROM groups.share_group_topics WHERE topic_id = $1"
    wait_until(lambda: asyncio.run(value(database, gone, topic_id)) == 0)


async def value(database: str, query: str, argument: Any) -> Any:
    connection = await asyncpg.connect(database)
    try:
        return await connection.fetchval(query, argument)
    finally:
        await connection.close()
