"""The state calls over HTTP: the token, large writes, names that do not exist, and the order of answers."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from sharequeue.protocol.messages.share_state import PartitionStateResult
from sharequeue.stack.stack import Stack
from tests.core.states import Stored

State = dict[str, Any]


TOKEN = "a token of the cluster that only its services know"


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    """The lease does not end while a machine stands still: these tests call without a client that would try again."""
    services = ("GATEWAY", "COORDINATOR", "SHARE_COORDINATOR")
    tokens = {f"SHAREQUEUE_{service}_CLUSTER_TOKEN": TOKEN for service in services}
    return {**tokens, "SHAREQUEUE_SHARE_COORDINATOR_LEASE_MS": "60000"}


@pytest.fixture(scope="module")
def state_calls(stack: Stack) -> Iterator[httpx.Client]:
    """The share coordinator, as the other services call it."""
    url = stack.service("share coordinator").url
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60, verify=False) as client:
        yield client


@pytest.fixture
def topic_id(client: httpx.Client, name: str) -> str:
    """A topic with three partitions."""
    created = client.post("/v1/topics", json={"name": name, "partitions": 3})
    assert created.status_code == 201, created.text
    topic_id: str = created.json()["topic_id"]
    return topic_id


class Calls:
    """State calls of one group; each answers the results of its partitions."""

    def __init__(self, client: httpx.Client, group_id: str) -> None:
        self._client = client
        self._group_id = group_id

    def send(self, call: str, topic_id: str, *partitions: State) -> httpx.Response:
        states = [[self._group_id, topic_id, {"partition": 0, **partition}] for partition in partitions]
        return self._client.post(f"/v1/share-state/{call}", json={"states": states})

    def __call__(self, call: str, topic_id: str, *partitions: State) -> list[State]:
        answer = self.send(call, topic_id, *partitions)
        assert answer.status_code == 200, answer.text
        return [result for _, _, result in answer.json()["results"]]

    def codes(self, call: str, topic_id: str, *partitions: State) -> list[int]:
        return [partition["error_code"] for partition in self(call, topic_id, *partitions)]


@pytest.fixture
def calls(state_calls: httpx.Client, name: str) -> Calls:
    return Calls(state_calls, f"g:{name}")


def batches(*given: tuple[int, int, int, int]) -> State:
    return {"batches": given}


def written(**more: Any) -> State:
    return {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "delivery_complete_count": 0, **more}


ALL = ("initialize", "read", "write", "delete", "read-summary")
FULL = written(state=batches((0, 0, 2, 1)))
FIELDS: dict[str, tuple[str, ...]] = {
    "initialize": ("state_epoch", "start_offset"),
    "read": ("leader_epoch",),
    "write": tuple(FULL),
    "delete": (),
    "read-summary": ("leader_epoch",),
}


def request_of(call: str, **more: Any) -> State:
    return {**{field: FULL[field] for field in FIELDS[call]}, **more}


@pytest.mark.parametrize("call", ALL)
@pytest.mark.parametrize(("group_id", "topic_id"), [("", "t"), (None, "t"), ("g", ""), ("g", None)])
def test_a_state_call_without_a_group_or_a_topic_is_refused(
    state_calls: httpx.Client, call: str, group_id: str | None, topic_id: str | None
) -> None:
    states = [[group_id, topic_id, {"partition": 0, **request_of(call)}]]
    answer = state_calls.post(f"/v1/share-state/{call}", json={"states": states})
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")


@pytest.mark.parametrize("call", ALL)
def test_a_state_call_without_share_partitions_has_no_results(state_calls: httpx.Client, call: str) -> None:
    answer = state_calls.post(f"/v1/share-state/{call}", json={"states": []})
    assert (answer.status_code, answer.json()) == (200, {"results": []})


def test_a_state_write_may_exceed_the_limit_of_client_requests(calls: Calls, topic_id: str) -> None:
    """10,000 records released with 1 KiB of reason each, one of 60, fit in a client's request,
    and then have to be persisted."""
    calls("initialize", topic_id, {"state_epoch": 0, "start_offset": 0})
    released = [(offset, offset, 0, 1, (0, (offset % 60, offset))) for offset in range(10_000)]
    state = {"batches": released, "texts": [f"{number:<1024}" for number in range(60)]}
    assert calls.codes("write", topic_id, written(state=state)) == [0]
    found = Stored()
    offset: int | None = 0
    while offset is not None:
        (result,) = calls("read", topic_id, {"leader_epoch": 0, "from_offset": offset})
        found = found.with_page(msgspec.convert(result, PartitionStateResult, str_keys=True))
        offset = result.get("next_offset")
    assert [str(note.reason) for note in found.annotations()] == [f"{number % 60:<1024}" for number in range(10_000)]


@pytest.mark.parametrize("call", ["initialize", "delete", "read-summary"])
def test_unknown_partitions_and_topics_are_refused(calls: Calls, topic_id: str, call: str) -> None:
    assert calls.codes(call, topic_id, request_of(call, partition=3)) == [3]
    assert calls.codes(call, str(uuid.uuid4()), request_of(call)) == [3]


@pytest.mark.parametrize("call", ALL)
@pytest.mark.parametrize("topic_id", ["no-uuid", "", "00000000-0000-0000-0000-00000000000"])
def test_an_invalid_topic_id_fails_alone(calls: Calls, call: str, topic_id: str) -> None:
    answer = calls.send(call, topic_id, request_of(call))
    if answer.status_code == 200:
        ((_, _, result),) = answer.json()["results"]
        assert result["error_code"] in (3, 42, -1)
    else:
        assert answer.status_code in (400, 422), answer.text


def test_a_grown_topic_is_noticed(client: httpx.Client, calls: Calls, topic_id: str, name: str) -> None:
    assert calls.codes("initialize", topic_id, {"partition": 3, "state_epoch": 0, "start_offset": 0}) == [3]
    assert client.patch(f"/v1/topics/{name}", json={"partitions": 4}).status_code == 200
    wait_for(lambda: calls.codes("initialize", topic_id, {"partition": 3, "state_epoch": 0, "start_offset": 0}) == [0])


def test_a_batch_of_writes_is_answered_in_order(state_calls: httpx.Client, topic_id: str, name: str) -> None:
    groups = [f"{name}-{number}" for number in range(3)]
    for group in groups[:2]:
        Calls(state_calls, group)("initialize", topic_id, {"state_epoch": 0, "start_offset": 0})
    wanted = [groups[1], groups[2], groups[0], groups[1]]
    body = {"states": [[group, topic_id, {**FULL, "partition": 0}] for group in wanted]}
    answer = state_calls.post("/v1/share-state/write", json=body)
    assert answer.status_code == 200, answer.text
    found = [(group, result["error_code"]) for group, _, result in answer.json()["results"]]
    assert found == [(groups[1], 0), (groups[2], 42), (groups[0], 0), (groups[1], 0)]


def test_mt_009_writes_are_counted(state_calls: httpx.Client, calls: Calls, topic_id: str) -> None:
    def total() -> float:
        lines = state_calls.get("/metrics").text.splitlines()
        return float(
            next(line for line in lines if line.startswith("sharequeue_share_coordinator_writes_total")).split()[1]
        )

    calls("initialize", topic_id, {"state_epoch": 0, "start_offset": 0})
    before = total()
    for offset in range(3):
        calls("write", topic_id, written(state=batches((2 * offset, 2 * offset, 2, 1))))
    calls("read", topic_id, {"leader_epoch": 1})
    calls("read", topic_id, {"leader_epoch": 1})
    assert total() == before + 4


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        if condition():
            return
        assert time.monotonic() < deadline, "the share-partition was not initialised"
        time.sleep(0.05)
