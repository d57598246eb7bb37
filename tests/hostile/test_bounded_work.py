"""The largest requests that a client may send: each costs little time, little memory and a small answer."""

from collections.abc import Callable

import httpx
import pytest

from bench.processes import cpu_seconds, peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import ServiceProcess, Stack
from tests.http.calls import when_loaded

MIB = 1024 * 1024
BODY = 10 * MIB - 1024
CALL = MIB - 1024
"""The largest bodies: of a call that carries records, and of any other."""
WIDE = 1000
MOST = 5
"""The most CPU of a request here, in times of a produce of 10 MiB that is accepted. Most take less than one; some took
fifty before they were bounded."""

Service = Callable[[str], ServiceProcess]


@pytest.fixture(scope="module")
def service(stack: Stack) -> Service:
    """A process of the stack by its name."""
    return lambda name: next(service for service in stack.services if service.name == name)


@pytest.fixture(scope="module")
def topics(stack: Stack) -> None:
    """`wide` has 1,000 partitions, `small` has one."""
    with httpx.Client(base_url=stack.url, timeout=40, verify=False) as client:
        for topic in ({"name": "wide", "partitions": WIDE}, {"name": "small"}):
            assert client.post("/v1/topics", json=topic).status_code == 201
        fetched = when_loaded(
            lambda: client.post("/v1/share-groups/g/fetch", json={"topics": ["wide", "small"], "max_wait_ms": 0})
        )
        assert fetched.status_code == 200, fetched.text


@pytest.fixture(scope="module")
def produce_cpu_s(stack: Stack, service: Service, topics: None) -> float:
    """The control: the CPU of the gateway for a produce of 10 MiB."""
    value = b'{"value":"%b","headers":{"a":"b"}}' % (b"v" * 1000)
    body = b'{"records":[' + b",".join([value] * 9_900) + b"]}"
    pid, taken = service("gateway").pid, []
    with httpx.Client(base_url=stack.url, timeout=60, verify=False) as client:
        for _ in range(3):
            used = cpu_seconds(pid)
            assert post(client, "/v1/topics/control/records", body).status_code == 200
            taken.append(cpu_seconds(pid) - used)
    return min(taken)


def filled(begin: bytes, item: bytes, end: bytes, size: int = BODY) -> bytes:
    """A body of `size` bytes with as many items between `begin` and `end` as go in."""
    return begin + b",".join([item] * ((size - len(begin) - len(end)) // (len(item) + 1))) + end


def post(client: httpx.Client, path: str, body: bytes) -> httpx.Response:
    return client.post(path, content=body, headers={"Content-Type": "application/json"})


FETCH, ACKNOWLEDGE = "/v1/share-groups/g/fetch", "/v1/share-groups/g/acknowledge"
PARTITIONS = b'{"max_wait_ms":0,"topic_partitions":[{"topic":"small","partitions":['
COMMIT = b'{"acknowledgements":[{"group_id":"g","member_id":"m","acknowledgements":['
TYPES = b'{"member_id":"m","acknowledgements":[{"topic":"t","partition":0,"first_offset":0,"last_offset":9,"types":['
ACKNOWLEDGEMENT = b'{"topic":"nothing","partition":0,"first_offset":0,"last_offset":0,"type":"accept"}'
TOO_LONG = {
    "a topic named again and again": (FETCH, filled(b'{"topics":[', b'"wide"', b"]}", CALL), "/topics", 1000),
    "a topic named 1,001 times": (FETCH, b'{"topics":[' + b",".join([b'"wide"'] * 1001) + b"]}", "/topics", 1000),
    "partitions that are not there": (
        FETCH,
        filled(PARTITIONS, b"999", b"]}]}", CALL),
        "/topic_partitions/0/partitions",
        20_000,
    ),
    "20,001 partitions": (
        FETCH,
        PARTITIONS + b",".join([b"7"] * 20_001) + b"]}]}",
        "/topic_partitions/0/partitions",
        20_000,
    ),
    "partitions to forget": (
        FETCH,
        b'{"forgotten_topics":[' + b",".join([b'{"topic":"small","partitions":[]}'] * 1001) + b"]}",
        "/forgotten_topics",
        1000,
    ),
    "acknowledgements": (
        ACKNOWLEDGE,
        filled(b'{"member_id":"m","acknowledgements":[', ACKNOWLEDGEMENT, b"]}", CALL),
        "/acknowledgements",
        1000,
    ),
    "acknowledgements, 10 MiB": (
        ACKNOWLEDGE,
        filled(b'{"member_id":"m","acknowledgements":[', ACKNOWLEDGEMENT, b"]}"),
        "",
        200_000,
    ),
    "acknowledgements of a commit, 10 MiB": (
        "/v1/transactions/t/commit",
        filled(COMMIT, ACKNOWLEDGEMENT, b"]}]}"),
        "",
        200_000,
    ),
    "records beside an acknowledgement": (
        ACKNOWLEDGE,
        filled(b'{"member_id":"m","acknowledgements":[],"produce":[{"topic":"t","records":[', b"{}", b"]}]}"),
        "",
        200_000,
    ),
    "1,001 acknowledgements": (
        ACKNOWLEDGE,
        b'{"member_id":"m","acknowledgements":[' + b",".join([ACKNOWLEDGEMENT] * 1001) + b"]}",
        "/acknowledgements",
        1000,
    ),
    "types": (ACKNOWLEDGE, filled(TYPES, b'"gap"', b"]}]}", 100_000), "/acknowledgements", 1000),
    "names of a heartbeat": (
        "/v1/share-groups/g/heartbeat",
        filled(b'{"member_id":"m","subscribed_topic_names":[', b'"wide"', b"]}", CALL),
        "",
        20_000,
    ),
    "1,001 names of a heartbeat": (
        "/v1/share-groups/g/heartbeat",
        b'{"member_id":"m","subscribed_topic_names":[' + b",".join([b'"wide"'] * 1001) + b"]}",
        "/subscribed_topic_names",
        1000,
    ),
    "records": ("/v1/topics/small/records", filled(b'{"records":[', b'{"value":1}', b"]}"), "/records", 10_000),
    "records of nothing": ("/v1/topics/small/records", filled(b'{"records":[', b"{}", b"]}"), "/records", 10_000),
    "10,001 records": (
        "/v1/topics/small/records",
        b'{"records":[' + b",".join([b'{"value":1}'] * 10_001) + b"]}",
        "/records",
        10_000,
    ),
    "headers of a record": (
        "/v1/topics/small/records",
        b'{"records":[{"value":1,"headers":{%b}}]}' % b",".join(b'"%d":""' % number for number in range(1001)),
        "/records/0/headers",
        1000,
    ),
    "headers of a record, most of 10 MiB": (
        "/v1/topics/small/records",
        b'{"records":[{"value":1,"headers":{%b}}]}' % b",".join(b'"%d":""' % number for number in range(860_000)),
        "/records/0/headers",
        256 * 1024,
    ),
    "settings": (
        "/v1/topics",
        b'{"name":"x","config":{%b}}' % b",".join(b'"%d":""' % number for number in range(101)),
        "/config",
        100,
    ),
}


@pytest.mark.parametrize(("path", "body", "pointer", "limit"), TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_list_that_is_too_long_is_refused_with_its_limit(
    client: httpx.Client,
    service: Service,
    produce_cpu_s: float,
    path: str,
    body: bytes,
    pointer: str,
    limit: int,
) -> None:
    gateway = service("gateway")
    reset_peak(gateway.pid)
    before, used = resident_bytes(gateway.pid), cpu_seconds(gateway.pid)
    response = post(client, path, body)
    assert response.status_code == 422, response.text
    problem = response.json()
    assert (problem["errors"][0]["pointer"], problem["limit"]) == (pointer, limit)
    assert "several requests" in problem["detail"]
    assert len(response.content) < 1000
    assert cpu_seconds(gateway.pid) - used < MOST * produce_cpu_s
    assert peak_resident_bytes(gateway.pid) - before < 6 * len(body) + 12 * MIB


LARGE = {
    "fetch": (FETCH, filled(b'{"topics":[', b'"wide"', b"]}", MIB + 1000)),
    "acknowledge": (ACKNOWLEDGE, b'{"member_id":"m","acknowledgements":[]%b}' % (b" " * MIB)),
    "settings": ("/v1/topics", b'{"name":"%b"}' % (b"x" * MIB)),
    "heartbeat": ("/v1/share-groups/g/heartbeat", b'{"member_id":"%b"}' % ("😀" * (MIB // 4)).encode()),
}


@pytest.mark.parametrize(("path", "body"), LARGE.values(), ids=LARGE.keys())
def test_a_body_without_records_has_at_most_a_mebibyte(client: httpx.Client, path: str, body: bytes) -> None:
    refused = post(client, path, body)
    assert (refused.status_code, refused.json()["code"], refused.json()["limit"]) == (413, "MESSAGE_TOO_LARGE", MIB)
    assert "send less in one request" in refused.json()["detail"]


def test_a_commit_and_an_acknowledgement_with_records_may_have_more(client: httpx.Client) -> None:
    spaces = b" " * (2 * MIB)
    assert post(client, "/v1/transactions/x/commit", b'{"note":"n"%b}' % spaces).json()["code"] != "MESSAGE_TOO_LARGE"
    record = b'{"topic":"beside","records":[{"value":"%b"}]}' % (b"v" * 1000)
    body = b'{"member_id":"m","acknowledgements":[],"produce":[%b]%b}' % (record, spaces)
    assert post(client, ACKNOWLEDGE, body).status_code == 200


def test_a_body_of_the_largest_size_may_nest(client: httpx.Client) -> None:
    """It is refused at once, or its deep value is carried."""
    for body in (b'{"topics":%b' % (b"[" * CALL), b'{"topics":%b%b}' % (b"[" * (CALL // 2), b"]" * (CALL // 2))):
        assert post(client, FETCH, body).status_code in (400, 422)


def test_partitions_of_whole_topics_count(client: httpx.Client, topics: None) -> None:
    names = [f"wide-{number}" for number in range(3)]
    for name in names:
        assert client.post("/v1/topics", json={"name": name, "partitions": 10_000}).status_code == 201
    refused = client.post(FETCH, json={"topics": names})
    assert refused.status_code == 422
    assert refused.json()["limit"] == 20_000
    assert "30000 partitions" in refused.json()["detail"]


def test_a_topic_of_ten_thousand_partitions_can_be_named(client: httpx.Client, topics: None) -> None:
    client.post("/v1/topics", json={"name": "widest", "partitions": 10_000})
    for named in ({"topic": "widest"}, {"topic": "widest", "partitions": list(range(10_000))}):
        body = {"to": "earliest", "topics": [named], "dry_run": True}
        response = client.post("/v1/share-groups/widest/offsets/reset", json=body)
        assert response.status_code == 200, response.text
        assert len(response.json()["topics"][0]["partitions"]) == 10_000


def test_errors_of_partitions_that_do_not_exist_are_bounded(client: httpx.Client, topics: None) -> None:
    unknown = list(range(1, 20_001))
    body = {"topic_partitions": [{"topic": "small", "partitions": [*unknown[:-1], 0]}], "max_wait_ms": 0}
    response = client.post(FETCH, json=body)
    assert response.status_code == 200
    answer = response.json()
    assert len(answer["errors"]) == 50
    assert {error["kafka_code"] for error in answer["errors"]} == {3}
    assert answer["more_errors"] == 20_000 - 1 - 50
    assert len(response.content) < 64 * 1024
    refused = client.post(FETCH, json={"topic_partitions": [{"topic": "small", "partitions": unknown}]})
    assert refused.status_code == 404
    assert len(refused.content) < 1000


def test_a_partition_named_twice_is_one_error(client: httpx.Client, topics: None) -> None:
    named = [{"topic": "small", "partitions": [7, 0, 7, 7]}, {"topic": "small", "partitions": [7]}]
    answer = client.post(FETCH, json={"topic_partitions": named, "max_wait_ms": 0}).json()
    assert [(error["topic"], error["partition"]) for error in answer["errors"]] == [("small", 7)]
    assert "more_errors" not in answer


def test_results_of_acknowledgements_are_short_and_in_order(
    client: httpx.Client, service: Service, produce_cpu_s: float
) -> None:
    """Each acknowledgement has its own result; the answer is at most four times as long as the request."""
    gateway = service("gateway")
    acknowledgements = [{"topic": "t", "partition": 0, "first_offset": 0, "last_offset": 0, "type": "accept"}] * 1000
    acknowledgements[7] = {**acknowledgements[7], "type": "x" * 5000}
    used = cpu_seconds(gateway.pid)
    response = client.post(ACKNOWLEDGE, json={"member_id": "m", "acknowledgements": acknowledgements})
    assert response.status_code == 404
    results = response.json()["results"]
    assert [result["kafka_code"] for result in results] == [3] * 7 + [42] + [3] * 992
    assert len(response.content) < 4 * len(response.request.content) + 64 * 1024
    assert cpu_seconds(gateway.pid) - used < MOST * produce_cpu_s


def test_a_problem_quotes_little_of_the_request(client: httpx.Client) -> None:
    response = post(client, FETCH, b'{"%b":1}' % (b"\x7f" * CALL))
    assert response.status_code == 422
    assert len(response.content) < 5000


def test_heartbeats_with_the_longest_lists_cost_the_coordinator_little(
    client: httpx.Client, service: Service, produce_cpu_s: float
) -> None:
    coordinator = service("group coordinator")
    names = [f"none-{number}" for number in range(1000)]
    for member in range(3):
        body = {"member_id": f"m{member}", "member_epoch": 0, "subscribed_topic_names": names}
        used = cpu_seconds(coordinator.pid)
        assert client.post("/v1/share-groups/names/heartbeat", json=body).status_code == 200
        assert cpu_seconds(coordinator.pid) - used < MOST * produce_cpu_s
    wide_topics = ["w1", "w2", "w3"]
    wide = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": wide_topics}
    for name in wide_topics:
        client.post("/v1/topics", json={"name": name, "partitions": 10_000})
    refused = client.post("/v1/share-groups/partitions/heartbeat", json=wide)
    assert (refused.status_code, refused.json()["limit"]) == (422, 20_000)


def test_members_with_long_lists_are_described_a_few_at_a_time(client: httpx.Client, topics: None) -> None:
    names = [f"none-{number}" for number in range(1000)]
    for member in range(25):
        body = {"member_id": f"m{member:02}", "member_epoch": 0, "subscribed_topic_names": names}
        assert client.post("/v1/share-groups/many/heartbeat", json=body).status_code == 200
    first = client.get("/v1/share-groups/many").json()
    assert (first["member_count"], len(first["members"])) == (25, 20)
    rest = client.get("/v1/share-groups/many", params={"page_token": first["next_page_token"]}).json()
    assert [member["member_id"] for member in rest["members"]] == [f"m{number}" for number in range(20, 25)]
    assert "next_page_token" not in rest
