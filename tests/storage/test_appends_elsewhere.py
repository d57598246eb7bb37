"""Appends that one gateway passes to another: each is in the log once, whatever becomes of the other gateway."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.postgres import PostgresRecordLog

from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.types import TopicIdPartition
from sharequeue_http.forms.errors import CoordinatorNotAvailable, RequestTimedOut
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import PostgresRecordLogs, append, batch_of, deadline, new_topic, read_all

HANG_S = 60


class Node(NamedTuple):
    node_id: str
    url: str


Passing = Callable[[Coroutine[Any, Any, AppendResult]], Coroutine[Any, Any, AppendResult]]


class Passed:
    """Passes appends to another record log. `way`: what becomes of the call and its answer."""

    def __init__(self, log: PostgresRecordLog, way: Passing) -> None:
        self._log = log
        self._way = way
        self.passed = 0

    def node_of(self, place: TopicIdPartition) -> Node:
        return Node("other", "http://other:1")

    async def append(self, node: Any, append: PartitionAppend, key: IdempotencyKey) -> AppendResult:
        self.passed += 1
        return await self._way(self._log.appender.append([append], key, here=True))


async def answered(appending: Coroutine[Any, Any, AppendResult]) -> AppendResult:
    return await appending


async def killed_before(appending: Coroutine[Any, Any, AppendResult]) -> AppendResult:
    appending.close()
    raise RequestTimedOut("the connection was lost")


async def killed_behind(appending: Coroutine[Any, Any, AppendResult]) -> AppendResult:
    await appending
    raise RequestTimedOut("the connection was lost")


async def refused(appending: Coroutine[Any, Any, AppendResult]) -> AppendResult:
    appending.close()
    raise CoordinatorNotAvailable("no connection", definite=True)


class Paused:
    """The other gateway continues when nobody waits for its answer any more: at once, or when `run` is awaited."""

    def __init__(self) -> None:
        self._appending: list[Coroutine[Any, Any, AppendResult]] = []

    async def __call__(self, appending: Coroutine[Any, Any, AppendResult]) -> AppendResult:
        self._appending.append(appending)
        raise RequestTimedOut("no answer in time")

    async def run(self) -> list[AppendResult]:
        return await asyncio.gather(*self._appending)


@asynccontextmanager
async def two(database: str, way: Passing) -> AsyncIterator[tuple[PostgresRecordLog, PostgresRecordLog, Passed]]:
    """Two record logs. The first one passes its appends to the second."""
    async with PostgresRecordLogs(database).open() as log, PostgresRecordLogs(database).open() as other:
        log.appender.elsewhere = passed = Passed(other, way)
        yield log, other, passed


def keys(topic: str, name: str, keyed: bool) -> IdempotencyKey | None:
    return key_of(topic, name, name.encode())._replace(plain=True) if keyed else None


@pytest.mark.parametrize("keyed", [False, True])
async def test_the_other_gateway_appends(module_database: str, keyed: bool) -> None:
    topic = new_topic()
    async with two(module_database, answered) as (log, other, passed):
        await append(other, topic, ["x"])
        results = [
            await log.appender.append([batch_of(topic, [name])], keys(topic, name, keyed)) for name in ("a", "b", "a")
        ]
        offsets = [result.base_offsets[0] for result in results]
        assert offsets == ([1, 2, 1] if keyed else [1, 2, 3])
        assert passed.passed == 3
        assert other.read_cached(topic, 0, 1, 1 << 20, 10) is not None
        values = await read_all(log, topic)
        assert values == ["x", "a", "b"] if keyed else ["x", "a", "b", "a"]


async def test_what_another_gateway_cannot_answer_or_would_hold_up_stays_here(module_database: str) -> None:
    topic = new_topic()
    async with two(module_database, answered) as (log, _, passed):
        await log.appender.append([batch_of(topic, ["arrow"])], key_of(topic, "k", b"1"))
        await log.appender.append([batch_of(topic, ["large" * 100_000])])
        await log.appender.append([batch_of(topic, [1]), batch_of(topic, [2], 1)])
        assert passed.passed == 0


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("way", [killed_before, killed_behind, refused])
async def test_without_an_answer_this_gateway_appends_once(module_database: str, way: Passing, keyed: bool) -> None:
    topic = new_topic()
    async with two(module_database, way) as (log, other, _):
        await append(other, topic, ["x"])
        for offset, name in enumerate("abc", 1):
            result = await log.appender.append([batch_of(topic, [name])], keys(topic, name, keyed))
            assert (result.base_offsets[0], result.answer) == (offset, b"[%d]" % offset if keyed else None)
        assert await read_all(log, topic) == ["x", *"abc"]


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_gateway_that_continues_late_finds_what_was_appended(module_database: str, keyed: bool) -> None:
    topic, paused = new_topic(), Paused()
    async with two(module_database, paused) as (log, other, _):
        await append(other, topic, ["x"])
        for name in "abc":
            await log.appender.append([batch_of(topic, [name])], keys(topic, name, keyed))
        await other.offsets(topic, [0])  # it has heard of them: its next append would fit
        late = await paused.run()
        assert [(result.base_offsets[0], result.repeated) for result in late] == [(1, True), (2, True), (3, True)]
        assert await read_all(log, topic) == ["x", *"abc"]


async def test_an_append_that_nobody_could_make_may_have_happened(module_database: str) -> None:
    """The try at the other gateway may have, so the error does not say that nothing was appended."""
    topic, logs = new_topic(), PostgresRecordLogs(module_database)
    async with logs.open(connections=1) as log, logs.open() as other, log.database.connections.lend(HANG_S):
        log.appender.elsewhere = Passed(other, killed_behind)
        with deadline(log, 0.3), pytest.raises(StorageError) as failed:
            await log.appender.append([batch_of(topic, ["a"])])
        assert not failed.value.definite
        assert await read_all(other, topic) == ["a"]


async def lost_at_random(log: PostgresRecordLog, other: PostgresRecordLog, rounds: int, seed: int) -> None:
    """Both gateways append, each at the other one, which is killed or paused before its commit or behind it."""
    topic, drawn, late = new_topic(), random.Random(seed), []

    async def way(appending: Coroutine[Any, Any, AppendResult]) -> AppendResult:
        kind = drawn.choice(["answered", "before", "behind", "paused"])
        if kind == "before":
            return await killed_before(appending)
        going_on = asyncio.ensure_future(appending)
        late.append(going_on)
        if kind == "answered":
            return await going_on
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(going_on), 0.0 if kind == "paused" else HANG_S)
        raise RequestTimedOut("no answer in time")

    log.appender.elsewhere, other.appender.elsewhere = Passed(other, way), Passed(log, way)
    for first in range(0, rounds, 10):
        names = [str(number) for number in range(first, min(first + 10, rounds))]
        results = await asyncio.gather(
            *(
                drawn.choice([log, other]).appender.append(
                    [batch_of(topic, [name])], keys(topic, name, drawn.random() < 0.5)
                )
                for name in names
            )
        )
        await asyncio.gather(*late)
        for name, result in zip(names, results, strict=True):
            assert await value_at(log, topic, result) == name
    assert sorted(await read_all(log, topic), key=int) == [str(number) for number in range(rounds)]
    assert (await log.offsets(topic, [0]))[0].log_end_offset == rounds, "there is a gap"


async def value_at(log: PostgresRecordLog, topic: str, result: AppendResult) -> object:
    found: Sequence[object] = await read_all(log, topic, offset=result.base_offsets[0])
    return found[0]


@pytest.mark.parametrize("rounds", [30, pytest.param(800, marks=pytest.mark.soak)])
async def test_gateways_that_both_pass_on_and_die_append_each_record_once(
    module_database: str, rounds: int, seed: int
) -> None:
    async with two(module_database, answered) as (log, other, _):
        await lost_at_random(log, other, rounds, seed)
