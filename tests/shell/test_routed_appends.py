"""What crosses to the gateway that appends for another one."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey, PartitionAppend
from sharequeue_gateway.routing import appends as appends_module
from sharequeue_gateway.routing.appends import AVOIDED_S, RoutedAppends

from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.messages.leaders import AppendHereRequest, AppendHereResponse
from sharequeue_http.forms.errors import RequestTimedOut

TOPIC = "00000000-0000-0000-0000-000000000001"


class Other:
    """The other gateway: its appender, its metadata, and the client that calls it."""

    generation = None

    def __init__(self) -> None:
        self.appended: list[tuple[list[PartitionAppend], IdempotencyKey]] = []
        it: Any = self
        self.routed = RoutedAppends(it, it, it, it)

    def client(self, node: object) -> "Other":
        return self

    async def exist(self, topic_ids: Sequence[str]) -> bool:
        return True

    async def call(self, api: Any, request: AppendHereRequest, **_: object) -> AppendHereResponse:
        sent = msgspec.json.encode(request)
        return await self.routed.append_here(msgspec.json.decode(sent, type=AppendHereRequest))

    async def append(self, appends: list[PartitionAppend], key: IdempotencyKey) -> AppendResult:
        self.appended.append((appends, key))
        return AppendResult([7], key.answer([7]))


@pytest.mark.parametrize("lasting", [False, True])
def test_the_whole_key_crosses_how_long_it_is_known_too(lasting: bool) -> None:
    other, node = Other(), Node("other", "http://other:1")
    append = PartitionAppend(TOPIC, 3, [b',"timestamp_ms":1,"key":null,"value":1}'], 1)
    key = IdempotencyKey("User:a", "/p", TOPIC, "k", b"f", lambda _: b"", lasting, plain=True)
    asyncio.run(other.routed._append_at(node, append, key))
    (((appended,), crossed),) = other.appended
    assert appended == append
    assert crossed._replace(answer=key.answer, plain=True) == key


class Silent(Other):
    """A gateway that gives no answer. `calls`: how often it was asked."""

    calls = 0

    async def call(self, api: Any, request: AppendHereRequest, **_: object) -> AppendHereResponse:
        self.calls += 1
        raise RequestTimedOut("no answer in time")

    async def append(self, appends: list[PartitionAppend], key: IdempotencyKey | None) -> AppendResult:
        return AppendResult([7], None)


def test_a_gateway_that_gives_no_answer_gets_no_append_for_a_while() -> None:
    silent, node = Silent(), Node("other", "http://other:1")
    appends = [PartitionAppend(TOPIC, 3, [b',"timestamp_ms":1,"key":null,"value":1}'], 1)]
    silent.routed._looked_at[TOPIC, 3] = node

    async def run() -> None:
        for _ in range(3):
            await silent.routed.append(appends)
        assert silent.calls == 1
        silent.routed._avoided_until[node] -= AVOIDED_S
        await silent.routed.append(appends)
        assert silent.calls == 2

    asyncio.run(run())


class Unreadable(Other):
    """A gateway that cannot read who reads partitions. `looks`: how often it tried."""

    looks = 0

    async def groups_of(self, places: Sequence[object]) -> None:
        self.looks += 1
        raise StorageError("PostgreSQL is away")

    async def append(self, appends: list[PartitionAppend], key: IdempotencyKey | None) -> AppendResult:
        await asyncio.sleep(0)
        return AppendResult([7], None)


def test_appends_to_partitions_without_a_known_reader_cause_no_look_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appends_module, "LOOK_PAUSE_S", 3600)
    gateway = Unreadable()

    async def run() -> None:
        running = asyncio.create_task(gateway.routed.run())
        for partition in range(100):
            await gateway.routed.append([PartitionAppend(TOPIC, partition, [b",}"], 1)])
        running.cancel()
        assert gateway.looks == 0

    asyncio.run(run())
