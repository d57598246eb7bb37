"""The guard of a gateway's calls where no request of a stack gets: before keys are known, and when deciding fails."""

import asyncio
import logging
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sharequeue_gateway.access.book import AccessBook
from sharequeue_gateway.http.access.guard import AccessGuard
from sharequeue_gateway.http.access.refused import Refused, acknowledge_others
from sharequeue_gateway.http.access_api import access_calls

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.access.columns import Access, Need
from sharequeue.protocol.access.keys import make_key, parse_key
from sharequeue.protocol.access.rights import ANONYMOUS, Rights
from sharequeue.protocol.errors import StorageError, TopicAuthorizationFailed
from sharequeue.protocol.messages.access import AccessResponse, Acl, StoredKey
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement, AcknowledgeRequest, ProduceTo
from sharequeue_http.application.endpoint import Call, Endpoint
from sharequeue_http.application.pace import Pace
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError

ROOT = Path(__file__).parents[2]
KEY = make_key(bytes(range(8)), bytes(range(32)))
HEADER = b"Bearer " + KEY.text.encode()


def knowledge(expires_at_ms: int | None, revision: int = 1) -> AccessResponse:
    """One key of User:a, and no rights."""
    key = StoredKey(key_id=KEY.key_id, digest=KEY.digest.hex(), principal="User:a", expires_at_ms=expires_at_ms)
    return AccessResponse(revision=revision, keys=[key], acls=[])


def new_guard(*, known: bool = True, required: bool = True, stale_ms: int = 60_000) -> tuple[AccessGuard, AccessBook]:
    book = AccessBook(None, ["User:root"])  # type: ignore[arg-type]  # nothing here asks the group coordinator
    if known:
        book.learn(knowledge(None))
    metadata: Any = SimpleNamespace(sure={})
    return AccessGuard(book, metadata, Clock(), required=required, stale_ms=stale_ms), book


def call_of(guard: AccessGuard, api: Api, *authorization: bytes, path: str = "/", query: bytes = b"") -> Any:
    headers = [(b"authorization", sent) for sent in authorization]
    exchange: Any = SimpleNamespace(headers=headers, path=path, query=query)
    return guard.caller(api, exchange, dict(headers))


def test_no_call_with_a_key_is_served_before_the_keys_are_known() -> None:
    guard, _ = new_guard(known=False)
    with pytest.raises(ApiError) as refused:
        call_of(guard, apis.LIST_TOPICS, HEADER)
    assert (refused.value.status, refused.value.code) == (503, "COORDINATOR_NOT_AVAILABLE")
    assert guard.fault() is not None
    assert call_of(guard, apis.LIVEZ, HEADER).limited is False


def test_a_key_ends_when_it_says_and_when_it_is_removed() -> None:
    guard, book = new_guard()
    caller = call_of(guard, apis.LIST_TOPICS, HEADER)
    assert (caller.principal, caller.key_id) == ("User:a", KEY.key_id)
    now_ms = Clock().now_ms()
    assert book.key_holds(caller, now_ms)
    assert book.principal_holds("User:a", now_ms)
    book.learn(knowledge(now_ms - 1, revision=2))
    with pytest.raises(ApiError) as refused_later:  # its body came slowly
        asyncio.run(guard.check(caller, apis.LIST_TOPICS, {}, None))
    assert refused_later.value.status == 401
    assert not book.key_holds(caller, now_ms)
    assert not book.principal_holds("User:a", now_ms)
    with pytest.raises(ApiError) as refused:
        call_of(guard, apis.LIST_TOPICS, HEADER)
    assert refused.value.status == 401


def test_a_failure_while_deciding_is_a_refusal() -> None:
    def fails(_: object, __: object) -> list[str]:
        raise KeyError("no such parameter")

    needs = (Need("READ", "TOPIC", fails),)
    row = Api("broken", "GET /v1/broken", "A call.", tag="Topics", access=Access(needs))
    guard, _ = new_guard()
    with pytest.raises(ApiError) as refused:
        asyncio.run(guard.check(call_of(guard, row, HEADER), row, {}, None))
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("stale_ms", "silent_s", "stale"), [(60_000, 59, False), (60_000, 61, True), (-1, 10**6, False)]
)
def test_a_gateway_knows_how_old_its_knowledge_is(stale_ms: int, silent_s: float, stale: bool) -> None:
    guard, book = new_guard(stale_ms=stale_ms)
    book.heard_s = time.monotonic() - silent_s
    assert guard.stale() == stale


def test_another_name_is_decided_when_it_is_looked_up() -> None:
    guard, book = new_guard()
    book.rights = Rights(
        [
            Acl(principal="User:a", operation="READ", resource_type="GROUP", resource_name="g"),
            Acl(principal="User:a", operation="READ", resource_type="TOPIC", resource_name="t"),
        ]
    )
    request = apis.FETCH_RECORDS.request(topics=["t", "u"])
    caller = call_of(guard, apis.FETCH_RECORDS, HEADER)
    refused = asyncio.run(guard.check(caller, apis.FETCH_RECORDS, {"group": "g"}, request))
    assert list(refused) == ["u"]
    assert refused.get("t") is None
    assert refused.get("v").status == 403
    assert "t" not in refused


@pytest.mark.parametrize(
    ("api", "request_", "most"),
    [
        pytest.param(apis.FETCH_RECORDS, apis.FETCH_RECORDS.request(topics=["t"]), 6, id="fetch"),
        pytest.param(apis.PRODUCE_RECORDS, apis.PRODUCE_RECORDS.request(records=[]), 6, id="produce"),
    ],
)
def test_a_key_that_was_used_before_costs_few_functions(api: Api, request_: Any, most: int) -> None:
    guard, book = new_guard()
    book.rights = Rights((), ["User:a"])
    guard._metadata.sure["t"] = 0  # type: ignore[index]  # the topic exists
    path, called = {"group": "g", "topic": "t"}, []

    def serve() -> None:
        caller = call_of(guard, api, HEADER)
        with pytest.raises(StopIteration):
            guard.check(caller, api, path, request_).send(None)  # type: ignore[attr-defined]
        guard.served(caller, api, Call(SimpleNamespace(), path, b"", request_, ""), {})  # type: ignore[arg-type]

    serve()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code) if event == "call" else None)
    try:
        serve()
    finally:
        sys.setprofile(None)
    product = (f"{ROOT}/sharequeue", f"{ROOT}/services")
    ours = [code.co_name for code in called if code.co_filename.startswith(product)]
    assert len(ours) <= most, ours


def test_a_key_with_one_changed_character_is_found_by_its_checksum() -> None:
    for place in range(len(KEY.text)):
        for other in "0f":
            changed = KEY.text[:place] + other + KEY.text[place + 1 :]
            assert changed == KEY.text or parse_key(changed) is None


def test_the_login_of_a_proxy_is_no_key_where_none_is_required() -> None:
    basic = b"Basic dXNlcjpwYXNz"
    guard, _ = new_guard(required=False)
    assert call_of(guard, apis.LIST_TOPICS, basic).principal == ANONYMOUS
    strict, _ = new_guard()
    for asks, api in ((guard, apis.LIST_KEYS), (strict, apis.LIST_TOPICS)):
        with pytest.raises(ApiError) as refused:
            call_of(asks, api, basic)
        assert refused.value.status == 401


def test_a_produce_with_acknowledgements_needs_fresh_knowledge() -> None:
    guard, book = new_guard()
    book.rights = Rights((), ["User:a"])
    caller = call_of(guard, apis.ACKNOWLEDGE_RECORDS, HEADER)
    book.heard_s = time.monotonic() - 61
    entry = Acknowledgement(topic="t", partition=0, first_offset=0, last_offset=0, type="accept")
    alone = AcknowledgeRequest(member_id="m", acknowledgements=[entry])
    assert not asyncio.run(guard.check(caller, apis.ACKNOWLEDGE_RECORDS, {"group": "g"}, alone))
    alone.produce = [ProduceTo(topic="t", records=[])]
    with pytest.raises(ApiError) as refused:
        asyncio.run(guard.check(caller, apis.ACKNOWLEDGE_RECORDS, {"group": "g"}, alone))
    assert refused.value.status == 503


@pytest.mark.parametrize(
    ("fault", "outcomes"),
    [
        pytest.param(None, [None], id="served"),
        pytest.param(StorageError("no answer came", definite=False), ["unknown"], id="unknown"),
        pytest.param(StorageError("not begun", definite=True), [], id="nothing happened"),
        pytest.param(KeyError("a fault of ours"), ["unknown"], id="fault"),
        pytest.param(TopicAuthorizationFailed("no right"), ["refused"], id="refused"),
        pytest.param(
            TopicAuthorizationFailed("behind a part", definite=False), ["unknown"], id="refused behind a part"
        ),
    ],
)
def test_a_change_that_may_have_happened_is_a_line_of_the_log(
    fault: Exception | None, outcomes: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_: Call) -> Empty:
        if fault is not None:
            raise fault
        return Empty()

    guard, book = new_guard()
    book.rights = Rights((), ["User:a"])
    endpoint = Endpoint(apis.DELETE_TOPIC, handler, 1000, None, False, None, None, guard, Pace())
    headers = {b"authorization": HEADER}
    exchange: Any = SimpleNamespace(headers=list(headers.items()), path="/", query=b"", client=("127.0.0.1", 1))
    with caplog.at_level(logging.INFO):
        asyncio.run(endpoint._answer(exchange, {"topic": "t"}, headers, "id"))
    lines = [vars(record)["fields"] for record in caplog.records if record.message == "audit"]
    assert [line.get("outcome") for line in lines] == outcomes


def test_a_change_of_rights_while_the_body_comes_leaves_the_request_as_it_is() -> None:
    """Only where the knowledge is too old, a fetch with acknowledgements acquires nothing."""
    guard, book = new_guard()
    caller = call_of(guard, apis.FETCH_RECORDS, HEADER)
    book.learn(knowledge(None, revision=2))
    book.rights = Rights((), ["User:a"])
    entry = Acknowledgement(topic="t", partition=0, first_offset=0, last_offset=0, type="accept")
    request = apis.FETCH_RECORDS.request(topics=["t"], member_id="m", max_records=5, acknowledgements=[entry])
    for heard_s, most in ((book.heard_s, 5), (float("-inf"), 0)):
        book.heard_s = heard_s
        asyncio.run(guard.check(caller, apis.FETCH_RECORDS, {"group": "g"}, request))
        assert request.max_records == most


def test_a_key_is_noted_once_between_two_reports() -> None:
    _, book = new_guard()
    assert [book.holder_of(HEADER, lambda at_ms=at_ms: at_ms) is None for at_ms in (7, 9)] == [False, False]
    assert book._uses == {KEY.key_id: 7}


def test_a_key_in_the_place_of_a_name_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    guard, _ = new_guard(required=False)
    request = apis.FETCH_RECORDS.request(topics=[KEY.text])
    with caplog.at_level(logging.INFO):
        asyncio.run(guard.check(call_of(guard, apis.FETCH_RECORDS), apis.FETCH_RECORDS, {"group": "g"}, request))
    assert caplog.records
    assert KEY.text not in str([vars(record) for record in caplog.records])


def test_a_right_that_changes_during_the_write_mixes_no_results() -> None:
    refusal = TopicAuthorizationFailed("no right")
    now_refused = {"x"}
    refused = Refused({"x": refusal}, lambda name: refusal if name in now_refused else None)

    async def acknowledge(_: str, request: LeaderAcknowledgeRequest) -> list[AcknowledgementResult]:
        now_refused.symmetric_difference_update({"x", "a"})
        return [AcknowledgementResult(status="applied", detail=entry.topic) for entry in request.acknowledgements]

    entries = [Acknowledgement(topic=name, partition=0, first_offset=0, last_offset=0, type="accept") for name in "axb"]
    request = LeaderAcknowledgeRequest(member_id="m", acknowledgements=entries)
    results = asyncio.run(acknowledge_others("g", request, refused, acknowledge))
    assert [(result.status, result.detail) for result in results] == [
        ("applied", "a"),
        ("failed", "no right"),
        ("applied", "b"),
    ]


def test_a_gateway_without_keys_on_a_network_changes_none() -> None:
    """Whoever reached it could make a key that others take."""
    coordinator: Any = None
    for api, handler in access_calls(coordinator, closed=True):
        with pytest.raises(ApiError) as refused:
            asyncio.run(handler(Call(coordinator, {}, b"", None, "")))
        assert (refused.value.status, refused.value.code) == (403, "CLUSTER_AUTHORIZATION_FAILED"), api
