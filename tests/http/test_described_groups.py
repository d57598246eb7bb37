"""Groups described and listed (GI, CL), and their metrics."""

from typing import Any

import httpx

from tests.http.calls import Gateway, Json, good, problem, wait_until
from tests.http.membership import Member, describe


def test_describe_lists_members_with_client_and_host(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    member = Member(gateway, name, "m1", name)
    path = f"/v1/share-groups/{name}/heartbeat"
    body = {"member_id": "m1", "rack_id": "r1", "subscribed_topic_names": [name]}
    good(gateway.http.post(path, json=body))
    member.epoch = 2
    wait_until(lambda: member.beat() and member.assigned)
    group = describe(gateway, name)
    (entry,) = group.pop("members")
    assert group.pop("work")["workers"] == 0, "it has not fetched"
    assert group == {
        "group_id": name,
        "state": "Stable",
        "group_epoch": 3,
        "assignment_epoch": 3,
        "assignor_name": "simple",
        "member_count": 1,
    }
    topic_id = gateway.describe_topic(name)["topic_id"]
    assert entry == {
        "member_id": "m1",
        "member_epoch": 3,
        "client_id": entry["client_id"],
        "client_host": "127.0.0.1",
        "subscribed_topic_names": [name],
        "assignment": {"topic_partitions": [{"topic": name, "topic_id": topic_id, "partitions": [0]}]},
        "rack_id": "r1",
    }
    assert entry["client_id"].startswith("python-httpx/")  # of the last heartbeat, which brought no Client-Id
    good(
        gateway.http.post(
            path, json={"member_id": "m1", "member_epoch": 3}, headers={"Client-Id": b"billing %\xc3\xbc 7"}
        )
    )
    assert describe(gateway, name)["members"][0]["client_id"] == "billing %ü 7"


def test_members_are_listed_in_pages(gateway: Gateway, name: str) -> None:
    for number in range(5):
        Member(gateway, name, f"m{number}", name).beat()
    pages: list[list[str]] = []
    query: Json = {"page_size": 2}
    while True:
        page = describe(gateway, name, **query)
        assert page["member_count"] == 5
        pages.append([member["member_id"] for member in page["members"]])
        if "next_page_token" not in page:
            break
        query["page_token"] = page["next_page_token"]
    assert pages == [["m0", "m1"], ["m2", "m3"], ["m4"]]
    for size in (0, 10_001):
        problem(gateway.http.get(f"/v1/share-groups/{name}?page_size={size}"), 422, "INVALID_REQUEST", 42)


def test_gi_037_cl_001_groups_are_listed_by_state(gateway: Gateway, name: str) -> None:
    empty, stable, fetched = f"{name}-1", f"{name}-2", f"{name}-3"

    def listed(**query: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        while True:
            page = good(gateway.http.get("/v1/share-groups", params={"page_size": 3, **query}))
            assert all(group["type"] == "share" for group in page["groups"])
            assert len(page["groups"]) <= 3
            found |= {group["group_id"]: group["state"] for group in page["groups"]}
            if "next_page_token" not in page:
                return {group_id: state for group_id, state in found.items() if group_id.startswith(f"{name}-")}
            query["page_token"] = page["next_page_token"]

    assert listed() == {}
    Member(gateway, stable, "m1", name).beat()
    gone = Member(gateway, empty, "m1", name)
    gone.beat()
    gone.try_beat(member_epoch=-1)
    gateway.create_topic(name)
    gateway.acquire(fetched, name)
    everything = {empty: "Empty", stable: "Stable", fetched: "Empty"}
    assert listed() == listed(state="Empty,Stable") == listed(state="stable, EMPTY,dead") == everything
    assert listed(state="Empty") == {empty: "Empty", fetched: "Empty"}
    assert listed(state="Stable") == {stable: "Stable"}
    assert listed(state="Dead") == {}
    problem(gateway.http.get("/v1/share-groups?state=Bogus"), 422, "INVALID_REQUEST", 42)


def test_metrics_count_groups_and_rebalances(gateway: Gateway, shared_stack: Any, name: str) -> None:
    url = shared_stack.addresses["group coordinator"]

    def sample(metric: str) -> float:
        lines = httpx.get(f"{url}/metrics", verify=False, timeout=60).text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric + " "))

    stable = 'sharequeue_coordinator_share_group_count{state="Stable"}'
    rebalances = "sharequeue_coordinator_share_group_rebalances_total"
    bumps = sample(rebalances)
    Member(gateway, name, "m1", name).beat()
    assert sample(rebalances) > bumps

    def counted() -> bool:
        good(httpx.get(f"{url}/readyz", verify=False, timeout=60))
        listed = good(gateway.http.get("/v1/share-groups?state=Stable&page_size=10000"))["groups"]
        return sample(stable) == len(listed) > 0

    wait_until(counted)


def test_a_group_says_what_it_has_to_do_now(gateway: Gateway, name: str) -> None:
    gateway.produce(name, *range(10))
    gateway.acquire(name, name, max_records=5, member="w-1")
    for offset, fields in (
        (0, {"type": "accept"}),
        (1, {"type": "release", "delay_ms": 60_000}),
        (2, {"type": "reject"}),
    ):
        assert gateway.settle(name, name, offset, offset, member="w-1", **fields) == "applied"
    path, expected = f"/v1/share-groups/{name}", {"ready": 5, "held": 2, "delayed": 1, "dying": 0}

    def work() -> Json:
        return dict(good(gateway.http.get(path))["work"])

    wait_until(lambda: work()["open_dead_letters"] == 1 and not work()["dying"])
    found = work()
    assert 0 <= found.pop("oldest_ready_age_ms") < 60_000
    assert found == {**expected, "open_dead_letters": 1, "workers": 1}
    found, token = {}, {}
    while not found:
        page = good(gateway.http.get("/v1/share-groups", params={"work": True, "page_size": 1000, **token}))
        assert len(page["groups"]) <= 100
        found = {group["group_id"]: group["work"] for group in page["groups"]}.get(name, {})
        token = {"page_token": page.get("next_page_token")}
    assert {state: found[state] for state in expected} == expected
