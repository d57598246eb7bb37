"""A task: a function, the records it gets and how, and the gateways that it sends them to."""

import asyncio
import inspect
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, Unpack

from sharequeue.client import Produced, Producer, Scheduled
from sharequeue.client.sync import Producer as SyncProducer
from sharequeue.protocol.messages.scheduled import PutScheduleRequest
from sharequeue.worker.payloads import HEADER, plain, signature_of
from sharequeue.worker.spans import Span, milliseconds, seconds, when
from sharequeue_http.calling.login import LoginOptions

P = TypeVar("P")
OnMismatch = Literal["reject", "release", "stop"]


class Gateways:
    """The next of `urls` is called when one gives no answer."""

    def __init__(self, urls: Sequence[str], login: LoginOptions) -> None:
        self.urls = urls
        self.login = login
        self._producers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Producer] = weakref.WeakKeyDictionary()
        self._sync_producer: SyncProducer | None = None

    def producer(self) -> Producer:
        """Return the producer of this event loop."""
        loop = asyncio.get_running_loop()
        producer = self._producers.get(loop)
        if producer is None:
            producer = self._producers[loop] = Producer(self.urls, **self.login)
        return producer

    def sync_producer(self) -> SyncProducer:
        """Return the producer of code without an event loop."""
        if self._sync_producer is None:
            self._sync_producer = SyncProducer(self.urls, **self.login)
        return self._sync_producer

    async def close(self) -> None:
        """Close the producers of this event loop, and the one of code without async."""
        producer = self._producers.pop(asyncio.get_running_loop(), None)
        if producer is not None:
            await producer.close()
        if self._sync_producer is not None:
            self._sync_producer.close()
            self._sync_producer = None


class TaskOptions(NamedTuple):
    """The options of a task; `Worker.task` says what each means."""

    concurrency: int
    timeout_s: float
    on_mismatch: OnMismatch
    reject_on: tuple[type[BaseException], ...]
    reasons: Literal["text", "type"]
    breaker: int


class SendOptions(TypedDict, total=False):
    """The options of `Task.send`.

    `key`, `headers`, `idempotency_key`: as of Producer.send. `topic`: of the task's; without it the last, which is the
    least urgent. `delay`, `at`: when the record enters the topic; until then it waits at the service. `unique`: a text,
    such as "order:42": send the payload only if none with this text waits or is in hand; else the answer is the place
    of the first one, as a `duplicate`. The text is the record's key. It counts until the group has finished the first
    one, at most for `unique_for` (30 days) from when that has entered the topic.
    """

    key: str | bytes | None
    headers: Mapping[str, str] | None
    topic: str | None
    delay: Span | None
    at: datetime | None
    unique: str | None
    unique_for: Span
    idempotency_key: str | None


class Task(Generic[P]):
    """A function that gets the payloads of records. Calling it calls the function: that is how a test does it.

    `topics`: in order of priority. `is_async`: it runs in the program's event loop, others run in threads.
    """

    def __init__(
        self,
        gateways: Gateways,
        function: Callable[..., Any],
        name: str,
        topics: Sequence[str],
        group: str,
        options: TaskOptions,
    ) -> None:
        self.gateways = gateways
        self.function = function
        self.name = name
        self.topics = tuple(topics)
        self.group = group
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        self.decode, self.argument_count = signature_of(function)
        self.schedule: PutScheduleRequest | None = None
        """Of a periodic one: the schedule of its topic that has its name."""
        self.paused_until = 0.0
        """When this program fetches for the task again, on the monotonic clock."""
        self.__doc__ = function.__doc__

    def __call__(self, payload: P, *context: Any) -> Any:
        return self.function(payload, *context)

    def __repr__(self) -> str:
        return f"<Task {self.name} of {', '.join(self.topics)}, group {self.group}>"

    async def send(self, payload: P, **options: Unpack[SendOptions]) -> Produced | Scheduled:
        """Send a payload to a topic of the task, from any program. Returns: its place, once it is durable.

        Raises: ApiError: as Producer.send. TypeError, ValueError: JSON has no form for the payload, or an option is of
            no use.
        """
        sent: Produced | Scheduled = await self.gateways.producer().send(**self._record(payload, options))
        return sent

    def send_sync(self, payload: P, **options: Unpack[SendOptions]) -> Produced | Scheduled:
        """As `send`, for code without an event loop."""
        sent: Produced | Scheduled = self.gateways.sync_producer().send(**self._record(payload, options))
        return sent

    def _record(self, payload: P, options: SendOptions) -> dict[str, Any]:
        """Return the arguments of Producer.send."""
        topic, unique = options.get("topic") or self.topics[-1], options.get("unique")
        if topic not in self.topics:
            raise ValueError(f"the task {self.name} has no topic {topic}: it has {', '.join(self.topics)}")
        record = {
            "topic": topic,
            "value": plain(payload),
            "key": options.get("key"),
            "headers": {HEADER: self.name, **(options.get("headers") or {})},
            "idempotency_key": options.get("idempotency_key"),
            **when(options.get("delay"), options.get("at")),
        }
        if unique is not None:
            if record["key"] not in (None, unique):
                raise ValueError("give key or unique: a record that is unique has that text as its key")
            within_ms = milliseconds(options.get("unique_for", "30d"))
            record |= {"key": unique, "unique": {"within_ms": within_ms, "until_group": self.group}}
        return record

    def pause(self, span: Span) -> None:
        """Fetch nothing for this task during a span, in this program; what runs goes on. 0 ends a pause."""
        self.paused_until = time.monotonic() + seconds(span)
