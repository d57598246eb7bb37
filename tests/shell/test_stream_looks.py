"""How often a stream with a full window asks a leader that does not answer. On a clock that the test turns."""

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from sharequeue_gateway.delivery.fetching_members import FetchingMembers
from sharequeue_gateway.delivery.held_records import HeldRecords
from sharequeue_gateway.delivery.waiting import Event, WaitingFetches
from sharequeue_gateway.routing.held import RoutedHeld
from sharequeue_gateway.routing.stream import Shared, Stream
from sharequeue_gateway.share_partition.stream_window import SentRange, StreamWindow

from sharequeue_http.forms.errors import RequestTimedOut
from tests.shell.test_load_registry import ORDERS
from tests.shell.test_work_for_a_fetch import Client
from tests.shell.turned_loop import TurnedLoop, run

NOWHERE: Any = None
STEP_S = 0.01


class DeadLeader:
    """A leader that takes no connection. `asked_at`: the times of the calls."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.asked_at: list[float] = []

    async def held(self, *_: object) -> bytes:
        self.asked_at.append(self._time())
        raise RequestTimedOut("nothing listens there")


async def nothing(*_: object) -> list[Any]:
    """What Redis remembers."""
    return []


def asked_in(seconds: float, wait: Callable[[Stream, Any], Coroutine[Any, Any, object]]) -> int:
    """How often a stream asks its dead leader in so many seconds."""
    asked: list[float] = []

    async def work(loop: TurnedLoop) -> None:
        leader = DeadLeader(loop.time)
        asked_at = leader.asked_at
        cluster = SimpleNamespace(me="me", look_again=lambda: None, leader_of=lambda _: "other")
        routing: Any = SimpleNamespace(gateways=leader, cluster=cluster)
        metadata: Any = SimpleNamespace(name_of=lambda _: "orders", by_name={"orders": ORDERS}, topics_by_id=nothing)
        held = RoutedHeld(routing, HeldRecords(NOWHERE, metadata, NOWHERE, NOWHERE), metadata)
        repeated: Any = SimpleNamespace(remembered=nothing)
        stream = Stream(Shared(NOWHERE, held, repeated, metadata, FetchingMembers(), NOWHERE), "g", "m", "s")
        stream.topics = ["orders"]
        stream.window = StreamWindow(1)
        stream.window.acquired([SentRange("id-1", 0, 0, 0, 1)])
        client: Any = Client()
        waiting = stream.waiting = WaitingFetches().new(client)
        waits = loop.create_task(wait(stream, waiting))
        while loop.time() < seconds:
            await loop.turn(STEP_S)
        waiting.on(Event.CLIENT_HANGS_UP)
        await waits
        asked.extend(asked_at)

    run(work)
    return len(asked)


def test_a_full_stream_asks_a_dead_leader_less_and_less() -> None:
    """It asked ten times in a second, for as long as the leader's lease lasted."""
    assert 4 <= asked_in(10, lambda stream, waiting: stream._make_room(waiting)) <= 40


def test_a_stream_that_is_restored_asks_a_dead_leader_less_and_less() -> None:
    assert 4 <= asked_in(10, lambda stream, waiting: stream._restore(waiting, 0, None)) <= 40
