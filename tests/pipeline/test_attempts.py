"""Several attempts of a task write each row once, whatever the order of their rows, and wherever they stop."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.sql import types as spark
from sharequeue_pipeline import PipelineError
from sharequeue_pipeline.ahead import in_order
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SinkOptions, sink_options
from sharequeue_pipeline.sink import columns, rows
from sharequeue_pipeline.sink.attempts import Attempt, Chunk
from sharequeue_pipeline.sink.transactions import WriteTransaction
from sharequeue_pipeline.sink.writing import Writer, Written

from sharequeue.stack.stack import Stack
from tests.examples import examples
from tests.http.calls import Gateway
from tests.pipeline.peak_memory import peak_mib
from tests.pipeline.proxy import Instead, Proxy
from tests.pipeline.test_rows import schema

PARTITIONS = 2
numbers = count()


class Row(NamedTuple):
    key: str | None
    value: str | None
    partition: int
    timestamp_ms: int


class Form(NamedTuple):
    """How rows are sent: as JSON or as columns, and whether they name their partitions and times."""

    arrow: bool
    placed: bool

    @property
    def columns(self) -> list[str]:
        return ["key", "value", *(["partition", "timestamp"] if self.placed else [])]

    def chunks(self, given: list[Row], options: SinkOptions) -> Iterator[Chunk]:
        if self.arrow:
            found: dict[str, Any] = {name: [getattr(row, name) for row in given] for name in ("key", "value")}
            batch = {name: pa.array(values, pa.string()) for name, values in found.items()}
            if self.placed:
                batch["partition"] = pa.array([row.partition for row in given], pa.int32())
                times = pa.array([row.timestamp_ms * 1000 for row in given], pa.int64())
                batch["timestamp"] = times.cast(pa.timestamp("us", "UTC"))
            yield from columns.chunks([pa.record_batch(batch)], options)
            return
        places = {"partition", "timestamp_ms"} if self.placed else set()
        named = ({"key", "value"} | places, (row._asdict() for row in given))
        encoded = (
            json.dumps({name: each for name, each in row.items() if name in named[0] and (each or name != "key")})
            for row in named[1]
        )
        assert options.topic is not None
        yield from rows.chunks(((options.topic, record.encode()) for record in encoded), options)

    def identity(self, row: Row) -> tuple[Any, ...]:
        """What two records have in common that are the same."""
        return (row.key or None, row.value, *((row.partition, row.timestamp_ms) if self.placed else ()))


FORMS = [Form(arrow=True, placed=True), Form(arrow=False, placed=False)]
TEXTS = st.sampled_from(["", "a", "b", "ü", '"', "\\", "\U0001f600"])
ROWS = st.lists(
    st.builds(Row, st.none() | st.sampled_from("kl"), st.none() | TEXTS, st.integers(0, 1), st.integers(1, 2)),
    max_size=12,
)


def logged(gateway: Gateway, topic: str, form: Form) -> Counter[tuple[Any, ...]]:
    """How often each record is in the topic."""
    return Counter(
        form.identity(Row(record.get("key"), record.get("value"), partition, record["timestamp_ms"]))
        for partition in range(PARTITIONS)
        for record in gateway.read(topic, partition, max_records=1000)["records"]
    )


class Attempts:
    """Attempts of one task, each with its rows."""

    def __init__(self, stack: Stack, gateway: Gateway, form: Form, limit: int) -> None:
        self.topic = f"attempts-{next(numbers)}-{form.arrow}-{form.placed}"
        gateway.create_topic(self.topic, PARTITIONS)
        self._form = form
        self._options = sink_options({"url": stack.url, "topic": self.topic, "maxRequestRecords": str(limit)})
        self._open = ExitStack()

    def __enter__(self) -> "Attempts":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def new(self, given: list[Row], begun: dict[int, int] | None = None) -> tuple[Attempt, Iterator[Chunk]]:
        client = self._open.enter_context(GatewayClient(self._options.gateway))
        attempt = Attempt(client, "write:0", begun or {}, self._form.columns)
        return attempt, self._form.chunks(given, self._options)

    def write(self, given: list[Row], begun: dict[int, int] | None = None) -> Attempt:
        attempt, chunks = self.new(given, begun)
        for chunk in chunks:
            attempt.write(chunk)
        return attempt


@pytest.mark.parametrize("form", FORMS, ids=str)
@given(data=st.data(), task=ROWS, limit=st.integers(1, 4), of_all=st.integers(2, 3))
@settings(deadline=None, max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_attempts_in_any_order_write_each_row_once(
    stack: Stack, gateway: Gateway, form: Form, data: st.DataObject, task: list[Row], limit: int, of_all: int
) -> None:
    """The attempts take turns as they like, and all but the last may stop at any request."""
    with Attempts(stack, gateway, form, limit) as attempts:
        running = [attempts.new(data.draw(st.permutations(task))) for _ in range(of_all)]
        while running:
            place = data.draw(st.integers(0, len(running) - 1))
            attempt, chunks = running[place]
            chunk = next(chunks, None)
            if chunk is not None:
                attempt.write(chunk)
            elif attempt.records:
                assert attempt.records == len(task)
                assert attempt.others == 0
            if chunk is None or (len(running) > 1 and data.draw(st.integers(0, 9)) == 0):
                del running[place]
        assert logged(gateway, attempts.topic, form) == Counter(map(form.identity, task))


def test_rows_in_the_same_order_are_not_read_back(stack: Stack, gateway: Gateway) -> None:
    task = [Row("k", str(number), 0, 1) for number in range(10)]
    with Attempts(stack, gateway, FORMS[0], 3) as attempts:
        first = attempts.write(task)
        again = attempts.write(task, gateway_ends(gateway, attempts.topic))
        assert (first.requests, first.records, first.known) == (4, 10, 0)
        assert (again.requests, again.records, again.known) == (4, 10, 10)


def gateway_ends(gateway: Gateway, topic: str) -> dict[int, int]:
    return dict(enumerate(gateway.log_ends(topic)))


EVERY_KIND = [
    b'{"value":1}',
    b'{"key":"","value":1}',
    b'{"key_base64":"AAE=","value":{"a":1.50,"b":[1, 2]}}',
    b'{"value": {"a" : 1 , "a" : 2} }',
    b'{"value":"x\\u00e9"}',
    b'{"value":"\\ud83d\\ude00\\u0000","headers":{"b":"2","a":""}}',
    b'{"value":1e400}',
    b'{"value":123456789012345678901234567890}',
    b'{"value_base64":""}',
    b'{"value_base64":"/w==","headers":{"a":"1"}}',
    b'{"value":null,"headers":{"a":"1"}}',
    b'{"key":"k","value":null}',
    b'{"value":""}',
    b'{"value":true}',
]
"""Records as the sink may send them."""


@pytest.mark.parametrize("placed", [False, True])
def test_a_record_of_every_kind_is_recognised(stack: Stack, gateway: Gateway, name: str, placed: bool) -> None:
    gateway.create_topic(name, PARTITIONS)
    place = b',"partition":1,"timestamp_ms":5}' if placed else b"}"
    task = [(name, record[:-1] + place) for record in EVERY_KIND]
    options = sink_options({"url": stack.url, "maxRequestRecords": "4"})
    with GatewayClient(options.gateway) as client:
        for given in (task, task[::-1]):
            attempt = Attempt(client, "write:0", {}, ["partition", "timestamp"] if placed else [])
            for chunk in rows.chunks(iter(given), options):
                attempt.write(chunk)
            assert (attempt.records, attempt.others) == (len(task), 0)
    assert sum(gateway.log_ends(name)) == len(task)


def written(stack: Stack, topic: str, values: str, url: str | None = None) -> None:
    """Write one-letter rows as a task does, two to a request."""
    options = sink_options({"url": url or stack.url, "topic": topic, "maxRequestRecords": "2", "timeoutMs": "5000"})
    chunks = FORMS[0].chunks([Row("k", value, 0, 1) for value in values], options)
    with GatewayClient(options.gateway) as client:
        attempt = Attempt(client, "write:0", {}, FORMS[0].columns)
        for _ in in_order(partial(attempt.write, chunk) for chunk in chunks):
            pass


def letters(gateway: Gateway, topic: str) -> str:
    return "".join(record["value"] for record in gateway.read(topic)["records"])


def test_after_a_request_that_failed_none_follows(stack: Stack, gateway: Gateway, name: str) -> None:
    """A request behind it would have a number while the one before is free."""
    gateway.create_topic(name)
    with Proxy(stack.url).running() as proxy:
        proxy.rule = lambda method, path, headers: (
            Instead(403, {}) if headers.get("idempotency-key", "").endswith(":1") else None
        )
        with pytest.raises(PipelineError, match="LOGIN_WANTED: "):
            written(stack, name, "abcdef", proxy.url)
    assert letters(gateway, name) == "ab"
    written(stack, name, "fedcba")
    assert letters(gateway, name) == "abfedc"


def test_an_attempt_that_cannot_read_appends_nothing_more(stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    written(stack, name, "ab")
    with Proxy(stack.url).running() as proxy:
        proxy.rule = lambda method, path, headers: Instead(403, {}) if method == "GET" else None
        with pytest.raises(PipelineError, match="LOGIN_WANTED: "):
            written(stack, name, "cdab", proxy.url)
    assert letters(gateway, name) == "ab"
    written(stack, name, "cdab")
    assert letters(gateway, name) == "abcd"


def test_rows_are_appended_again_if_those_of_the_first_run_are_gone(
    stack: Stack, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver's log says so; it names records of a first run that are not among the rows, too."""
    ab, cb = ([Row("k", value, 0, 1) for value in values] for values in ("ab", "cb"))
    for name, deleted, second, added, others in (("gone", 1, ab[::-1], "ba", 2), ("others", 0, cb, "c", 1)):
        with Attempts(stack, gateway, FORMS[0], 2) as attempts:
            attempts.write(ab)
            gateway.delete_records(attempts.topic, deleted)
            again = attempts.write(second)
            left = gateway.read(attempts.topic, offset=deleted)["records"]
            assert "".join(record["value"] for record in left) == "ab"[deleted:] + added
            assert again.others == others
        writer = Writer(sink_options({"topic": name}), schema(value=spark.StringType()))
        writer.report_others([Written(2, 0, others=again.others), None])
        assert f"had appended {others} records to {name} that were not among its rows" in caplog.messages[-1]


def test_a_transaction_has_at_most_1000_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 1000))
    writer = Writer(sink_options({"topic": "t", "transactional": "true"}), schema(value=spark.StringType()))
    writer.transaction = WriteTransaction("t-1", None)
    with pytest.raises(PipelineError, match="commits at most 1000 tasks at once"):
        writer.send(iter([]), "write", None)


def test_a_refused_row_stops_the_attempt(stack: Stack, gateway: Gateway) -> None:
    task = [Row("k", "x" * 2_000_000, 0, 1)]
    with Attempts(stack, gateway, FORMS[0], 2) as attempts, pytest.raises(PipelineError, match="MESSAGE_TOO_LARGE"):
        attempts.write(task)
    assert gateway.log_ends(attempts.topic) == [0, 0]


MEASURE = """
import sys
import pyarrow as pa
from sharequeue_pipeline.ahead import in_order
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import sink_options
from sharequeue_pipeline.sink.attempts import Attempt
from sharequeue_pipeline.sink.columns import chunks
url, topic, count, step = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
options = sink_options({"url": url, "topic": topic})
def batches():
    for start in range(0, count, 10_000):
        numbers = [number * step % count for number in range(start, start + 10_000)]
        yield pa.record_batch({"key": [f"{number:020d}" for number in numbers], "value": ["x" * 1000] * 10_000})
with GatewayClient(options.gateway) as client:
    attempt = Attempt(client, "write:0", {}, ["key", "value"])
    for chunk in chunks(batches(), options):
        attempt.write(chunk)
assert (attempt.records, attempt.others) == (count, 0)
"""


@pytest.mark.soak
@pytest.mark.parametrize("count", [20_000, 2_000_000])
def test_the_memory_of_a_task_is_bounded(stack: Stack, gateway: Gateway, name: str, count: int) -> None:
    """MiB of a process that writes so many records of 1 KiB, and of one that writes them again in another order."""
    gateway.create_topic(name, 4)
    first, again = (peak_mib(MEASURE, stack.url, name, str(count), str(step)) for step in (1, 7919))
    print(f"{count} records: {first} MiB, again {again} MiB")
    assert sum(gateway.log_ends(name)) == count
    assert first < 250
    assert again < 420
