"""Groups deleted, reset, or made to forget a topic over HTTP (GI), and the refusals of each."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http.calls import HANG_S, Gateway, good, problem, wait_until, woken

IN_USE = (409, "NON_EMPTY_GROUP", 68)


def used(gateway: Gateway, name: str, records: int = 10) -> None:
    """A group of that name that accepted all but the last of the records of a topic of that name."""
    gateway.produce_batches(name, records)
    gateway.acquire(name, name)
    gateway.settle(name, name, 0, records - 2, "accept")
    gateway.settle(name, name, records - 1, records - 1, "release")


# Reset


def test_gi_011_a_reset_moves_the_start_offset_at_once(gateway: Gateway, name: str) -> None:
    used(gateway, name)
    assert gateway.offsets(name) == {(name, 0): (0, 1)} or gateway.offsets(name) == {(name, 0): (9, 1)}
    assert gateway.reset(name, "offset", name, offset=4) == {(name, 0): 4}
    assert gateway.offsets(name) == {(name, 0): (4, 6)}
    assert gateway.acquire(name, name) == ["4-9×1"]


def test_gi_019_an_earlier_holder_can_settle_nothing_after_a_reset(gateway: Gateway, name: str) -> None:
    """The gateway has 0-9 loaded and held: the reset ends that, and the earlier holder can settle nothing."""
    gateway.produce_batches(name, 10)
    assert gateway.acquire(name, name, member="m1") == ["0-9×1"]
    problem(gateway.try_reset(name, "offset", name, offset=5), *IN_USE)
    assert gateway.reset(name, "offset", name, offset=5, force=True) == {(name, 0): 5}
    assert gateway.settle(name, name, 5, 9, "accept", member="m1") == 121
    assert gateway.acquire(name, name, member="m2") == ["5-9×1"]
    assert gateway.settle(name, name, 5, 9, "accept", member="m2") == "applied"


@pytest.mark.parametrize(
    ("to", "fields", "expected"),
    [
        ("earliest", {}, 2),
        ("latest", {}, 6),
        ("current", {}, 4),
        ("offset", {"offset": 5}, 5),
        ("offset", {"offset": 0}, 2),
        ("offset", {"offset": 99}, 6),
        ("datetime", {"datetime": "2001-01-01T00:00:03"}, 3),
        ("datetime", {"datetime": "2001-01-01T01:00:03.500+01:00"}, 4),
        ("datetime", {"datetime": "2031-01-01T00:00:00Z"}, 6),
    ],
)
def test_a_reset_goes_to_an_offset_the_start_the_end_or_a_time(
    gateway: Gateway, name: str, to: str, fields: dict[str, Any], expected: int
) -> None:
    """Records 0-5 of one second each from 2001 on; the log begins at 2, the group stands at 4."""
    for second in range(6):
        gateway.produce(name, second, timestamp_ms=978_307_200_000 + 1000 * second)
    gateway.delete_records(name, 2)
    gateway.acquire(name, name, max_records=2)
    gateway.settle(name, name, 2, 3, "accept")
    assert gateway.reset(name, to, name, dry_run=True, **fields) == {(name, 0): expected}
    assert gateway.window(name, name)[0] == 4
    assert gateway.reset(name, to, name, **fields) == {(name, 0): expected}
    assert gateway.window(name, name)[0] == expected
    assert gateway.offsets(name) == {(name, 0): (expected, 6 - expected)}


def test_a_reset_to_a_timestamp_is_exact(gateway: Gateway, name: str) -> None:
    """The first of these timestamps, as a floating-point number of seconds, would be slightly too early."""
    moment_ms = 1_073_741_824_001
    for ms in range(3):
        gateway.produce(name, ms, timestamp_ms=moment_ms - 1 + ms)
    for fraction, expected in (("001", 1), ("000", 0), ("002", 2), ("0005", 1), ("001001", 2)):
        moment = f"2004-01-10T13:37:04.{fraction}"
        assert gateway.reset(name, "datetime", name, datetime=moment, dry_run=True) == {(name, 0): expected}, moment


def test_gi_015_partitions_fail_on_their_own(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    gateway.produce_batches(name, 9)
    topics = [{"topic": name, "partitions": [0, 7]}]
    answer = good(gateway.try_reset(name, "offset", topics=topics, offset=5))
    assert answer["topics"][0]["partitions"] == [{"partition": 0, "start_offset": 5}]
    (error,) = answer["errors"]
    assert (error["topic"], error["partition"], error["kafka_code"]) == (name, 7, 3)
    assert answer["failed_count"] == 1
    assert gateway.acquire(name, name) == ["5-8×1"]


def test_gi_013_an_unknown_topic_changes_nothing(gateway: Gateway, name: str) -> None:
    """Kafka raises the group epoch and creates the group; here nothing is created."""
    problem(gateway.try_reset(name, "earliest", name), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    problem(gateway.http.get(f"/v1/share-groups/{name}/offsets"), 404, "GROUP_ID_NOT_FOUND", 69)


def test_a_reset_without_topics_covers_every_topic_of_the_group(gateway: Gateway, name: str) -> None:
    topics = [f"{name}-a", f"{name}-b", f"{name}-c"]
    for topic in topics:
        gateway.produce_batches(topic, 3)
    gateway.acquire(name, topics=topics[:2])
    assert gateway.reset(name, "latest", force=True) == {(topics[0], 0): 3, (topics[1], 0): 3}
    assert gateway.acquire(name, topics=topics) == ["0-2×1"]


def test_a_reset_of_every_topic_needs_an_existing_group(gateway: Gateway, name: str) -> None:
    """A mistyped name is refused, not answered as done."""
    for dry_run in (False, True):
        problem(gateway.try_reset(name, "earliest", dry_run=dry_run), 404, "GROUP_ID_NOT_FOUND", 69)
    gateway.create_topic(name)
    assert gateway.reset(name, "earliest", name, dry_run=True) == {(name, 0): 0}
    problem(gateway.http.get(f"/v1/share-groups/{name}"), 404, "GROUP_ID_NOT_FOUND", 69)


@pytest.mark.parametrize(
    "fields",
    [
        {"to": "offset"},
        {"to": "earliest", "offset": 3},
        {"to": "latest", "topics": [{"topic": "t", "offset": 3}]},
        {"to": "offset", "topics": [{"topic": "t", "offset": 3}, {"topic": "u"}]},
        {"to": "datetime"},
        {"to": "earliest", "datetime": "2001-01-01"},
        {"to": "datetime", "datetime": "yesterday"},
    ],
)
def test_a_contradictory_reset_is_refused(gateway: Gateway, name: str, fields: dict[str, Any]) -> None:
    problem(gateway.http.post(f"/v1/share-groups/{name}/offsets/reset", json=fields), 422, "INVALID_REQUEST", 42)


# In use


def open_session(gateway: Gateway, name: str) -> None:
    gateway.fetch(name, name, share_session_epoch=0)


def hold(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 1)
    assert gateway.acquire(name, name) == ["0-0×1"]


@pytest.mark.parametrize("use", [open_session, hold])
def test_gi_027_a_group_in_use_cannot_be_reset_or_deleted(gateway: Gateway, name: str, use: Any) -> None:
    gateway.create_topic(name)
    use(gateway, name)
    for refused in (
        gateway.try_delete_group(name),
        gateway.try_delete_offsets(name, name),
        gateway.try_reset(name, "earliest", name),
    ):
        assert "force=true" in problem(refused, *IN_USE)["detail"]
    assert gateway.offsets(name) == {(name, 0): (0, 1 if use is hold else 0)}
    assert gateway.reset(name, "latest", name, dry_run=True)
    assert gateway.try_delete_group(name, force=True).status_code == 204
    problem(gateway.http.get(f"/v1/share-groups/{name}/offsets"), 404, "GROUP_ID_NOT_FOUND", 69)
    if use is open_session:
        refused = gateway.try_fetch(name, share_session_epoch=1)
        problem(refused, 404, "SHARE_SESSION_NOT_FOUND", 122)


def test_a_waiting_fetch_counts_as_use_and_force_ends_it(
    gateway: Gateway, name: str, background: ThreadPoolExecutor
) -> None:
    gateway.create_topic(name)
    waiting = background.submit(gateway.acquire, name, name, max_wait_ms=30_000)
    wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
    wait_until(lambda: gateway.try_delete_group(name).status_code == 409)
    with woken(gateway):
        assert gateway.try_delete_group(name, force=True).status_code == 204
        assert waiting.result(HANG_S) == []
    problem(gateway.http.get(f"/v1/share-groups/{name}/offsets"), 404, "GROUP_ID_NOT_FOUND", 69)


# Delete


def test_a_group_is_deleted_from_the_share_coordinator_too(gateway: Gateway, name: str) -> None:
    """A new group of the same name that begins at the log end does not continue at the old offsets."""
    used(gateway, name)
    assert gateway.try_delete_group(name).status_code == 204
    gateway.configure(name, share_auto_offset_reset="latest")
    assert gateway.acquire(name, name) == []
    assert gateway.offsets(name) == {(name, 0): (10, 0)}


def test_gi_021_offsets_of_a_topic_are_forgotten(gateway: Gateway, name: str) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        gateway.produce_batches(topic, 2)
        gateway.acquire(name, topic)
        gateway.settle(name, topic, 0, 1, "accept")
    assert gateway.try_delete_offsets(name, topics[0]).status_code == 204
    assert list(gateway.offsets(name)) == [(topics[1], 0)]
    document = problem(gateway.try_delete_offsets(name, topics[0]), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    assert document["detail"] == "There is no offset information to delete."
    assert gateway.acquire(name, topics=topics) == ["0-1×1"]


def test_deleting_offsets_of_unknown_groups_and_topics_is_refused(gateway: Gateway, name: str) -> None:
    problem(gateway.try_delete_offsets(name, name), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    gateway.create_topic(name)
    problem(gateway.try_delete_offsets(name, name), 404, "GROUP_ID_NOT_FOUND", 69)


def test_gi_035_group_ids_are_checked(gateway: Gateway, name: str) -> None:
    problem(gateway.http.get(f"/v1/share-groups/{name}"), 404, "GROUP_ID_NOT_FOUND", 69)
    for response in (
        gateway.http.get("/v1/share-groups/%01"),
        gateway.try_delete_group("%01"),
        gateway.try_reset("%01", "earliest"),
        gateway.try_delete_offsets("%01", "t"),
    ):
        problem(response, 422, "INVALID_GROUP_ID", 24)


def test_gi_029_a_partition_that_was_never_loaded_has_no_lag(gateway: Gateway, name: str) -> None:
    """A new partition is initialised at 0 with its first fetch; until then the group has nothing there."""
    gateway.create_topic(name)
    gateway.acquire(name, name)
    good(gateway.http.patch(f"/v1/topics/{name}", json={"partitions": 2}))
    assert gateway.offsets(name) == {(name, 0): (0, 0)}
