"""Ten thousand fetches that wait at one gateway: an append behind them is answered, and no event stops the loop.

For `make soak`: all of them must come within the 30 seconds that a fetch may wait, and the CPU of the event loop is
measured. `tests/shell/test_work_for_a_fetch.py` counts the waits that end in one turn of the loop.
"""

import contextlib
import socket
import time
from collections.abc import Iterator

import msgspec
import pytest

from bench.hostile import Probes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, wait_until
from tests.sharequeue_http.raw import Raw, connections_of, head

pytestmark = pytest.mark.soak

CROWD = 10_000
"""As many fetches may wait: `max_waiting_fetches`."""
CROWDS = 4
"""Several, because the garbage collector looks at everything only after many new objects."""
OPENED_AT_ONCE = 1000
"""The kernel has 4,096 connections wait for the gateway, and lets those beyond it try again after 1, 3, 7 and 15 s."""
STOP_MS = 200
"""CPU time of the event loop within one answer of `/livez`. Up to 90 ms are usual, and a busy machine takes longer for
the same work; a crowd that is handled in one event takes 230 to 520."""
LOOKS = 50
"""An append is looked at by the fetch that gets it, and the next one: not by the crowd."""
HEAD_TIMEOUT_MS = 6000
SILENT = 14_000
WAITING = "sharequeue_waiting_fetches"


def until_accepted(gateway: Gateway) -> None:
    """Wait until the gateway has accepted all connections that have been opened: it does so in their order."""
    with Raw(gateway.port, timeout_s=60) as last:
        last.send(head("GET /livez"))
        assert last.answer().status == 200


@contextlib.contextmanager
def crowd(gateway: Gateway, name: str, max_wait_ms: int, together: bool = False) -> Iterator[None]:
    """A crowd of fetches of one topic and group while this lasts. `together`: all deadlines are at the same moment."""
    end = time.monotonic() + max_wait_ms / 1000
    with contextlib.ExitStack() as connections:
        for number in range(CROWD):
            if number % OPENED_AT_ONCE == 0:
                until_accepted(gateway)
            left_ms = int(1000 * (end - time.monotonic())) if together else max_wait_ms
            fetch = {"topics": [name], "member_id": f"m{number}", "max_wait_ms": max(left_ms, 1), "max_records": 1}
            body = msgspec.json.encode(fetch)
            of_json = ("Content-Type: application/json", f"Content-Length: {len(body)}")
            connection = connections.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            connection.sendall(head(f"POST /v1/share-groups/{name}/fetch", *of_json) + body)
        yield


def looks(gateway: Gateway) -> float:
    """How often a fetch has looked into a share-partition."""
    return gateway.metrics()["sharequeue_fetch_lock_seconds_count"]


def all_wait(gateway: Gateway) -> bool:
    return gateway.metrics()[WAITING] == CROWD


def nobody_waits(gateway: Gateway) -> bool:
    return gateway.metrics()[WAITING] == 0


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_GATEWAY_HEAD_TIMEOUT_MS": str(HEAD_TIMEOUT_MS)}


@pytest.fixture
def probes(stack: Stack) -> Iterator[Probes]:
    probes = Probes([stack.service("gateway")])
    yield probes
    probes.close()


def busiest_ms(probes: Probes) -> float:
    _, (busiest,) = probes.longest_ms()
    return busiest


def test_no_event_of_a_waiting_crowd_stops_the_loop(
    stack: Stack, own_gateway: Gateway, probes: Probes, name: str
) -> None:
    """They come, one is answered, and they hang up; the last crowd waits until its common deadline."""
    own_gateway.create_topic(name)
    assert own_gateway.acquire(name, name) == []
    probes.reset()
    for _ in range(CROWDS):
        with crowd(own_gateway, name, 30_000):
            wait_until(lambda: all_wait(own_gateway), 60)
            before = looks(own_gateway)
            own_gateway.produce(name, "the first append behind the crowd")
            wait_until(lambda: own_gateway.metrics()[WAITING] == CROWD - 1)
            assert looks(own_gateway) - before < LOOKS
        wait_until(lambda: nobody_waits(own_gateway), 60)
    assert busiest_ms(probes) < STOP_MS
    probes.reset()
    with crowd(own_gateway, name, 12_000, together=True):
        wait_until(lambda: nobody_waits(own_gateway), 60)
    assert busiest_ms(probes) < STOP_MS


def test_a_crowd_that_waits_for_a_deleted_topic_is_answered_in_slices(
    own_gateway: Gateway, probes: Probes, name: str
) -> None:
    own_gateway.create_topic(name)
    assert own_gateway.acquire(name, name) == []
    with crowd(own_gateway, name, 30_000):
        wait_until(lambda: all_wait(own_gateway), 60)
        probes.reset()
        assert own_gateway.http.delete(f"/v1/topics/{name}").status_code == 204
        wait_until(lambda: nobody_waits(own_gateway), 60)
        assert busiest_ms(probes) < STOP_MS


def test_a_crowd_whose_time_is_over_is_closed_in_slices(stack: Stack, own_gateway: Gateway, probes: Probes) -> None:
    """Nothing sent, and half a head: all are closed by the same look at the clocks."""
    pid = stack.service("gateway").pid
    with contextlib.ExitStack() as connections:
        for number in range(SILENT):
            connection = connections.enter_context(socket.create_connection(("127.0.0.1", own_gateway.port)))
            connection.sendall(b"GET /livez" if number % 2 else b"")
        probes.reset()
        wait_until(lambda: connections_of(pid, own_gateway.port) < 10, 60)
        assert busiest_ms(probes) < STOP_MS
