"""A paused group: its fetches wait as if the topics were empty, and everything else of it goes on."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from sharequeue.stack.stack import Stack
from tests.event_source import EventSource
from tests.http.calls import HANG_S, LONG_MS, Gateway, good, ranges, wait_until, woken

EXPIRED = "sharequeue_delayed_share_fetch_expires_total"


def waiting(gateway: Gateway) -> float:
    return gateway.metrics()["sharequeue_waiting_fetches"]


def test_a_fetch_of_a_paused_group_waits_its_time_and_says_so(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_paused=True)
    gateway.produce(name, 1, 2)
    before = gateway.metrics()[EXPIRED]
    for fields in ({}, {"share_session_epoch": 0}, {"share_session_epoch": 1}, {"fetch_id": "f"}):
        topics = {} if fields.get("share_session_epoch") else {"topics": [name]}
        answer = gateway.fetch(name, **topics, max_wait_ms=200, **fields)
        assert (answer["batches"], answer["errors"], answer["paused"]) == ([], [], True)
    assert gateway.metrics()[EXPIRED] > before, "they wait"
    assert [name, True] in [
        [group["group_id"], group.get("paused")]
        for group in good(gateway.http.get("/v1/share-groups", params={"page_size": 10_000}))["groups"]
    ]
    gateway.configure(name, share_paused=False)
    answer = gateway.fetch(name, name)
    assert (ranges(answer), "paused" in answer) == (["0-1×1"], False)
    assert "paused" not in good(gateway.http.get(f"/v1/share-groups/{name}"))


def test_resume_wakes_a_fetch_and_a_stream_that_stayed_open(
    gateway: Gateway, shared_stack: Stack, background: ThreadPoolExecutor, name: str
) -> None:
    gateway.configure(name, share_paused=True)
    gateway.produce(name, 1)
    gateway.fetch(name, name)
    with ExitStack() as stack:
        source = EventSource(shared_stack.url, name, name, member_id="stream", window=1)
        stack.callback(source.cut)
        stack.enter_context(woken(gateway))
        wait_until(lambda: waiting(gateway) >= 1)
        fetch = background.submit(gateway.fetch, name, name, max_wait_ms=LONG_MS)
        wait_until(lambda: waiting(gateway) >= 2)
        gateway.produce(name, 2)
        assert good(gateway.http.get(f"/v1/share-groups/{name}"))["paused"]
        gateway.configure(name, share_paused=False)
        assert ranges(source.next().data) == ["0-0×1"]
        assert ranges(fetch.result(HANG_S)) == ["1-1×1"]


def test_records_that_are_held_and_delayed_go_on_in_a_pause(gateway: Gateway, name: str) -> None:
    gateway.produce(name, *range(5))
    assert gateway.acquire(name, name, max_records=4) == ["0-3×1"]
    gateway.configure(name, share_paused=True)
    assert gateway.settle(name, name, 0, 0, "renew") == "applied"
    assert gateway.settle(name, name, 0, 0, "accept") == "applied"
    assert gateway.settle(name, name, 1, 1, "release", delay_ms=1) == "applied"
    assert gateway.settle(name, name, 2, 2, "reject") == "applied"
    gateway.letters(f"dlq.{name}", 1)
    ended = ["1-1 AVAILABLE×1", "2-2 ARCHIVED×1", "3-3 ACQUIRED×1"]
    wait_until(lambda: (window := gateway.window(name, name))[0] == 1 and window[1][:3] == ended)
    assert gateway.fetch(name, name, acknowledgements=[])["paused"]
    (hold,) = good(gateway.http.get(f"/v1/share-groups/{name}/offsets"))["topics"][0]["partitions"]
    assert hold["holding"] == {}, "it has no end"
    gateway.configure(name, share_paused=False)
    assert gateway.acquire(name, name) == ["1-1×2", "4-4×1"]
