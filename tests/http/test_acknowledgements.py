"""Acknowledgements over HTTP: families AV and AK, per-offset types, atomic, repeats, fencing, delays, reasons."""

import httpx
import pytest

from sharequeue.protocol import apis
from sharequeue.stack.stack import Stack
from tests.http.calls import (
    Gateway,
    Json,
    acknowledge_range,
    good,
    outcomes,
    problem,
    ranges,
)


@pytest.fixture
def held(gateway: Gateway, name: str) -> str:
    """0-9 held by m1, delivered once; the name of the topic and of the group."""
    gateway.configure(name, errors_deadletterqueue_topic_name="")
    gateway.produce_batches(name, 10)
    assert gateway.acquire(name, name) == ["0-9×1"]
    return name


def test_av_007_each_offset_may_have_its_own_type(gateway: Gateway, held: str) -> None:
    assert gateway.settle(held, held, 0, 9, " ".join(["accept"] * 10)) == "applied"
    assert gateway.window(held, held) == (10, [])


def test_av_013_is_renew_ack_needs_a_renewal(gateway: Gateway, held: str) -> None:
    gateway.produce_batches(held, 5)
    accept = [acknowledge_range(held, 0, 9, "accept")]
    limits = {"max_records": 0, "max_bytes": 0, "min_bytes": 0, "max_wait_ms": 0}
    answer = gateway.fetch(held, held, is_renew_ack=True, acknowledgements=accept, **limits)
    assert (ranges(answer), answer["acknowledgement_results"]) == ([], [{"status": "applied"}])


def test_av_015_an_empty_list_of_acknowledgements_is_accepted(gateway: Gateway, held: str) -> None:
    answer = good(gateway.try_acknowledge(held, []))
    assert (answer["results"], answer["failed_count"]) == ([], 0)


def test_without_atomic_each_acknowledgement_stands_alone(gateway: Gateway, held: str) -> None:
    """In any order; a record is settled once; a failure beside a success is a 200 that lists both."""
    given = (7, 9, "accept"), (20, 21, "accept"), (0, 4, "release"), (4, 5, "accept"), (9, 9, "accept")
    response = gateway.try_acknowledge(held, [acknowledge_range(held, *entry) for entry in given])
    assert response.status_code == 200
    assert outcomes(response) == ["applied", 42, "applied", 121, 121]
    assert response.json()["failed_count"] == 3
    assert response.headers["acknowledge-failed"] == "3"
    failed = [result for result in response.json()["results"] if result["status"] == "failed"]
    assert all(set(result) == {"status", "code", "kafka_code", "detail", "retriable"} for result in failed)
    assert gateway.window(held, held) == (0, ["0-4 AVAILABLE×1", "5-6 ACQUIRED×1", "7-9 ACKNOWLEDGED×1"])


def test_atomic_binds_only_ranges_of_the_same_partition(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    for partition in (0, 1):
        gateway.produce_batches(name, 4, partition=partition)
    gateway.acquire(name, name)
    p1 = {"partition": 1}
    acknowledgements = [
        acknowledge_range(name, 0, 1, "accept"),
        acknowledge_range(name, 0, 1, "accept", **p1),
        acknowledge_range(name, 2, 9, "accept", **p1),
        acknowledge_range(name, 2, 3, "accept"),
    ]
    response = gateway.try_acknowledge(name, acknowledgements, atomic=True)
    assert (response.status_code, outcomes(response)) == (200, ["applied", 42, 42, "applied"])


def test_the_first_failure_gives_the_status_when_all_failed(gateway: Gateway, held: str) -> None:
    acknowledgements = [
        acknowledge_range("no-such-topic", 0, 0, "accept"),
        acknowledge_range(held, 5, 4, "accept"),
        acknowledge_range(held, 50, 60, "accept"),
    ]
    response = gateway.try_acknowledge(held, acknowledgements)
    document = problem(response, 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    assert (outcomes(response), document["failed_count"]) == ([3, 42, 42], 3)
    response = gateway.try_acknowledge(held, acknowledgements[1:])
    problem(response, 422, "INVALID_REQUEST", 42)


def test_empty_types_beside_a_type_are_absent(gateway: Gateway, held: str) -> None:
    """Generated clients send an empty list for what they leave out. Alone it says nothing, and is refused."""
    both = acknowledge_range(held, 0, 4, "accept", types=[])
    neither = {**acknowledge_range(held, 5, 9, "accept"), "types": []}
    del neither["type"]
    body = {"member_id": "m1", "acknowledgements": [both, neither]}
    results = good(gateway.http.post(f"/v1/share-groups/{held}/acknowledge", json=body))["results"]
    assert [result["status"] for result in results] == ["applied", "failed"]


def test_types_that_are_wrong_fail_alone_and_are_explained(gateway: Gateway, held: str) -> None:
    wrong = [["accept", "acept"], ["accept", 1], "accept", [[]]]
    acknowledgements = [acknowledge_range(held, 0, 1, "accept")]
    for types in wrong:
        acknowledgements.append({**acknowledge_range(held, 2, 3, "accept"), "types": types})
        del acknowledgements[-1]["type"]
    acknowledgements.append({**acknowledge_range(held, 4, 4, "accept"), "types": None})
    body = {"member_id": "m1", "acknowledgements": acknowledgements}
    results = good(gateway.http.post(f"/v1/share-groups/{held}/acknowledge", json=body))["results"]
    assert [result.get("detail") for result in results] == [
        None,
        "`/types/1` must be one of `accept`, `gap`, `reject`, `release`, `renew`; did you mean `accept`?",
        "`/types/1` must be a string, not a number",
        "`types` must be an array, not a string",
        "`/types/0` must be a string, not an array",
        None,
    ]


def test_unknown_groups_are_not_remembered(gateway: Gateway, shared_stack: Stack, held: str) -> None:
    """Otherwise a client that names many groups fills the gateway's memory:
    the gateway keeps settings that it looked up."""

    def asked() -> list[str]:
        series = f'sharequeue_http_request_seconds_count{{operation="{apis.GET_SHARE_GROUP_CONFIG.operation_id}"'
        metrics = httpx.get(f"{shared_stack.addresses['group coordinator']}/metrics", timeout=60).text
        return [line for line in metrics.splitlines() if line.startswith(series)]

    before = asked()
    for number in range(3):
        assert gateway.settle(f"{held}-{number}", held, 0, 9, "accept") == 121
    assert asked() == before


# The bound of a call


def accepts(name: str, count: int) -> list[Json]:
    return [acknowledge_range(name, 0, 0, "accept") for _ in range(count)]


@pytest.mark.parametrize("call", ["acknowledge", "fetch"])
def test_more_are_refused_before_anything_changes(gateway: Gateway, held: str, call: str) -> None:
    """A list of `types` counts as many times as it has types."""
    typed = acknowledge_range(held, 0, 9, "accept")
    del typed["type"]
    for acknowledgements in (
        accepts(held, 1001),
        [*accepts(held, 991), {**typed, "types": ["accept"] * 10}],
        [*accepts(held, 1), {**typed, "types": ["accept"] * 1000}],
    ):
        body = {"member_id": "m1", "acknowledgements": acknowledgements}
        response = gateway.http.post(f"/v1/share-groups/{held}/{call}", json=body)
        document = problem(response, 422, "INVALID_REQUEST", 42)
        assert (document["limit"], document["errors"][0]["pointer"]) == (1000, "/acknowledgements")
        assert "several requests" in document["detail"]
    assert gateway.window(held, held) == (0, ["0-9 ACQUIRED×1"])
