"""A task that runs in a test has the outcome that it has in a worker."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

from sharequeue import testing
from sharequeue.testing import Outcome
from sharequeue.worker import Context, Reject, Retry, Snooze, Worker


@dataclass
class Order:
    id: int


async def outcomes() -> dict[Any, Outcome]:
    """What becomes of some records, by their payload, or by the words of a line."""
    app = Worker()

    @app.task("orders", group="g")
    async def fulfil(order: Order, context: Context) -> None:
        match order.id:
            case 1:
                raise Reject("no address")
            case 2:
                raise Retry("busy", delay="5s")
            case 3:
                raise Snooze("1m")
            case 4:
                raise ConnectionError("away")
        assert (context.attempt, context.headers, context.record.key) == (3, {"x": "y"}, "ann")

    @app.task("orders", group="g", on_mismatch="release")
    def plain(order: Order) -> None:
        raise ValueError(threading.current_thread().name[:10])

    @app.task("orders", group="g", timeout="50ms")
    async def slow(order: Order) -> None:
        await asyncio.sleep(3600)

    found = {
        number: await testing.run(fulfil, Order(number), attempt=3, key="ann", headers={"x": "y"})
        for number in range(5)
    }
    found[5] = await testing.run(slow, Order(5))
    wrong: Any = {"id": "x"}
    found["wrong"], found["wrong, released"] = await testing.run(fulfil, wrong), await testing.run(plain, wrong)
    found["in a thread"] = await testing.run(plain, Order(1))
    return found


def test_a_task_runs_in_a_test_without_a_stack() -> None:
    misfit = "the payload does not fit: Expected `int`, got `str` - at `$.id`"
    assert asyncio.run(outcomes()) == {
        0: Outcome("accepted"),
        1: Outcome("rejected", "no address"),
        2: Outcome("released", "busy", 5),
        3: Outcome("snoozed", None, 60),
        4: Outcome("released", "ConnectionError: away"),
        5: Outcome("released", "timed out after 0.05 s"),
        "wrong": Outcome("rejected", misfit),
        "wrong, released": Outcome("released", misfit),
        "in a thread": Outcome("released", "ValueError: sharequeue"),
    }
