"""listInFlightRecords a page at a time."""

from typing import Any

import pytest

from tests.http.calls import Gateway, Json, acknowledge_range, good, problem


def pages(gateway: Gateway, group: str, **query: Any) -> list[Json]:
    """All pages of a listing."""
    found: list[Json] = []
    token: str | None = ""
    while token is not None:
        more = {"page_token": token} if token else {}
        found.append(good(gateway.http.get(f"/v1/share-groups/{group}/in-flight", params={**query, **more})))
        token = found[-1].get("next_page_token")
    return found


@pytest.fixture
def held(gateway: Gateway, name: str) -> str:
    """A group that holds four records, each a batch, of each of six partitions of two topics,
    and has one of nothing."""
    for topic in (name, f"{name}-b"):
        gateway.create_topic(topic, partitions=4)
        for partition in range(3):
            gateway.produce_batches(topic, 4, partition=partition)
        for partition in range(4):
            only = [{"topic": topic, "partitions": [partition]}]
            gateway.acquire(name, topic_partitions=only, batch_size=1, max_records=4)
            records = [acknowledge_range(topic, offset, offset, "renew", partition=partition) for offset in (1, 3)]
            gateway.try_acknowledge(name, records)
    return name


def test_offsets_come_in_pages_of_partitions(gateway: Gateway, held: str) -> None:
    def listed(page_size: int) -> list[tuple[str, int]]:
        query: dict[str, Any] | None = {"page_size": page_size}
        found = []
        while query is not None:
            page = good(gateway.http.get(f"/v1/share-groups/{held}/offsets", params=query))
            places = [(topic["topic"], entry["partition"]) for topic in page["topics"] for entry in topic["partitions"]]
            assert 1 <= len(places) <= page_size
            found += places
            token = page.get("next_page_token")
            query = None if token is None else {"page_size": page_size, "page_token": token}
        return found

    whole = [(topic, partition) for topic in (held, f"{held}-b") for partition in range(4)]
    assert [listed(page_size) for page_size in (1, 3, 4, 8)] == [whole] * 4
    wrong = gateway.http.get(f"/v1/share-groups/{held}/offsets", params={"page_token": "x"})
    problem(wrong, 422, "INVALID_REQUEST", 42)


def test_pages_hold_everything_once_and_in_order(gateway: Gateway, held: str) -> None:
    whole = gateway.in_flight(held)
    assert [(entry["topic"], entry["partition"]) for entry in whole] == [
        (topic, partition) for topic in (held, f"{held}-b") for partition in range(4)
    ]
    for page_size in (1, 2, 7, 11, 1000):
        found = pages(gateway, held, page_size=page_size)
        assert [entry for page in found for entry in page["partitions"]] == whole
        for page in found:
            sizes = [1 + len(entry["batches"]) for entry in page["partitions"]]
            assert sum(sizes[:-1]) < page_size
            assert sizes
        assert (len(found) == 1) == (page_size == 1000)


def test_a_page_begins_where_the_last_one_ended_though_records_were_settled(gateway: Gateway, held: str) -> None:
    first = good(gateway.http.get(f"/v1/share-groups/{held}/in-flight", params={"page_size": 1}))
    for partition in range(3):
        gateway.settle(held, held, 0, 3, "accept", partition=partition)
    token = first["next_page_token"]
    query = {"page_size": 1, "page_token": token}
    second = good(gateway.http.get(f"/v1/share-groups/{held}/in-flight", params=query))
    assert [entry["partition"] for entry in (*first["partitions"], *second["partitions"])] == [0, 1]


def test_pages_can_be_limited_to_one_topic(gateway: Gateway, held: str) -> None:
    found = pages(gateway, held, page_size=1, topic=f"{held}-b")
    assert [(entry["topic"], entry["partition"]) for page in found for entry in page["partitions"]] == [
        (f"{held}-b", partition) for partition in range(4)
    ]
    assert len(pages(gateway, held, page_size=1, topic=held, partition=2)) == 1


@pytest.mark.parametrize("query", [{"page_size": 0}, {"page_size": 10_001}, {"page_token": "x"}])
def test_an_invalid_page_token_is_refused(gateway: Gateway, name: str, query: Json) -> None:
    problem(gateway.http.get(f"/v1/share-groups/{name}/in-flight", params=query), 422, "INVALID_REQUEST", 42)
