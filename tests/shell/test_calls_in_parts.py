"""A call that works in parts, and fails behind one that happened: its error is no definite one, so it is audited."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from sharequeue_gateway.delivery.stored_records import StoredRecord
from sharequeue_gateway.http.single_records.dead_letters import FoundLetter
from sharequeue_gateway.http.single_records.dead_letters_api import DeadLettersApi
from sharequeue_gateway.http.single_records.redrive_api import Redriving
from sharequeue_gateway.kafka_log.log import KafkaRecordLog
from sharequeue_gateway.record_log.log import CLOSED, DeadLetterKey

from sharequeue.protocol import apis
from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import Throttled

FOUND = FoundLetter(
    StoredRecord(value=msgspec.Raw(b"1"), headers={"__dlq.errors.topic": "t"}),
    DeadLetterKey(SharePartitionKey("g", "id", 0), CLOSED, 0, 1),
    False,
)


class Finder:
    """Finds one dead letter after another, and then no more."""

    def __init__(self, parts: int) -> None:
        self._parts = parts

    async def take(self, *_: object) -> AsyncIterator[tuple[list[FoundLetter], object]]:
        for _part in range(self._parts):
            yield [FOUND], UNSET
        raise Throttled("nothing more of this can happen now")


@pytest.mark.parametrize("api", [apis.REDRIVE_DEAD_LETTERS, apis.DROP_DEAD_LETTERS], ids=lambda api: api.operation_id)
@pytest.mark.parametrize(
    ("parts", "options", "definite"),
    [
        pytest.param(0, {}, True, id="nothing happened"),
        pytest.param(1, {}, False, id="a part happened"),
        pytest.param(1, {"dry_run": True}, True, id="a dry run"),
    ],
)
def test_an_error_behind_a_part_is_not_definite(api: Api, parts: int, options: dict[str, Any], definite: bool) -> None:
    async def done(*_: object, **__: object) -> int:
        return 1

    async def topic(_: str) -> Any:
        return SimpleNamespace(topic_id="id", partitions=1)

    metadata: Any = SimpleNamespace(config=lambda _: SimpleNamespace(read_committed=False), topic=topic)
    letters: Any = SimpleNamespace(append=done, close=done)
    finder: Any = Finder(parts)
    handlers = {
        apis.REDRIVE_DEAD_LETTERS: Redriving(metadata, None, letters, finder).redrive_dead_letters,  # type: ignore[arg-type]
        apis.DROP_DEAD_LETTERS: DeadLettersApi(metadata, letters, finder).drop_dead_letters,
    }
    exchange: Any = None
    call = Call(exchange, {"group": "g"}, b"", api.request(**options), "id")
    with pytest.raises(Throttled) as failed:
        asyncio.run(handlers[api](call))
    assert failed.value.definite is definite


def test_a_deletion_in_kafka_whose_new_ends_are_not_read_has_happened() -> None:
    async def removed(wanted: Any) -> Any:
        return wanted

    async def away(_: object) -> None:
        raise StorageError("Kafka cannot be used now", definite=True)

    log: Any = SimpleNamespace(_cluster=SimpleNamespace(delete_records=removed), reads=SimpleNamespace(read_ends=away))
    with pytest.raises(StorageError) as failed:
        asyncio.run(KafkaRecordLog.delete_records(log, "id", {0: 5}))
    assert not failed.value.definite
