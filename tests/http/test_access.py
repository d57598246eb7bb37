"""A gateway that asks for keys: who may call, what each principal may do, and what it sees."""

import base64
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sharequeue.openapi.examples import examples_of
from sharequeue.protocol import apis
from sharequeue.protocol.access.keys import make_key, parse_key
from sharequeue.stack.stack import Stack
from sharequeue_http.forms.api import Api, path_of
from tests.http.access import ADMIN, SETTINGS, Access, caller
from tests.http.calls import Gateway, acknowledge_range, good, outcomes, problem, wait_until

CALLS = {
    row.operation_id: row
    for row in vars(apis).values()
    if isinstance(row, Api) and not row.internal and not row.access.open
}
BODIES: dict[str, Any] = {
    "createKey": {"principal": "User:made"},
    "rotateKey": {},
    "addAcls": {
        "acls": [{"principal": "User:made", "operation": "READ", "resource_type": "TOPIC", "resource_name": "made"}]
    },
}
"""Of calls whose example would end the key of the test itself, or name one that is not there."""
CODES = {29: "TOPIC", 30: "GROUP", 31: "CLUSTER", 53: "TRANSACTIONAL_ID"}
_users = itertools.count()

As = Callable[..., Gateway]


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return SETTINGS


@pytest.fixture
def user() -> str:
    return f"User:u{next(_users)}"


@pytest.fixture
def mine(stack: Stack, access: Access, user: str) -> Iterator[Gateway]:
    """The gateway, called by a principal that has no rights yet."""
    with caller(stack, access.key(user)) as gateway:
        yield gateway


# Every call


@pytest.fixture(scope="module")
def nobody(stack: Stack, access: Access) -> Iterator[Gateway]:
    with caller(stack, access.key("User:nobody")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def keyless(stack: Stack) -> Iterator[Gateway]:
    with caller(stack, None) as gateway:
        yield gateway


def status_of(gateway: Gateway, row: Api) -> tuple[int, dict[str, Any]]:
    """The status and the problem of one call, as its first example makes it."""
    example = None if row.operation_id in BODIES else next(examples_of(row), None)
    url = path_of(row, **example.path) if example else row.path.replace("{key_id}", "0" * 16)
    options: dict[str, Any] = {"params": example.query, "headers": example.headers} if example else {}
    if row.operation_id in BODIES:
        options = {"json": BODIES[row.operation_id]}
    elif example is not None and example.body is not None:
        options["json"] = example.body
    elif example is not None:
        options["content"] = example.raw
    with gateway.http.stream(row.method, url, **options) as answer:
        is_problem = answer.headers.get("content-type") == "application/problem+json"
        if is_problem:
            answer.read()
        return answer.status_code, answer.json() if is_problem else {}


@pytest.mark.parametrize("operation", CALLS)
def test_each_call_needs_a_key_and_its_rights(
    operation: str, keyless: Gateway, nobody: Gateway, admin: Gateway
) -> None:
    row = CALLS[operation]
    status, refusal = status_of(keyless, row)
    assert (status, refusal["code"], refusal["kafka_code"]) == (401, "SASL_AUTHENTICATION_FAILED", 58)
    status, refusal = status_of(nobody, row)
    if any(not need.each for need in row.access.needs) and operation != "commitTransaction":
        assert status == 403
        assert refusal["code"] == f"{CODES[refusal['kafka_code']]}_AUTHORIZATION_FAILED"
        assert refusal["detail"].startswith("User:nobody needs the right ")
    else:
        assert status not in (401, 403)
    status, refusal = status_of(admin, row)
    assert status not in (401, 403), refusal
    assert status < 500, refusal


def test_operations_and_pages_are_open(keyless: Gateway, admin: Gateway) -> None:
    for path in ("/livez", "/readyz", "/docs", "/ui/groups/g", "/ui/app.js", "/openapi.json"):
        assert keyless.http.get(path).status_code == 200
    told = good(keyless.http.get("/readyz"))["dependencies"]["authentication"]
    assert told.startswith("required; keys and rights of revision ")
    assert "sharequeue_anonymous_calls" in admin.http.get("/metrics").text


# Keys


def test_keys_that_do_not_hold_are_answered_alike(stack: Stack, access: Access, user: str) -> None:
    revoked = access.key(user)
    access.revoke(revoked)
    access.until_known()
    ended = access.key(user, expires_at_ms=4_000_000_000_000)
    stranger = make_key(bytes(8), bytes(32)).text
    forged = make_key(bytes.fromhex(ended.split("_")[1]), bytes(32)).text
    details = set()
    for sent in (
        *("", "Bearer", "Basic x", f"Basic {ended}", ended, f"Bearer {ended[:-1]}", f"Bearer {ended} x"),
        *(f"Bearer {key}" for key in (revoked, stranger, forged, ended.upper(), "é" * 100, "sq_" * 1000)),
    ):
        answer = httpx.get(f"{stack.url}/v1/topics", headers={"Authorization": sent.encode()}, verify=False)
        details.add(problem(answer, 401, "SASL_AUTHENTICATION_FAILED", 58)["detail"])
        assert answer.headers["www-authenticate"] == "Bearer"
    details.add(
        problem(httpx.get(f"{stack.url}/v1/topics", verify=False), 401, "SASL_AUTHENTICATION_FAILED", 58)["detail"]
    )
    assert len(details) == 1
    for scheme in ("bearer", "BEARER", "Bearer "):
        good(httpx.get(f"{stack.url}/v1/topics", headers={"Authorization": f"{scheme} {ended}"}, verify=False))


def test_two_authorizations_are_refused(stack: Stack, access: Access, user: str) -> None:
    header = ("Authorization", f"Bearer {access.key(user)}")
    problem(httpx.get(f"{stack.url}/v1/topics", headers=[header, header], verify=False), 400, "INVALID_REQUEST", 42)


def test_a_key_in_a_url_is_refused_and_never_shown(
    stack: Stack, access: Access, admin: Gateway, user: str, data_dir: Path
) -> None:
    key = access.key(user)
    for path in (
        *(f"/v1/topics?token={key}", f"/v1/topics/{key}", f"/v1/topics?x=sq%5F{key[3:]}", f"/v1/topics/sq%5f{key[3:]}"),
        f"/readyz?strict={key}",
    ):
        answer = httpx.get(stack.url + path, headers={"Authorization": f"Bearer {key}"}, verify=False)
        assert key[20:] not in answer.text
        assert problem(answer, 400, "INVALID_REQUEST", 42)["detail"].startswith("the URL has a key")
    httpx.get(f"{stack.url}/v1/topics", headers={"Authorization": f"Bearer {key[:-1]}x"}, verify=False)
    in_id = {"Authorization": f"Bearer {key}", "X-Request-Id": key}
    assert key not in httpx.get(f"{stack.url}/v1/topics/{user[5:]}", headers=in_id, verify=False).text
    admin.configure(user[5:], errors_deadletterqueue_consumer_group=key)
    nowhere = httpx.get(f"{stack.url}/nowhere/{key}", verify=False)
    assert problem(nowhere, 404, "UNKNOWN_PATH", 42)["detail"].startswith("there is nothing at /nowhere/sq_…;")
    written = "".join(file.read_text() for file in (data_dir / "logs").iterdir())
    assert key[20:80] not in written


def test_a_change_is_a_line_of_the_log_and_holds_no_secret(admin: Gateway, data_dir: Path, name: str) -> None:
    made = good(admin.http.post("/v1/keys", json={"principal": f"User:{name}"}), 201)
    admin.create_topic(name)
    admin.configure(name, share_delivery_count_limit="3")
    admin.produce(name, 1)
    admin.fetch(name, name, member="fetches")
    for epoch in (0, -1):
        heartbeat = {"member_id": "joins", "member_epoch": epoch, "subscribed_topic_names": [name]}
        good(admin.http.post(f"/v1/share-groups/{name}/heartbeat", json=heartbeat))
    assert admin.http.delete(f"/v1/share-groups/{name}/members/fetches").status_code == 204
    good(admin.http.delete(f"/v1/keys/{made['key_id']}"))
    problem(admin.http.delete("/v1/topics/no-such-topic"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    text = "".join(file.read_text() for file in (data_dir / "logs").iterdir())
    lines = [json.loads(line) for line in text.splitlines() if '"audit"' in line]
    found = [line for line in lines if name in str(line) or made["key_id"] in str(line)]
    expected = [
        "createKey",
        "createTopic",
        "updateShareGroupConfig",
        "shareGroupHeartbeat",
        "leaveShareGroup",
        "revokeKey",
    ]
    assert [line["operation"] for line in found] == expected
    assert {line["principal"] for line in found} == {ADMIN}
    assert {line["address"] for line in found} == {"127.0.0.1"}
    assert all(line["request_id"] for line in found)
    assert '"share.delivery.count.limit":"3"' in found[2]["request"]
    assert not any("no-such-topic" in str(line) for line in lines)
    assert made["key"] not in text


def test_a_refused_change_is_a_line_of_the_log_and_its_repeats_are_counted(
    mine: Gateway, data_dir: Path, user: str, name: str
) -> None:
    for number in range(3):
        problem(mine.http.delete(f"/v1/topics/{name}-{number}"), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    problem(mine.http.post("/v1/keys", json={"principal": user}), 403, "CLUSTER_AUTHORIZATION_FAILED", 31)
    problem(mine.http.get(f"/v1/topics/{name}"), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    text = "".join(file.read_text() for file in (data_dir / "logs").iterdir())
    lines = [json.loads(line) for line in text.splitlines() if '"audit"' in line]
    first, second = [line for line in lines if line["principal"] == user]
    assert (first["operation"], first["outcome"], first["path"]) == ("deleteTopic", "refused", {"topic": f"{name}-0"})
    assert first["cause"] == f"{user} needs the right DELETE on the topic '{name}-0'"
    assert (second["operation"], second["outcome"], second["address"]) == ("createKey", "refused", "127.0.0.1")
    assert first["request_id"]


def test_the_log_has_what_was_before_a_change_and_after_it(
    access: Access, admin: Gateway, data_dir: Path, user: str, name: str
) -> None:
    admin.create_topic(name)
    good(admin.http.patch(f"/v1/topics/{name}", json={"partitions": 3, "config": {"retention.ms": "60000"}}))
    admin.configure(name, share_delivery_count_limit="3")
    admin.configure(name, share_delivery_count_limit="4")
    access.allow(user, "READ", "TOPIC", name)
    good(admin.http.delete("/v1/acls", params={"principal": user}))
    text = "".join(file.read_text() for file in (data_dir / "logs").iterdir())
    lines = [line for line in map(json.loads, text.splitlines()) if name in str(line)]
    audited = {line["request_id"] for line in lines if line["message"] == "audit"} | {
        line["request_id"] for line in map(json.loads, text.splitlines()) if line.get("operation") == "removeAcls"
    }
    (topic,) = [line for line in lines if line["message"] == "topic changed"]
    assert (topic["before"]["partitions"], topic["after"]["partitions"]) == (1, 3)
    assert (topic["before"]["config"], topic["after"]["config"]) == ({}, {"retention.ms": "60000"})
    first, second = [line for line in lines if line["message"] == "group settings changed"]
    limit = "share.delivery.count.limit"
    assert (first["before"], second["before"], second["after"]) == ({}, {limit: "3"}, {limit: "4"})
    (removed,) = [line for line in lines if line["message"] == "rights removed"]
    assert [right["principal"] for right in json.loads(removed["acls"])] == [user]
    assert {line["request_id"] for line in (topic, first, second, removed)} <= audited


def test_a_revoked_key_is_refused_within_seconds(stack: Stack, access: Access, user: str) -> None:
    first, second = access.key(user), access.key(user)
    with caller(stack, first) as old, caller(stack, second) as new:
        good(old.http.get("/v1/topics"))
        access.revoke(first)
        wait_until(lambda: old.http.get("/v1/topics").status_code == 401, 5)
        good(new.http.get("/v1/topics"))


def test_the_use_of_a_key_is_no_call_of_its_own(access: Access, mine: Gateway) -> None:
    key = parse_key(mine.http.headers["authorization"].partition(" ")[2])
    assert key is not None
    for _ in range(20):
        good(mine.http.get("/v1/topics"))
    assert access.uses()[key.key_id] is None


# Rights


def test_a_missing_topic_is_answered_as_one_that_exists(admin: Gateway, mine: Gateway, name: str) -> None:
    admin.create_topic(name)
    for call in (
        lambda topic: mine.http.get(f"/v1/topics/{topic}"),
        lambda topic: mine.http.delete(f"/v1/topics/{topic}"),
        lambda topic: mine.http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": 1}]}),
        lambda topic: mine.http.get(f"/v1/topics/{topic}/partitions/0/records"),
        lambda topic: mine.http.get(f"/v1/topics/{topic}/partitions/7/records"),
        lambda topic: mine.http.post("/v1/topics", json={"name": topic}),
    ):
        there = problem(call(name), 403, "TOPIC_AUTHORIZATION_FAILED", 29)["detail"]
        away = problem(call("no-such-topic"), 403, "TOPIC_AUTHORIZATION_FAILED", 29)["detail"]
        assert there.replace(name, "no-such-topic") == away


def test_a_produce_creates_a_topic_with_the_right_to_create(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    access.allow(user, "WRITE", "TOPIC", name, "PREFIXED")
    body = {"records": [{"value": 1}]}
    refusal = problem(mine.http.post(f"/v1/topics/{name}/records", json=body), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    assert refusal["detail"] == f"{user} needs the right CREATE on the topic {name!r}"
    assert admin.http.get(f"/v1/topics/{name}").status_code == 404
    access.allow(user, "CREATE", "TOPIC", f"{name}-a", "PREFIXED")
    good(mine.http.post(f"/v1/topics/{name}-a/records", json=body))
    assert mine.http.post(f"/v1/topics/{name}-b/records", json=body).status_code == 403
    access.allow(user, "CREATE", "CLUSTER", "kafka-cluster")
    good(mine.http.post(f"/v1/topics/{name}-b/records", json=body))


def test_a_fetch_serves_the_topics_that_its_caller_may_read(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    hidden = f"{name}-hidden"
    admin.produce(name, 1, 2)
    admin.produce(hidden, 3)
    body = {"topics": [name, hidden, "no-such-topic"], "member_id": "m1", "max_wait_ms": 0}
    admin.configure(name, share_auto_offset_reset="earliest")
    problem(mine.try_fetch(name, name), 403, "GROUP_AUTHORIZATION_FAILED", 30)
    access.allow(user, "READ", "GROUP", name)
    problem(mine.try_fetch(name, name), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    access.allow(user, "READ", "TOPIC", name)
    wait_until(lambda: mine.try_fetch(name, name, max_records=0).status_code == 200)
    answer = good(mine.http.post(f"/v1/share-groups/{name}/fetch", json=body))
    assert [batch["topic"] for batch in answer["batches"]] == [name]
    assert {(error["topic"], error["kafka_code"]) for error in answer["errors"]} == {
        (hidden, 29),
        ("no-such-topic", 29),
    }
    accepts = [acknowledge_range(topic, 0, 0, "accept") for topic in (hidden, name, "no-such-topic")]
    assert outcomes(mine.try_acknowledge(name, accepts)) == [29, "applied", 29]
    whole = mine.http.post(
        f"/v1/share-groups/{name}/acknowledge",
        json={"member_id": "m1", "acknowledgements": accepts, "atomic": True},
    )
    problem(whole, 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    beside = {"topics": [name], "member_id": "m1", "max_wait_ms": 0, "acknowledgements": accepts}
    results = good(mine.http.post(f"/v1/share-groups/{name}/fetch", json=beside))["acknowledgement_results"]
    assert [result.get("kafka_code", result["status"]) for result in results] == [29, "ignored", 29]


def test_a_session_serves_what_its_caller_may_still_read(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    other = f"{name}-other"
    for topic in (name, other):
        admin.create_topic(topic)
    access.allow(user, "READ", "GROUP", name)
    right = access.allow(user, "READ", "TOPIC", name, "PREFIXED")

    def fetch(epoch: int, **fields: Any) -> dict[str, Any]:
        body = {"member_id": "m1", "share_session_epoch": epoch, "max_wait_ms": 0, **fields}
        return dict(good(mine.http.post(f"/v1/share-groups/{name}/fetch", json=body)))

    assert fetch(0, topics=[name, other])["errors"] == []
    access.allow(user, "READ", "TOPIC", name)
    access.withdraw(right)
    admin.produce(other, 1)
    answer = fetch(1)
    assert answer["batches"] == []
    assert [(error["topic"], error["kafka_code"]) for error in answer["errors"]] == [(other, 29)]
    access.allow(user, "READ", "TOPIC", other)
    assert fetch(2)["errors"] == []


def test_settling_and_producing_is_refused_whole(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    admin.configure(name, share_auto_offset_reset="earliest")
    admin.produce(name, 1)
    access.allow(user, "READ", "GROUP", name)
    access.allow(user, "READ", "TOPIC", name)
    mine.fetch(name, name)
    body = {
        "member_id": "m1",
        "acknowledgements": [acknowledge_range(name, 0, 0, "accept")],
        "produce": [{"topic": f"{name}-out", "records": [{"value": 1}]}],
    }
    url = f"/v1/share-groups/{name}/acknowledge"
    problem(mine.http.post(url, json=body), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    access.allow(user, "WRITE", "TOPIC", f"{name}-out")
    problem(mine.http.post(url, json=body), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    assert admin.http.get(f"/v1/topics/{name}-out").status_code == 404
    access.allow(user, "CREATE", "TOPIC", f"{name}-out")
    good(mine.http.post(url, json=body))


def test_a_page_of_topics_or_groups_names_nothing_that_its_caller_may_not_see(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    """Not in its token either: the entries before, between and behind those that it may see are hidden."""
    names = [f"{name}-{letter}" for letter in "abcdefg"]
    for topic in names:
        admin.create_topic(topic)
        admin.fetch(topic, topic)
    for kind in ("TOPIC", "GROUP"):
        for seen in (names[1], names[3], names[4]):
            access.allow(user, "DESCRIBE", kind, seen)
    for url, place, member in (("/v1/topics", "topics", "name"), ("/v1/share-groups", "groups", "group_id")):
        for size in (1, 2, 3, 1000):
            found, tokens, token = [], [], {}
            while True:
                page = good(mine.http.get(url, params={"page_size": size, **token}))
                found.append([entry[member] for entry in page[place]])
                if "next_page_token" not in page:
                    break
                tokens.append(page["next_page_token"])
                token = {"page_token": tokens[-1]}
            assert [each for page in found for each in page] == [names[1], names[3], names[4]]
            assert [len(each) for each in found] == {1: [1, 1, 1], 2: [2, 1]}.get(size, [3])
            assert set(tokens) <= {names[1], names[3]}


def test_no_page_token_says_where_a_page_ended(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    """Each page of one entry ends at a name that its caller may not see, but for the last."""
    hidden = f"{name}-hidden", f"{name}-a"
    for topic in (*hidden, f"{name}-seen"):
        admin.configure(name, share_auto_offset_reset="earliest")
        admin.produce(topic, 1)
        admin.fetch(name, topic)
    admin.fetch(hidden[0], f"{name}-seen")
    access.allow(user, "DESCRIBE", "GROUP", name)
    access.allow(user, "DESCRIBE", "TOPIC", f"{name}-seen")
    for url, place in ((f"/v1/share-groups/{name}/in-flight", "partitions"), ("/v1/reports/activity", "activity")):
        found, tokens, page = [], [], {"next_page_token": None}
        while "next_page_token" in page:
            token = {"page_token": tokens[-1]} if tokens else {}
            page = good(mine.http.get(url, params={"page_size": 1, **token}))
            found += page[place]
            tokens += [page["next_page_token"]] if "next_page_token" in page else []
        assert {entry["topic"] for entry in found} == {f"{name}-seen"}
        assert len(tokens) >= 2
        assert not [each for each in tokens if name.encode() in base64.urlsafe_b64decode(each)]


def test_lists_show_what_their_caller_may_describe(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    hidden = f"{name}-hidden"
    for topic in (name, hidden):
        admin.create_topic(topic)
        admin.fetch(name, topic)
        admin.fetch(hidden, topic)
    assert good(mine.http.get("/v1/topics"))["topics"] == []
    assert good(mine.http.get("/v1/share-groups"))["groups"] == []
    access.allow(user, "DESCRIBE", "TOPIC", name)
    access.allow(user, "DESCRIBE", "GROUP", name)
    assert [topic["name"] for topic in good(mine.http.get("/v1/topics"))["topics"]] == [name]
    assert [group["group_id"] for group in good(mine.http.get("/v1/share-groups"))["groups"]] == [name]
    offsets = good(mine.http.get(f"/v1/share-groups/{name}/offsets"))["topics"]
    assert [topic["topic"] for topic in offsets] == [name]
    assert [part["topic"] for part in mine.in_flight(name)] == [name]
    problem(mine.http.get(f"/v1/share-groups/{hidden}/offsets"), 403, "GROUP_AUTHORIZATION_FAILED", 30)
    assert len(good(admin.http.get(f"/v1/share-groups/{name}/offsets"))["topics"]) == 2
    access.allow(user, "READ", "GROUP", name)
    beat = {"member_id": "m1", "subscribed_topic_names": [name, hidden]}
    url = f"/v1/share-groups/{name}"
    problem(mine.http.post(f"{url}/heartbeat", json=beat), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    good(admin.http.post(f"{url}/heartbeat", json=beat))
    assert good(mine.http.get(url))["members"][0]["subscribed_topic_names"] == [name]
    assert good(admin.http.get(url))["members"][0]["subscribed_topic_names"] == [name, hidden]


def test_what_is_due_is_listed_of_topics_that_its_caller_may_read(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    hidden = f"{name}-hidden"
    for topic, count in ((hidden, 25), (name, 1)):
        records = [{"value": 1, "delay_ms": 86_400_000} for _ in range(count)]
        good(admin.http.post(f"/v1/topics/{topic}/scheduled", json={"records": records}))
    access.allow(user, "DESCRIBE", "TOPIC", hidden)
    access.allow(user, "READ", "TOPIC", name)
    page = good(mine.http.get("/v1/scheduled", params={"page_size": 2}))
    assert page["due"] == []  # a page looks ten times, at two records, and says that others follow
    page = good(mine.http.get("/v1/scheduled", params={"page_size": 2, "page_token": page["next_page_token"]}))
    assert [due["topic"] for due in page["due"]] == [name]
    problem(mine.http.get("/v1/scheduled", params={"page_token": "x"}), 422, "INVALID_REQUEST", 42)
    assert len(good(admin.http.get("/v1/scheduled"))["due"]) >= 26


def test_offsets_of_topics_that_a_caller_may_not_read_stay(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    hidden = f"{name}-hidden"
    for topic in (name, hidden):
        admin.produce(topic, 1)
        admin.fetch(name, topic, member="a", max_records=0)
    access.allow(user, "ALTER", "GROUP", name)
    access.allow(user, "READ", "TOPIC", name)
    answer = good(mine.try_reset(name, "latest", name, hidden, force=True))
    assert [topic["topic"] for topic in answer["topics"]] == [name]
    assert [(error["topic"], error["kafka_code"]) for error in answer["errors"]] == [(hidden, 29)]
    problem(mine.try_reset(name, "latest", force=True), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    problem(mine.try_delete_offsets(name, hidden, force="true"), 403, "TOPIC_AUTHORIZATION_FAILED", 29)


def test_dead_letters_belong_to_who_may_read_the_group(
    access: Access, admin: Gateway, mine: Gateway, user: str, name: str
) -> None:
    admin.configure(name, share_auto_offset_reset="earliest", errors_deadletterqueue_copy_record_enable="true")
    admin.produce(name, 1, 2)
    admin.fetch(name, name)
    admin.settle(name, name, 0, 1, "reject")
    admin.letters(f"dlq.{name}", 2)
    url = f"/v1/topics/dlq.{name}/partitions/0/records"
    problem(mine.http.get(url), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    access.allow(user, "READ", "GROUP", name)
    assert len(good(mine.http.get(url))["records"]) == 2
    assert [topic["name"] for topic in good(mine.http.get("/v1/topics"))["topics"]] == [f"dlq.{name}"]
    redrive = f"/v1/share-groups/{name}/dead-letters/redrive"
    problem(mine.http.post(redrive, json={"topic": name}), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    answer = good(mine.http.post(redrive, json={}))
    assert (answer["matched"], answer["redriven"], answer["unauthorized_count"]) == (2, 0, 2)
    access.allow(user, "WRITE", "TOPIC", name)
    answer = good(mine.http.post(redrive, json={}))
    assert (answer["redriven"], answer.get("unauthorized_count")) == (2, None)
    access.allow(user, "ALTER", "GROUP", name)
    config = {"config": {"errors.deadletterqueue.topic.name": f"{name}-mine"}}
    settings = f"/v1/share-groups/{name}/config"
    problem(mine.http.patch(settings, json=config), 403, "CLUSTER_AUTHORIZATION_FAILED", 31)
    good(mine.http.patch(settings, json={"config": {"share.isolation.level": "read_committed"}}))
