"""Runs a task in a test, without a stack: a payload goes in, and what would become of its record comes out.

    outcome = await testing.run(fulfil, Order(17), attempt=3)
    assert outcome == testing.Outcome("released", "ConnectionError: the provider is away")

For a test with a stack, pytest has the fixture `sharequeue_url` (`pytest_plugin.py`).
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from sharequeue.client.consuming.deliveries import Delivery
from sharequeue.client.consuming.values import DoesNotFit
from sharequeue.client.new_record import NewRecord, encode_record
from sharequeue.protocol.messages.records import ConsumerRecord, FetchedBatch
from sharequeue.worker import Task
from sharequeue.worker.job import Job
from sharequeue.worker.outcomes import ACCEPT, REJECT, Verdict, does_not_fit, timed_out
from sharequeue.worker.payloads import plain
from sharequeue.worker.running import Results, Runner

P = TypeVar("P")
LOCK_MS: Final = 30_000


class Outcome(NamedTuple):
    """The end of a record, as a worker would send it.

    `what`: accepted: done. released: it comes again, and this was an attempt. rejected: it is a dead letter. snoozed:
    it comes again, and this was no attempt. `delay_s`: when it comes again; None: the group's backoff decides.
    """

    what: Literal["accepted", "released", "rejected", "snoozed"]
    reason: str | None = None
    delay_s: float | None = None


async def run(
    task: Task[P],
    payload: P,
    *,
    attempt: int = 1,
    key: str | bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a task's function once, as a worker does: with the payload as JSON, a Context, and the task's timeout.

    A payload of another type shows what a record of another program would become.

    Args:
        attempt: how often the group has got the record, this time included. key, headers: of the record.
    Returns: what becomes of the record. An exception of the function is in it, and is not raised.
    Raises: TypeError, ValueError: JSON has no form for the payload.
    """
    text = encode_record(NewRecord(plain(payload), key, headers))
    message = msgspec.json.decode(
        b'{"offset":0,"timestamp_ms":%d,%b' % (time.time() * 1000, text[1:]), type=ConsumerRecord
    )
    batch = FetchedBatch(
        topic=task.topics[0], topic_id="", partition=0, first_offset=0, last_offset=0, delivery_count=attempt,
        attempt=attempt, lock_duration_ms=LOCK_MS, lock_expires_at_ms=message.timestamp_ms + LOCK_MS, records=[message],
    )  # fmt: skip
    delivery = Delivery(batch, task.group)
    delivery.deadline = time.monotonic() + max(LOCK_MS / 1000, task.options.timeout_s)
    record = delivery.records[0]
    try:
        return _outcome(await _run(Job(task, record, task.decode(record), time.monotonic())))
    except DoesNotFit as fault:
        return _outcome(does_not_fit(str(fault), task.options.on_mismatch))


async def _run(job: Job) -> Verdict:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    runner = Runner(loop)
    runner.start([job], Results(loop, lambda _: ended.set()))
    try:
        async with asyncio.timeout(job.task.options.timeout_s):
            await ended.wait()
    except TimeoutError:
        runner.cancel(job)
        return timed_out(job.task.options.timeout_s)
    return job.verdict


def _outcome(verdict: Verdict) -> Outcome:
    delay_s = None if verdict.delay_ms is None else verdict.delay_ms / 1000
    if not verdict.begun:
        return Outcome("snoozed", verdict.reason, delay_s)
    what: Final = {ACCEPT: "accepted", REJECT: "rejected"}
    return Outcome(what.get(verdict.type, "released"), verdict.reason, delay_s)  # type: ignore[arg-type]
