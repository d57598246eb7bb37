"""Any gateway serves any client: fetches, acknowledgements, sessions and listings, at every leader."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.cluster.calls import acknowledge, fetch, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import HANG_S, LONG_MS, Gateway, wait_until, woken

PARTITIONS = 6
LOOKS = "sharequeue_topic_partitions_acquire_seconds_count"


def test_each_record_goes_to_one_of_the_clients_of_all_gateways(clients: list[httpx.Client], name: str) -> None:
    make_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[partition % 3], name, partition, 20)
    seen: list[tuple[int, int]] = []
    for turn in range(60):
        answer = fetch(clients[turn % 3], name, topics=[name], max_records=7, max_wait_ms=0, member_id=f"m{turn}")
        assert len(places(answer)) <= 7
        seen += places(answer)
        acknowledge(clients[(turn + 1) % 3], name, answer)
        if len(seen) == PARTITIONS * 20:
            break
    assert len(seen) == len(set(seen)) == PARTITIONS * 20
    left = fetch(clients[0], name, topics=[name], max_wait_ms=0)
    assert left["batches"] == []
    for client in clients:
        offsets = client.get(f"/v1/share-groups/{name}/offsets").json()
        assert {p["lag"] for topic in offsets["topics"] for p in topic["partitions"]} == {0}


def test_a_member_that_leaves_through_any_gateway_gives_back_what_it_holds_at_each_leader(
    clients: list[httpx.Client], name: str
) -> None:
    make_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, 1)
    wanted = {(partition, 0) for partition in range(PARTITIONS)}
    held: set[tuple[int, int]] = set()
    while held != wanted:
        held |= places(fetch(clients[0], name, topics=[name], member_id="leaves", max_wait_ms=LONG_MS))
    reset = clients[1].post(f"/v1/share-groups/{name}/offsets/reset", json={"to": "latest"})
    assert reset.status_code == 409, "its records are in use, at whichever leader"
    assert clients[1].delete(f"/v1/share-groups/{name}/members/leaves").status_code == 204
    again = fetch(clients[2], name, topics=[name], member_id="stays", max_wait_ms=0)
    assert places(again) == wanted


def test_a_poll_through_any_gateway_wakes_for_a_record_of_any_leader(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    make_topic(clients[0], name, PARTITIONS)
    for client in clients:
        fetch(client, name, topics=[name], max_wait_ms=0)
    for partition in range(PARTITIONS):
        with woken(*map(Gateway, clients)), ThreadPoolExecutor(1) as pool:
            poll = pool.submit(fetch, clients[partition % 3], name, topics=[name], max_wait_ms=LONG_MS)
            cluster.wait_until_waiting()
            produce(clients[(partition + 1) % 3], name, partition, 1)
            answer = poll.result(HANG_S)
        assert places(answer) == {(partition, 0)}


def test_a_pause_holds_at_every_leader_and_its_end_wakes_a_poll(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    topic_id = make_topic(clients[0], name, PARTITIONS)
    paused, resumed = ({"config": {"share.paused": value}} for value in ("true", "false"))
    assert clients[0].patch(f"/v1/share-groups/{name}/config", json=paused).status_code == 200
    produce(clients[0], name, 0, 1)
    for client in clients:
        assert fetch(client, name, topics=[name], max_wait_ms=0)["paused"]
    away = next(
        client
        for client, gateway in zip(clients, cluster.gateways, strict=True)
        if gateway is not cluster.leader_of(name, topic_id, 0)
    )
    only = [{"topic": name, "partitions": [0]}]
    with woken(*map(Gateway, clients)), ThreadPoolExecutor(1) as pool:
        poll = pool.submit(fetch, away, name, topic_partitions=only, max_wait_ms=LONG_MS)
        cluster.wait_until_waiting()
        assert clients[1].patch(f"/v1/share-groups/{name}/config", json=resumed).status_code == 200
        assert places(poll.result(HANG_S)) == {(0, 0)}


def test_a_poll_at_the_only_leader_looks_once(cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> None:
    """It waits as if its gateway were alone. It once looked, waited, looked and waited again for each wake-up."""
    topic_id = make_topic(clients[0], name, 1)
    fetch(clients[0], name, topics=[name], max_wait_ms=0)
    leader = clients[cluster.gateways.index(cluster.leader_of(name, topic_id, 0))]
    other = next(client for client in clients if client is not leader)
    looks = Gateway(leader).metrics()[LOOKS]
    for offset in range(10):
        with woken(*map(Gateway, clients)), ThreadPoolExecutor(1) as pool:
            poll = pool.submit(fetch, leader, name, topics=[name], max_wait_ms=LONG_MS)
            cluster.wait_until_waiting()
            produce((leader, other)[offset % 2], name, 0, 1)
            assert places(poll.result(HANG_S)) == {(0, offset)}
    assert Gateway(leader).metrics()[LOOKS] - looks == 10


def test_a_client_that_hangs_up_at_one_gateway_holds_nothing_at_another(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    topic_id = make_topic(clients[0], name, 1)
    fetch(clients[0], name, topics=[name], max_wait_ms=0)
    leader = cluster.leader_of(name, topic_id, 0)
    elsewhere = next(gateway for gateway in cluster.gateways if gateway is not leader)
    body = json.dumps({"topics": [name], "member_id": "m", "max_wait_ms": LONG_MS}).encode()
    head = f"HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    address = httpx.URL(elsewhere.url)
    with socket.create_connection((address.host, address.port)) as connection:
        connection.sendall(f"POST /v1/share-groups/{name}/fetch {head}".encode() + body)
        cluster.wait_until_waiting_at(leader)
    cluster.wait_until_waiting(False)  # the hang-up travels over two connections
    produce(clients[0], name, 0, 1)
    answer = fetch(clients[1], name, topics=[name], max_wait_ms=5000)
    assert places(answer) == {(0, 0)}
    assert answer["batches"][0]["delivery_count"] == 1


def test_acknowledgements_with_the_next_fetch_reach_all_leaders(clients: list[httpx.Client], name: str) -> None:
    make_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, 5)
    answer = fetch(clients[0], name, topics=[name], member_id="m", max_wait_ms=0)
    assert len(places(answer)) == PARTITIONS * 5
    produce(clients[0], name, 0, 1)
    acknowledgements = [
        {name: value for name, value in batch.items() if name != "records"} | {"type": "accept"}
        for batch in answer["batches"]
    ]
    more = fetch(clients[1], name, topics=[name], member_id="m", max_wait_ms=5000, acknowledgements=acknowledgements)
    assert [result["status"] for result in more["acknowledgement_results"]] == ["applied"] * len(acknowledgements)
    assert places(more) == {(0, 5)}


def test_a_session_continues_through_any_gateway(clients: list[httpx.Client], name: str) -> None:
    make_topic(clients[0], name, PARTITIONS)
    fetch(clients[0], name, topics=[name], member_id="m", share_session_epoch=0, max_wait_ms=0)
    for epoch in range(1, 7):
        produce(clients[0], name, epoch % PARTITIONS, 1)
        answer = fetch(clients[epoch % 3], name, member_id="m", share_session_epoch=epoch, max_wait_ms=5000)
        assert len(places(answer)) == 1
    fetch(clients[2], name, member_id="m", share_session_epoch=-1, max_wait_ms=0)
    released: set[tuple[int, int]] = set()
    while len(released) < 6:
        again = fetch(clients[1], name, topics=[name], member_id="n", max_wait_ms=5000)
        assert {batch["delivery_count"] for batch in again["batches"]} == {2}
        released |= places(again)


def test_a_repeated_fetch_gets_the_same_records_through_another_gateway(clients: list[httpx.Client], name: str) -> None:
    make_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, 4)
    first = fetch(clients[0], name, topics=[name], member_id="m", fetch_id="f", max_records=10, max_wait_ms=0)
    again = fetch(clients[1], name, topics=[name], member_id="m", fetch_id="f", max_records=10, max_wait_ms=0)
    assert places(again) == places(first)
    assert {batch["delivery_count"] for batch in again["batches"]} == {1}


def test_a_client_that_hangs_up_at_once_uses_no_deliveries(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """The fetch releases its records once: it does not acquire again until its wait ends.

    Groups that nobody knows yet, so that it hangs up while they are being loaded.
    """
    make_topic(clients[0], name, 1)
    produce(clients[0], name, 0, 200)
    body = json.dumps({"topics": [name], "member_id": "m", "max_records": 10, "max_wait_ms": LONG_MS}).encode()
    head = f"HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    groups = {f"{name}-{turn}": cluster.gateways[turn % 3] for turn in range(9)}
    for turn, (group, gateway) in enumerate(groups.items()):
        address = httpx.URL(gateway.url)
        with socket.create_connection((address.host, address.port)) as connection:
            connection.sendall(f"POST /v1/share-groups/{group}/fetch {head}".encode() + body)
            time.sleep(turn // 3 * 0.01)
    for group in groups:
        answer = fetch(clients[0], group, topics=[name], member_id="n", max_wait_ms=5000)
        assert len(places(answer)) >= 190, group  # the write of its release may still be in progress
        tried = [batch for batch in answer["batches"] if batch["delivery_count"] > 1]
        assert sum(batch["last_offset"] - batch["first_offset"] + 1 for batch in tried) <= 10, group


def test_partitions_led_by_another_gateway_are_not_starved(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """A client that stays at one gateway gets the records of others, though that one always has some of its own."""
    topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
    leaders = {partition: cluster.leader_of(name, topic_id, partition) for partition in range(PARTITIONS)}
    asked = cluster.gateways.index(leaders[0])
    elsewhere = next(partition for partition, leader in leaders.items() if leader is not leaders[0])
    produce(clients[0], name, 0, 50)
    produce(clients[0], name, elsewhere, 1)
    got: set[tuple[int, int]] = set()
    for _ in range(8):
        got |= places(fetch(clients[asked], name, topics=[name], max_records=1, max_wait_ms=0))
    assert (elsewhere, 0) in got
    assert len([place for place in got if place[0] == 0]) == 7


def test_each_gateway_shows_the_same_window_and_changes_its_records(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    cluster.make_spread_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, 3)
    held = 0
    while held < 3 * PARTITIONS:
        held += len(places(fetch(clients[0], name, topics=[name], max_wait_ms=0)))
    for partition in range(PARTITIONS):
        path = f"/v1/share-groups/{name}/topics/{name}/partitions/{partition}"
        for offset, client in enumerate(clients):
            answer = client.post(f"{path}/records/{offset}", json={"action": "release", "delivery_count": 1})
            assert answer.status_code == 200, answer.text
            assert (
                client.post(f"{path}/records/{offset}", json={"action": "reject", "delivery_count": 1}).status_code
                == 409
            )
        first, *others = [client.get(f"{path}/window").json() for client in clients]
        assert (first["loaded"], first["buckets"]) == (True, [{"available": 1}] * 3)
        assert others == [first] * 2


def test_what_was_changed_by_hand_stays_so_when_the_leader_is_killed(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    leader = cluster.leader_of(name, make_topic(clients[0], name, 1), 0)
    (client, *_) = [client for client in clients if client.base_url != httpx.URL(leader.url)]
    produce(client, name, 0, 3)
    held = fetch(client, name, topics=[name], member_id="m", max_wait_ms=0)
    assert places(held) == {(0, 0), (0, 1), (0, 2)}
    body = {
        "topic": name,
        "partition": 0,
        "first_offset": 0,
        "last_offset": 2,
        "type": "release",
        "delay_ms": 3_600_000,
    }
    answer = client.post(f"/v1/share-groups/{name}/acknowledge", json={"member_id": "m", "acknowledgements": [body]})
    assert answer.json()["failed_count"] == 0
    path = f"/v1/share-groups/{name}/topics/{name}/partitions/0/records"
    for offset, action in ((0, "deliver_now"), (1, "reject")):
        assert client.post(f"{path}/{offset}", json={"action": action, "delivery_count": 1}).json() == {}
    leader.kill()

    def got() -> list[tuple[int, int, int]]:
        fetched = client.post(f"/v1/share-groups/{name}/fetch", json={"topics": [name], "max_wait_ms": 1000}).json()
        batches = fetched.get("batches", ())
        return [(batch["first_offset"], batch["last_offset"], batch["delivery_count"]) for batch in batches]

    assert wait_until(got) == [(0, 0, 2)]
    assert wait_until(lambda: client.get(f"{path}/1").json().get("state") == "dead")
    assert client.get(f"{path}/2").json()["state"] == "delayed"
