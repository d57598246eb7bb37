"""An app: the tasks of a program, and where they get their records."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Literal, TypeVar

from sharequeue.protocol.messages.scheduled import Missed
from sharequeue.worker.schedules import schedule_of
from sharequeue.worker.spans import Span, milliseconds, seconds
from sharequeue.worker.task import Gateways, OnMismatch, Task, TaskOptions
from sharequeue_http.calling.login import LoginOptions, Token

P = TypeVar("P")


class Worker:
    """The tasks of a program.

    Args:
        url: the gateway, or several: the next is called when one gives no answer.
        lock: how long a record stays locked without a renewal; None: as long as its group's setting says.
        set_retries: give groups that have no backoff and no limit of their own those of docs/worker.md.
        token, headers, ca: as of Producer.

    Example:
        app = Worker("http://127.0.0.1:8080")

        @app.task("orders", group="fulfilment", concurrency=8, timeout="5m")
        async def fulfil(order: Order) -> None: ...
    """

    def __init__(
        self,
        url: str | Sequence[str] = "http://127.0.0.1:8080",
        *,
        lock: Span | None = None,
        set_retries: bool = True,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        urls = [url] if isinstance(url, str) else list(url)
        self.gateways = Gateways(urls, LoginOptions(token=token, headers=headers, ca=ca))
        self.lock_duration_ms = None if lock is None else milliseconds(lock)
        self.set_retries = set_retries
        self.tasks: dict[str, Task[Any]] = {}
        """By name, in the order of their declaration."""

    def task(
        self,
        *topics: str,
        group: str,
        name: str | None = None,
        concurrency: int = 1,
        timeout: Span = "30m",
        on_mismatch: OnMismatch = "reject",
        reject_on: type[BaseException] | tuple[type[BaseException], ...] = (),
        reasons: Literal["text", "type"] = "text",
        breaker: int = 20,
    ) -> Callable[[Callable[Concatenate[P, ...], object]], Task[P]]:
        """Make a task of a function of one payload, and of a Context if it takes a second argument.

        The function's annotation says what the payload is: a dataclass, a TypedDict, a model of msgspec or pydantic,
        plain JSON, `bytes`, or the whole `Record`.

        Args:
            topics: where records come from, in the order of priority.
            group: the share group. Each group gets every record; a group's workers share them.
            name: of the task; None: the function's. Where several tasks share topics and group, the header `task` names
                one; a record without it goes to the first.
            concurrency: how many records are in hand at a time, in each process.
            timeout: an async function that runs for longer is cancelled; a plain one is told (`Context.lost`). The
                record is released.
            on_mismatch: for a payload that is not of the type: "reject" makes a dead letter of it, "release" gives it
                back, "stop" stops the task. When 20 of the last 50 did not fit, the task stops in any case.
            reject_on: exceptions that make a dead letter of their record at once.
            reasons: "type" keeps the texts of exceptions out of reasons.
            breaker: after so many failures of one kind in a row, one record a second until one succeeds. 0: never. A
                `Reject` does not count.
        Raises: ValueError, TypeError: an argument or the function is of no use.
        """
        if not topics:
            raise ValueError("a task needs a topic")
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        if on_mismatch not in ("reject", "release", "stop"):
            raise ValueError(f"on_mismatch is reject, release or stop, not {on_mismatch!r}")
        rejected = reject_on if isinstance(reject_on, tuple) else (reject_on,)
        options = TaskOptions(concurrency, seconds(timeout), on_mismatch, rejected, reasons, breaker)

        def declared(function: Callable[Concatenate[P, ...], object]) -> Task[P]:
            task: Task[P] = Task(self.gateways, function, name or function.__name__, topics, group, options)
            if task.name in self.tasks:
                raise ValueError(f"there are two tasks of the name {task.name}: give one another name")
            self.tasks[task.name] = task
            return task

        return declared

    def periodic(
        self,
        cron: str,
        *,
        timezone: str = "UTC",
        payload: Any = None,
        topic: str | None = None,
        group: str = "periodic",
        name: str | None = None,
        timeout: Span = "30m",
        missed: Missed = "one",
    ) -> Callable[[Callable[..., object]], Task[Any]]:
        """Make a task that runs at each time of `cron`: once, however many workers there are.

        The service keeps the times, in a schedule of the topic with the task's name: a worker that starts makes it, or
        changes it. Each time makes a record, whose header `__schedule.time_ms` has the time. A schedule that an
        operator paused stays paused, and the one of a function that the program has no more stays until it is deleted.

        Args:
            cron: five fields, as in crontab, or six with the second first. timezone: its IANA name.
            payload: what the function gets; a function may take no argument.
            topic: of the records; None: `periodic.` and the task's name.
            group, name, timeout: as of `task`.
            missed: what becomes of times that an outage has taken: one record together, all of them, or none.
        Raises: ValueError, TypeError: as `task`. A worker that starts ends if the service refuses the schedule.
        """

        def declared(function: Callable[..., object]) -> Task[Any]:
            called = name or function.__name__
            schedule = schedule_of(called, cron, timezone, payload, missed)
            make = self.task(topic or f"periodic.{called}", group=group, name=called, timeout=timeout)
            task = make(function)
            task.schedule = schedule
            return task

        return declared

    def pause(self, name: str, span: Span) -> None:
        """Fetch nothing for a task, or for all tasks of a topic, during a span, in this program. 0 ends a pause.

        Raises: ValueError: there is no such task or topic, or no such span.
        """
        paused = [task for task in self.tasks.values() if name == task.name or name in task.topics]
        if not paused:
            raise ValueError(f"there is no task of the name {name}, and none of such a topic")
        for task in paused:
            task.pause(span)

    def queues(self) -> list[list[Task[Any]]]:
        """The tasks by what they share: topics and group."""
        found: dict[tuple[tuple[str, ...], str], list[Task[Any]]] = {}
        for task in self.tasks.values():
            found.setdefault((task.topics, task.group), []).append(task)
        return list(found.values())

    async def close(self) -> None:
        """Close what has sent, in this event loop and without one."""
        await self.gateways.close()
