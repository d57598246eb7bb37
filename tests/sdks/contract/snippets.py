"""Runs the code that docs/sdks.md shows in its text and tables. The environment says where the gateway is."""

import os
import signal
import time

from acknowledger import NotAcknowledged
from producer import Producer
from sharequeue_api import (
    ApiClient,
    ApiException,
    Configuration,
    ConsumerRecord,
    FetchedBatch,
    ProduceRecord,
    RecordsApi,
)
from worker import Reject, Release, Worker

PATIENCE_S = 60.0
records = RecordsApi(ApiClient(Configuration(host=os.environ["SHAREQUEUE_URL"])))


def send() -> None:
    """A repeat with the key stores nothing."""
    ann = ProduceRecord(key="ann", value={"total": 3}, headers={"from": "web"})
    batch = [ann, ProduceRecord(value="bob")]
    first = Producer(records, deadline_s=30).send("orders", batch, key="order-17")
    again = Producer(records).send("orders", batch, key="order-17")
    assert [record.offset for record in again] == [record.offset for record in first]


def settle() -> None:
    """Ann's record comes again in a minute. Bob's is rejected after SIGTERM, which ends the worker."""
    handled: list[object] = []

    def handle(record: ConsumerRecord, _: FetchedBatch) -> None:
        if record.key is None:
            handled.append(record.value)
            signal.raise_signal(signal.SIGTERM)
            raise Reject("no address")
        if record.value and record.headers:
            handled.append((record.key, record.value["total"], record.headers["from"]))
        raise Release("busy", delay_ms=60_000)

    worker = Worker(records, "billing", ["orders"], handle, max_records=10, lock_duration_ms=60_000)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()
    assert handled == [("ann", 3, "web"), "bob"], handled


def read_dead_letters() -> None:
    """The service writes a dead letter a moment after the reject."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            letter = records.read_records("dlq.billing", 0, offset=0).records[-1]
            if letter.value == "bob":
                break
        except ApiException as fault:
            if fault.status != 404:
                raise
        assert time.monotonic() < deadline, "there is no dead letter"
        time.sleep(0.1)
    assert (letter.headers or {})["__dlq.errors.reason"] == "no address"


def tell() -> None:
    """Each acknowledgement succeeds, and Ann's record has not come again."""
    handled: list[object] = []
    lost: list[NotAcknowledged] = []
    handler = lost.append

    def handle(record: ConsumerRecord, _: FetchedBatch) -> None:
        handled.append(record.value)
        if record.headers:
            handled.append(record.headers["traceparent"])
        worker.stop()

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    def inject(headers: dict[str, str]) -> None:
        headers["traceparent"] = trace

    Producer(records, inject=inject).send("orders", [ProduceRecord(value="carol")])
    worker = Worker(records, "billing", ["orders"], handle, on_error=handler)
    worker.run()
    assert (handled, lost) == (["carol", trace], []), (handled, lost)


if __name__ == "__main__":
    send()
    settle()
    read_dead_letters()
    tell()
