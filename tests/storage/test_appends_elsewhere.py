"""Appends that one gateway passes to another: each is in the log once, whatever becomes of the other gateway."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.routing.appends import RoutedAppends

from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.messages.leaders import AppendHereRequest, AppendHereResponse
from sharequeue.protocol.types import TopicIdPartition
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable, RequestTimedOut
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import PostgresRecordLogs, append, batch_of, deadline, new_topic, read_all

HANG_S = 60


Appending = Coroutine[Any, Any, AppendHereResponse]
Passing = Callable[[Appending], Appending]


class Other:
    """Another gateway, and the cluster that leads to it. `way`: what becomes of the call and its answer."""

    generation = None

    def __init__(self, log: PostgresRecordLog, way: Passing) -> None:
        it: Any = self
        self._appends = RoutedAppends(it, it, it, log.appender)
        self._way = way
        self.passed = 0

    def client(self, node: Node) -> "Other":
        return self

    async def exist(self, topic_ids: Sequence[str]) -> bool:
        return True

    async def call(self, api: Any, request: AppendHereRequest, **_: object) -> AppendHereResponse:
        self.passed += 1
        return await self._way(self._appends.append_here(request))


class Tireless(RoutedAppends):
    """Sends all that may go to the other gateway there, also after it gave no answer."""

    def __init__(self, log: PostgresRecordLog, other: Other) -> None:
        it: Any = other
        super().__init__(it, it, it, log.appender)
        self._looked_at = EachPlace()

    def _avoid(self, node: Node, error: ApiError) -> None:
        pass


class EachPlace(dict[TopicIdPartition, Node | None]):
    def get(self, place: TopicIdPartition, default: Any = None) -> Node:
        return Node("other", "http://other:1")


async def answered(appending: Appending) -> AppendHereResponse:
    return await appending


async def killed_before(appending: Appending) -> AppendHereResponse:
    appending.close()
    raise RequestTimedOut("the connection was lost")


async def killed_behind(appending: Appending) -> AppendHereResponse:
    await appending
    raise RequestTimedOut("the connection was lost")


async def refused(appending: Appending) -> AppendHereResponse:
    appending.close()
    raise CoordinatorNotAvailable("no connection", definite=True)


class Paused:
    """The other gateway continues when nobody waits for its answer any more: at once, or when `run` is awaited."""

    def __init__(self) -> None:
        self._appending: list[Appending] = []

    async def __call__(self, appending: Appending) -> AppendHereResponse:
        self._appending.append(appending)
        raise RequestTimedOut("no answer in time")

    async def run(self) -> list[AppendHereResponse]:
        return await asyncio.gather(*self._appending)


@asynccontextmanager
async def two(database: str, way: Passing) -> AsyncIterator[tuple[RoutedAppends, PostgresRecordLog, Other]]:
    """The appends of a gateway that sends them to another one, whose record log is this."""
    async with PostgresRecordLogs(database).open() as log, PostgresRecordLogs(database).open() as other_log:
        other = Other(other_log, way)
        yield Tireless(log, other), other_log, other


def keys(topic: str, name: str, keyed: bool) -> IdempotencyKey | None:
    return key_of(topic, name, name.encode())._replace(plain=True, answer=produced_at) if keyed else None


def produced_at(base_offsets: Sequence[int]) -> bytes:
    """The answer of a produce of one record, which the other gateway makes, too."""
    return b'{"records":[{"partition":0,"offset":%d}]}' % base_offsets[0]


@pytest.mark.parametrize("keyed", [False, True])
async def test_the_other_gateway_appends(module_database: str, keyed: bool) -> None:
    topic = new_topic()
    async with two(module_database, answered) as (appends, log, other):
        await append(log, topic, ["x"])
        results = [
            await appends.append([batch_of(topic, [name])], keys(topic, name, keyed)) for name in ("a", "b", "a")
        ]
        offsets = [result.base_offsets[0] for result in results]
        assert offsets == ([1, 2, 1] if keyed else [1, 2, 3])
        assert other.passed == 3
        assert log.read_cached(topic, 0, 1, 1 << 20, 10) is not None
        values = await read_all(log, topic)
        assert values == ["x", "a", "b"] if keyed else ["x", "a", "b", "a"]


async def test_what_another_gateway_cannot_answer_or_would_hold_up_stays_here(module_database: str) -> None:
    topic = new_topic()
    async with two(module_database, answered) as (appends, _, other):
        await appends.append([batch_of(topic, ["arrow"])], key_of(topic, "k", b"1"))
        await appends.append([batch_of(topic, ["large" * 100_000])])
        await appends.append([batch_of(topic, [1]), batch_of(topic, [2], 1)])
        assert other.passed == 0


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("way", [killed_before, killed_behind, refused])
async def test_without_an_answer_this_gateway_appends_once(module_database: str, way: Passing, keyed: bool) -> None:
    topic = new_topic()
    async with two(module_database, way) as (appends, log, _):
        await append(log, topic, ["x"])
        for offset, name in enumerate("abc", 1):
            result = await appends.append([batch_of(topic, [name])], keys(topic, name, keyed))
            assert (result.base_offsets[0], result.answer) == (offset, produced_at([offset]) if keyed else None)
        assert await read_all(log, topic) == ["x", *"abc"]


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_gateway_that_continues_late_finds_what_was_appended(module_database: str, keyed: bool) -> None:
    topic, paused = new_topic(), Paused()
    async with two(module_database, paused) as (appends, log, _):
        await append(log, topic, ["x"])
        for name in "abc":
            await appends.append([batch_of(topic, [name])], keys(topic, name, keyed))
        await log.offsets(topic, [0])  # it has heard of them: its next append would fit
        assert [late.base_offset for late in await paused.run()] == [1, 2, 3]
        assert await read_all(log, topic) == ["x", *"abc"]


async def test_an_append_that_nobody_could_make_may_have_happened(module_database: str) -> None:
    """The try at the other gateway may have, so the error does not say that nothing was appended."""
    topic, logs = new_topic(), PostgresRecordLogs(module_database)
    async with logs.open(connections=1) as log, logs.open() as other, log.database.connections.lend(HANG_S):
        appends = Tireless(log, Other(other, killed_behind))
        with deadline(log, 0.3), pytest.raises(StorageError) as failed:
            await appends.append([batch_of(topic, ["a"])])
        assert not failed.value.definite
        assert await read_all(other, topic) == ["a"]


async def lost_at_random(log: PostgresRecordLog, other: PostgresRecordLog, rounds: int, seed: int) -> None:
    """Both gateways append, each at the other one, which is killed or paused before its commit or behind it."""
    topic, drawn, late = new_topic(), random.Random(seed), []

    async def way(appending: Appending) -> AppendHereResponse:
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

    both = Tireless(log, Other(other, way)), Tireless(other, Other(log, way))
    for first in range(0, rounds, 10):
        names = [str(number) for number in range(first, min(first + 10, rounds))]
        results = await asyncio.gather(
            *(
                drawn.choice(both).append([batch_of(topic, [name])], keys(topic, name, drawn.random() < 0.5))
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
    logs = PostgresRecordLogs(module_database)
    async with logs.open() as log, logs.open() as other:
        await lost_at_random(log, other, rounds, seed)
