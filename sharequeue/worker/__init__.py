"""Workers: functions that get the records of topics, and a program that runs them.

    @app.task("orders", group="fulfilment")        what a function gets, and how often at a time: app.py, task.py
    async def fulfil(order: Order) -> None: ...

    records ──▶ a queue's loop, in a thread of its own ──▶ the function, in the program's loop or in a thread
                   polls, renews, settles: feeding.py         running.py
                   ▲                                              │
                   └──────── accept, release, reject, snooze ─────┘  outcomes.py says which

A function that returns accepts its record. `Reject` makes a dead letter of it, `Retry` and `Snooze` give it back. Any
other exception releases it for the group's backoff (`group_rules.py`), and its text is the reason. `judging.py` slows a
task down whose records all fail, and stops one whose payloads do not fit. `sharequeue work` runs an app in one process
(`process.py`) or in several (`supervisor.py`).

The names that this file exports are public.
"""

from sharequeue.worker.app import Worker
from sharequeue.worker.context import Context
from sharequeue.worker.outcomes import Reject, Retry, Snooze
from sharequeue.worker.task import Task

__all__ = ["Context", "Reject", "Retry", "Snooze", "Task", "Worker"]
