"""A flood of wrong tokens: their refusals wait, in a bounded number, and a caller with the right one never does."""

import contextlib
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sharequeue.protocol.messages.operations import Empty
from sharequeue_http.answer import Answer
from sharequeue_http.application import pace
from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call
from sharequeue_http.application.pace import BURST_S, MOST_S, PER_S, Pace
from sharequeue_http.forms.api import Api
from tests.http.calls import wait_until
from tests.sharequeue_http.edge_server import EdgeServer, edge_server
from tests.sharequeue_http.raw import Raw, head

RIGHT = head("GET /secret", "Authorization: Bearer right")
WRONG = head("GET /secret", "Authorization: Bearer wrong")
LONG = head("GET /secret", "Authorization: Bearer wrong", *(f"X-{n}: {'y' * 1000}" for n in range(50)))
UPLOAD = head("POST /secret", "Authorization: Bearer wrong", "Content-Length: 1000000") + b"x" * 200_000
CROWD = 50


def secret(app: App) -> None:
    async def handler(_: Call) -> Answer:
        return Answer(b"served", headers=())

    for method in "GET", "POST":
        api = Api(method, f"{method} /secret", "", response=Empty, tag="Tests", raw_body=method == "POST")
        serve(app, api, handler, cluster_token="right", protect=True)


@contextlib.contextmanager
def crowd(server: EdgeServer, size: int, request: bytes = WRONG) -> Iterator[list[Raw]]:
    """Connections that have sent a wrong token each."""
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(Raw(server.port)) for _ in range(size)]
        for line in lines:
            line.send(request)
        yield lines


def is_served(server: EdgeServer) -> bool:
    with Raw(server.port) as line:
        line.send(RIGHT)
        return line.answer().status == 200


def turns_of_a_server() -> Pace:
    turns = Pace()
    turns.most = 4000
    return turns


def test_refusals_have_turns() -> None:
    turns, now_s = turns_of_a_server(), 1000.0
    waits = [turns.next_s(now_s) for _ in range(int(PER_S * (BURST_S + MOST_S)))]
    assert waits[: int(PER_S * BURST_S)] == [0.0] * int(PER_S * BURST_S)
    later = [wait_s for wait_s in waits if wait_s]
    assert later == sorted(later)
    assert max(later) <= MOST_S
    assert turns.next_s(now_s + BURST_S + MOST_S + 1) == 0.0


def test_a_crowd_shares_the_later_turns() -> None:
    """All wait, so that none opens another connection at once; and their ends are spread, not one burst."""
    turns, now_s, tenth_s = turns_of_a_server(), 1000.0, 0.1
    waits = [turns.next_s(now_s) for _ in range(2000)]
    shared = [wait_s for wait_s in waits[int(PER_S * (BURST_S + MOST_S)) + 2 :] if wait_s is not None]
    assert len(shared) > 900
    assert all(MOST_S / 2 <= wait_s <= MOST_S for wait_s in shared)
    at_once = Counter(int(wait_s / tenth_s) for wait_s in waits if wait_s)
    assert max(at_once.values()) <= 4 * PER_S * tenth_s


def test_no_more_wait_than_the_server_allows() -> None:
    turns = turns_of_a_server()
    turns.waiting = turns.most
    assert [turns.next_s(1000.0) for _ in range(int(PER_S * BURST_S) + 2)][-1] is None


def test_the_right_token_is_served_while_refusals_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for longer than this test, and the server stops all the same."""
    monkeypatch.setattr(pace, "PER_S", 0.01)
    monkeypatch.setattr(pace, "MOST_S", 1e6)
    with edge_server(prepare=secret) as server, crowd(server, CROWD):
        wait_until(lambda: server.edge.app.pace.waiting == CROWD - 1)
        assert not server.edge.watched, "a look at each, twice a second, would cost more than their answers"
        assert all(is_served(server) for _ in range(20))
        assert server.edge.app.pace.waiting == CROWD - 1


def test_a_refusal_that_waits_keeps_no_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise strangers fill `max_receiving_bytes`, and bodies of others have to give way."""
    monkeypatch.setattr(pace, "PER_S", 0.01)
    monkeypatch.setattr(pace, "MOST_S", 1e6)
    with edge_server(prepare=secret) as server, crowd(server, CROWD, UPLOAD):
        wait_until(lambda: server.edge.app.pace.waiting == CROWD - 1)
        connections: Any = server.server.server_state.connections
        assert [each.kept for line in list(connections) for each in line._queue] == [0] * (CROWD - 1)
        assert server.edge._receiving_bytes == 0


def test_a_bounded_number_waits_and_the_others_lose_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PER_S", 0.01)
    monkeypatch.setattr(pace, "MOST_S", 1e6)
    most, connections = 4, 16
    with edge_server(prepare=secret, connections=connections) as server, contextlib.ExitStack() as stack:
        turns = server.edge.app.pace
        for number in range(connections - 1):
            line = stack.enter_context(Raw(server.port))
            line.send(WRONG)
            if 1 <= number <= most:
                wait_until(lambda number=number: turns.waiting == number)
                continue
            answer = line.answer()
            assert (answer.status, answer.headers.get("connection")) == (401, "close" if number else None)
            assert number == 0 or line.rest() == b""
        assert is_served(server), "those that wait leave room"
        assert turns.waiting == most


def test_a_connection_goes_on_behind_a_refusal_that_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may use it for another caller."""
    monkeypatch.setattr(pace, "PER_S", 20)
    monkeypatch.setattr(pace, "BURST_S", 0.0)
    with edge_server(prepare=secret) as server, Raw(server.port) as line:
        for _ in range(3):
            line.send(WRONG, WRONG, RIGHT)
            assert [line.answer().status for _ in range(3)] == [401, 401, 200]


@pytest.mark.parametrize("sent", [LONG, WRONG * 4000, LONG * 5], ids=["a head", "many requests", "some long ones"])
def test_a_refusal_that_waits_keeps_no_heads(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """A quarter of all connections may wait, and a read may have 256 KiB."""
    monkeypatch.setattr(pace, "PER_S", 0.01)
    monkeypatch.setattr(pace, "MOST_S", 1e6)
    with edge_server(prepare=secret) as server:
        tracemalloc.start()
        try:
            with crowd(server, CROWD, sent):
                wait_until(lambda: server.edge.app.pace.waiting >= CROWD - 1)
                kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert kept < CROWD * 30_000


def test_a_connection_ends_with_a_refusal_that_much_was_sent_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PER_S", 20)
    monkeypatch.setattr(pace, "BURST_S", 0.0)
    with edge_server(prepare=secret) as server:
        with Raw(server.port) as line:
            line.send(WRONG)
            assert line.answer().status == 401
            line.send(WRONG * 4000)
            answers = (line.answer() for _ in range(10))  # a busy server reads them late, and some wait no more
            assert any(answer.headers.get("connection") == "close" for answer in answers)
            assert line.rest() == b""
        assert is_served(server)
