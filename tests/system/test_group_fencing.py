"""A group is reset while a gateway that holds its old state is paused:
later writes of that gateway are refused (GI-019)."""

import signal
from collections.abc import Callable, Iterator

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.http.calls import Gateway, Json, good, wait_until

PARTITIONS = 8


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str], new_redis: Callable[[], str]
) -> Iterator[Stack]:
    stores = {"postgres_url": new_database(), "redis_url": new_redis()}
    with temporary_stack(tmp_path_factory.mktemp("stack"), **stores, gateways=2, coordinators=2) as stack:
        yield stack


def gateway_of(service: ServiceProcess) -> Gateway:
    return Gateway(httpx.Client(base_url=service.url, timeout=60))


def together(stack: Stack) -> bool:
    """Whether both gateways share the work."""
    urls = [stack.service(name).url for name in ("gateway", "gateway 2")]
    return all(
        len(httpx.get(f"{url}/readyz", verify=False, timeout=60).json().get("gateways", [])) == len(urls)
        for url in urls
    )


@pytest.mark.soak
def test_a_reset_fences_a_paused_gateway_with_the_old_state(stack: Stack, name: str) -> None:
    wait_until(lambda: together(stack), 30)
    paused = stack.service("gateway 2")
    assert paused.process is not None
    one, two = gateway_of(stack.service("gateway")), gateway_of(paused)
    one.create_topic(name, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        one.produce_batches(name, 3, partition=partition)
    held: list[Json] = []

    def all_held() -> bool:
        held.extend(two.fetch(name, name, member="zombie")["batches"])
        return len(held) >= PARTITIONS

    wait_until(all_held)
    assert one.try_reset(name, "latest").status_code == 409, "records are held, some of them through the other gateway"

    paused.process.send_signal(signal.SIGSTOP)
    started = one.reset(name, "offset", name, offset=1, force=True)
    assert started == {(name, partition): 1 for partition in range(PARTITIONS)}
    fresh: list[Json] = []

    def all_there() -> bool:
        fresh.extend(one.fetch(name, name, member="new")["batches"])
        return len(fresh) >= PARTITIONS

    wait_until(all_there)
    assert sorted((b["partition"], b["first_offset"], b["delivery_count"]) for b in fresh) == [
        (partition, 1, 1) for partition in range(PARTITIONS)
    ]

    paused.process.send_signal(signal.SIGCONT)
    late = [
        {key: batch[key] for key in ("topic", "partition", "first_offset", "last_offset")} | {"type": "accept"}
        for batch in held
    ]
    answer = two.try_acknowledge(name, late, member="zombie").json()
    assert [result["status"] for result in answer["results"]] == ["failed"] * PARTITIONS
    assert two.acquire(name, name, member="third") == []
    mine = [
        {key: batch[key] for key in ("topic", "partition", "first_offset", "last_offset", "delivery_count")}
        | {"type": "accept"}
        for batch in fresh
    ]
    settled = good(one.try_acknowledge(name, mine, member="new"))
    assert {result["status"] for result in settled["results"]} == {"applied"}
    wait_until(lambda: {lag for _, lag in one.offsets(name).values()} == {0})


def test_members_keep_consuming_when_their_group_coordinator_is_killed(stack: Stack, name: str) -> None:
    """The other instance takes the group over: the same members at the same epochs, and no new assignment."""
    gateway = gateway_of(stack.service("gateway"))
    groups = [f"{name}-{number}" for number in range(6)]
    gateway.create_topic(name, partitions=2)
    epochs: dict[str, int] = {}

    def beat(group: str) -> httpx.Response:
        body = {"member_id": "m1", "member_epoch": epochs.get(group, 0)}
        if not epochs.get(group):
            body["subscribed_topic_names"] = [name]
        return gateway.http.post(f"/v1/share-groups/{group}/heartbeat", json=body)

    def assigned(group: str) -> bool:
        epochs[group] = good(beat(group))["member_epoch"]
        (member,) = good(gateway.http.get(f"/v1/share-groups/{group}"))["members"]
        return bool(member["assignment"]["topic_partitions"])

    for group in groups:
        wait_until(lambda group=group: assigned(group), 30)
    before = [good(gateway.http.get(f"/v1/share-groups/{group}")) for group in groups]
    stack.service("group coordinator").kill()
    for group in groups:
        wait_until(lambda group=group: beat(group).status_code == 200, 30)
        answer = good(beat(group))
        assert (answer["member_epoch"], "assignment" in answer) == (epochs[group], False)
    assert [good(gateway.http.get(f"/v1/share-groups/{group}")) for group in groups] == before
