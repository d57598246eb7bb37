"""Batches that are stored compressed: every way to write them, pages, sizes, replacements."""

import asyncio
import base64
import json
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sharequeue_gateway.record_log import append_store, store
from sharequeue_gateway.record_log.compression import unpacked
from sharequeue_gateway.record_log.log import OffsetOutOfRange, PartitionAppend
from sharequeue_gateway.record_log.owner import ANY_OWNER
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.removing.compacting import Replacement
from sharequeue_gateway.record_log.stored_batch import PackedBatch
from sharequeue_gateway.record_log.transactions.settlements import Settlement, Settling
from sharequeue_gateway.record_log.transactions.transaction_rules import ABORT, COMMIT
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction

from sharequeue import slices
from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.types import SharePartitionKey
from tests.storage.database import session
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import PostgresRecordLogs, append, append_all, batch_of, new_topic, read_all, tail
from tests.storage.test_compacting import replaced

MIB = 1 << 20
PAGES_OF_A_MIB = 256
SMALL, LARGE = "small", "large " * 2000
RANDOM = base64.b64encode(random.Random(1).randbytes(9000)).decode()
"""Base64 of random bytes, of which LZ4 makes nothing smaller."""
MIXED = [SMALL, LARGE, RANDOM, LARGE, SMALL]


async def rows(connection: Any, topic: str, partition: int = 0) -> list[tuple[int | None, int]]:
    """The sizes of each batch: uncompressed, and stored. Markers are left out."""
    found = await connection.fetch(
        """SELECT uncompressed_bytes, octet_length(records) FROM log.record_batches
           WHERE topic_id = $1 AND partition = $2 AND attributes & 32 = 0 ORDER BY base_offset""",
        topic,
        partition,
    )
    return [tuple(row) for row in found]


async def test_no_vacuum_follows_the_inserts_of_large_batches(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        options = await connection.fetchval(
            """SELECT t.reloptions FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid
               WHERE c.oid = 'log.record_batches'::regclass"""
        )
    finally:
        await connection.close()
    assert options == ["autovacuum_vacuum_insert_threshold=-1"]


def page_faults(process_id: int) -> int:
    """How often a process got a page of memory."""
    return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[7])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_large_batches_are_stored_with_memory_of_earlier_ones(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("CREATE TEMP TABLE batches (records bytea)")
        faults = []
        for _ in range(5):
            rows = [(bytes(MIB),)] * 4
            await connection.copy_records_to_table("batches", records=rows, where="false")
            faults.append(page_faults(connection.get_server_pid()))
    finally:
        await connection.close()
    assert faults[-1] - faults[2] < PAGES_OF_A_MIB


async def begin(log: PostgresRecordLog) -> str:
    return (await log.transactions.begin(NewTransaction(60_000, durable=False))).transaction_id


def keyed(topic: str, number: int) -> Any:
    return key_of(topic, str(number), b"body")


async def one_by_one(log: PostgresRecordLog, topic: str, transaction: str | None) -> None:
    for value in MIXED:
        await append_all(log, [PartitionAppend(topic, 0, [tail(value)], 0, None, transaction)])


async def with_a_key(log: PostgresRecordLog, topic: str, transaction: str | None) -> None:
    for number, value in enumerate(MIXED):
        appends = [PartitionAppend(topic, partition, [tail(value)], 0, None, transaction) for partition in (0, 1)]
        await append_all(log, appends, keyed(topic, number))


def in_one_commit(count: int) -> Callable[[PostgresRecordLog, str, str | None], Awaitable[None]]:
    """As the appender does for `count` appends that wait."""

    async def appended(log: PostgresRecordLog, topic: str, transaction: str | None) -> None:
        values = [MIXED[number % len(MIXED)] for number in range(count)]
        end = (await log.offsets(topic, [0]))[0].log_end_offset
        batches = [
            (topic, 0, RecordBatch.encode(end + n, [tail(value)], 0, None, transaction), append_store.new_append_id())
            for n, value in enumerate(values)
        ]
        owners = {} if transaction is None else {batch[3]: ANY_OWNER for batch in batches}
        async with log.database.connections.lend(5) as connection:
            inserted = await append_store.append(connection, batches, {}, owners)
        assert inserted == {batch[3]: True for batch in batches}

    return appended


async def while_settling(log: PostgresRecordLog, topic: str, _: str | None) -> None:
    for value in MIXED:
        transaction = await begin(log)
        settling = Settling(b"digest", [Settlement(SharePartitionKey("g", topic, 7), 1, 1, b"[]")])
        await log.transactions.append_and_settle(transaction, settling, [batch_of(topic, [value])], None)


WAYS = {
    "one by one": one_by_one,
    "with a key": with_a_key,
    "a few in one commit": in_one_commit(append_store.FEW),
    "many in one commit": in_one_commit(append_store.FEW + 7),
    "while settling": while_settling,
}


@pytest.mark.parametrize(
    ("way", "transactional", "copied"),
    [
        *((way, False, False) for way in WAYS),
        ("one by one", True, False),
        ("with a key", True, True),
        ("while settling", False, True),
    ],
)
async def test_every_way_to_append_compresses_what_becomes_smaller(
    module_database: str, monkeypatch: pytest.MonkeyPatch, way: str, transactional: bool, copied: bool
) -> None:
    if copied:
        monkeypatch.setattr(store, "COPIED_BYTES", 0)
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["first"])
        transaction = await begin(log) if transactional else None
        await WAYS[way](log, topic, transaction)
        if transaction is not None:
            await log.transactions.end(transaction, COMMIT)
        found = (await rows(admin, topic))[1:]
        values = [MIXED[number % len(MIXED)] for number in range(len(found))]
        assert [uncompressed is not None for uncompressed, _ in found] == [value == LARGE for value in values]
        for value, (uncompressed, stored) in zip(values, found, strict=True):
            if value == LARGE:
                assert uncompressed is not None
                assert len(LARGE) < uncompressed < len(LARGE) + 100
                assert stored < len(LARGE) / 50
            else:
                assert stored >= len(value)
    async with PostgresRecordLogs(module_database).open() as fresh:
        read = await fresh.read(topic, 0, 1, MIB, 1000, committed=True)
        kept = [json.loads(batch.slice(batch.base_offset, batch.last_offset) or "{}") for batch in read.batches]
        assert [record["value"] for record in kept if record] == values
        assert all(batch.aborted is not True for batch in read.batches)


@pytest.mark.parametrize("transaction", [None, "tx-\u00fc"])
async def test_large_appends_store_the_same_rows_as_small_ones(
    module_database: str, monkeypatch: pytest.MonkeyPatch, transaction: str | None
) -> None:
    """Large ones are sent by COPY, in messages that may have many rows, or a part of one."""
    large = [base64.b64encode(random.Random(size).randbytes(size)).decode() for size in (50_000, 200_000, 90_000)]
    texts = [*MIXED, *large, "", LARGE * 30]
    found = []
    async with session(module_database) as admin:
        for copied_bytes in (0, 1 << 40):
            monkeypatch.setattr(store, "COPIED_BYTES", copied_bytes)
            topic = new_topic()
            batches = [
                (topic, number, RecordBatch.encode(number << 40, [tail(text)], number << 41), f"{number:032x}")
                for number, text in enumerate(texts)
            ]
            await store.insert(admin, batches, MIB, transaction)
            stored = await admin.fetch("SELECT * FROM log.record_batches WHERE topic_id = $1 ORDER BY partition", topic)
            found.append([{**row, "topic_id": None} for row in stored])
    assert found[0] == found[1]
    assert len(found[0]) == len(texts)


async def test_a_large_batch_is_sent_before_the_next_one_is_made() -> None:
    """So PostgreSQL stores one while the gateway encodes the next, under the locks of their partitions."""
    made: list[int] = []
    value = base64.b64encode(random.Random(1).randbytes(MIB)).decode()

    def batches() -> Iterator[store.Row]:
        for partition in range(3):
            made.append(partition)
            yield new_topic(), partition, RecordBatch.encode(0, [tail(value)], 0), f"{partition:032x}"

    class Server:
        async def copy_to_table(self, *_: object, source: AsyncIterator[bytes], **__: object) -> None:
            self.made_by_then = [len(made) async for _ in source]

    server = Server()
    await store.insert(server, batches(), MIB)
    assert server.made_by_then[0] == 1
    assert server.made_by_then[-1] == 3


async def test_other_tasks_run_between_the_batches_of_a_large_insert(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket takes all of them at once, because LZ4 leaves little."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    turn = 0
    made: list[int] = []

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def batches() -> Iterator[store.Row]:
        for partition in range(8):
            made.append(turn)
            yield new_topic(), partition, RecordBatch.encode(0, [tail(LARGE)] * 40, 0), f"{partition:032x}"

    class Server:
        async def copy_to_table(self, *_: object, source: AsyncIterator[bytes], **__: object) -> None:
            assert sum([len(message) async for message in source]) < MIB

    others = asyncio.create_task(count())
    await store.insert(Server(), batches(), 4 * MIB)
    others.cancel()
    assert len(set(made)) == len(made) == 8


async def test_a_page_is_bounded_by_the_bytes_that_it_takes_in_memory(module_database: str) -> None:
    """Each batch is 1 MiB, and takes 4 KiB in the database."""
    topic, value = new_topic(), "0" * MIB
    async with session(module_database) as admin:
        async with PostgresRecordLogs(module_database).open() as log:
            for _ in range(20):
                await append(log, topic, [value])
        assert sum(stored for _, stored in await rows(admin, topic)) < MIB / 8
        for max_bytes, wanted in ((1, 1), (MIB, 1), (4 * MIB, 4)):
            assert len(await store.read(admin, topic, 0, 0, max_bytes)) == wanted
            assert len(await store.read(admin, topic, 0, 7, max_bytes)) == wanted, "from the middle"
            assert len(await store.read_packed(admin, topic, 0, 7, 4 * MIB, max_bytes, 1000)) == wanted, "as stored"
    async with PostgresRecordLogs(module_database).open(cache_bytes=2 * MIB) as fresh:
        for committed in (False, True):
            read = await fresh.read(topic, 0, 0, 3 * MIB, 1000, committed)
            assert sum(batch.size for batch in read.batches) < 4 * MIB
            assert fresh._cache.bytes < 2 * MIB + 1000
        assert await read_all(fresh, topic) == [value] * 20


async def test_a_reader_of_packed_batches_gets_those_that_it_can_take_whole_as_they_are_stored(
    module_database: str,
) -> None:
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, [LARGE, LARGE])
        await append(log, topic, [SMALL])
        await append(log, topic, [RANDOM])
        await append(log, topic, [LARGE, LARGE, LARGE])
    async with PostgresRecordLogs(module_database).open() as fresh:

        async def forms(offset: int, max_bytes: int = MIB, max_records: int = 1000) -> list[str]:
            read = await fresh.read_packed(topic, 0, offset, max_bytes, max_records)
            as_usual = await fresh.read(topic, 0, offset, max_bytes, max_records)
            found = [(each.base_offset, each.last_offset) for each in read.batches]
            assert found == [(each.base_offset, each.last_offset) for each in as_usual.batches]
            for batch, usual in zip(read.batches, as_usual.batches, strict=True):
                stored = unpacked(batch.block, batch.size) if isinstance(batch, PackedBatch) else batch.stored
                assert stored == usual.stored
            return ["packed" if isinstance(each, PackedBatch) else "readable" for each in read.batches]

        assert await forms(0) == ["packed", "readable", "readable", "packed"]
        assert fresh._cache.bytes > 0, "of the usual reads"
        assert await forms(1) == ["readable", "readable", "readable", "packed"]
        assert await forms(2, max_records=4) == ["readable", "readable", "readable"]
        assert await forms(2, max_records=5) == ["readable", "readable", "packed"]
        assert (await forms(0, max_bytes=2 * len(LARGE)))[0] == "readable"
        assert (await forms(0, max_bytes=2 * len(LARGE) + 1000))[0] == "packed"
        await fresh.delete_records(topic, {0: 5})
        assert await forms(5) == ["readable"]
        with pytest.raises(OffsetOutOfRange):
            await fresh.read_packed(topic, 0, 4, MIB, 1000)


async def test_a_read_of_packed_batches_keeps_nothing_in_memory(module_database: str) -> None:
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, MIXED)
    async with PostgresRecordLogs(module_database).open() as fresh:
        assert len((await fresh.read_packed(topic, 0, 0, MIB, 1000)).batches) == 1
        assert fresh._cache.bytes == 0


async def test_packed_batches_are_read_as_far_as_they_are_committed(module_database: str) -> None:
    """Their transactions: none, an aborted one, a committed one, an open one."""
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        aborted, committed, still_open = [await begin(log) for _ in range(3)]
        for transaction in (None, aborted, committed, still_open):
            await append_all(log, [PartitionAppend(topic, 0, [tail(LARGE)], 0, None, transaction)])
        await log.transactions.end(aborted, ABORT)
        await log.transactions.end(committed, COMMIT)
    async with PostgresRecordLogs(module_database).open() as fresh:
        read = await fresh.read_packed(topic, 0, 0, MIB, 1000, committed=True)
        assert [isinstance(each, PackedBatch) for each in read.batches] == [True, True, True]
        assert [bool(each.aborted) for each in read.batches] == [False, True, False]
        assert read.end_offset == 3
        everything = await fresh.read_packed(topic, 0, 0, MIB, 1000)
        assert [isinstance(each, PackedBatch) for each in everything.batches] == [True] * 4 + [False] * 2


async def test_retention_by_size_counts_stored_bytes(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        for value in (LARGE, LARGE, LARGE):
            await append(log, topic, [value])
        stored = [size for _, size in await rows(admin, topic)]
        assert await store.start_by_bytes(admin, topic, 0, sum(stored)) == 0
        assert await store.start_by_bytes(admin, topic, 0, sum(stored) - 1) == 1


@pytest.mark.parametrize(("kept", "compressed"), [(3, True), (0, False)], ids=["still large", "small"])
async def test_a_replaced_batch_is_stored_as_a_new_one_would_be(
    module_database: str, kept: int, compressed: bool
) -> None:
    topic = new_topic()
    async with session(module_database) as admin:
        async with PostgresRecordLogs(module_database).open() as log:
            await append(log, topic, [f"{number}{LARGE}" for number in range(5)])
            await append(log, topic, ["newest"])
            replacement = Replacement(0, 0, [(kept, 4)])
            for _ in range(2):
                assert await log.compaction.replace(topic, 0, [replacement]) == [replaced(0, 1, kept)]
        uncompressed_bytes = (await rows(admin, topic))[0][0]
        assert (uncompressed_bytes is not None) == compressed
    async with PostgresRecordLogs(module_database).open() as fresh:
        batch, _ = (await fresh.read(topic, 0, 0, MIB, 10)).batches
        found = [json.loads(batch.slice(offset, offset)) for offset in range(kept)]
        assert [record["value"] for record in found] == [f"{number}{LARGE}" for number in range(kept)]
        assert batch.absent(0, 4) == [(kept, 4)]


@pytest.mark.parametrize(
    "fault",
    ["records = substr(records, 1, 60)", "uncompressed_bytes = 2147483647", "uncompressed_bytes = NULL"],
    ids=["cut", "another size", "without its size"],
)
async def test_a_corrupt_block_is_a_fault_of_the_store(module_database: str, fault: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, [LARGE])
        await append(log, topic, ["newest"])
        await admin.execute(f"UPDATE log.record_batches SET {fault} WHERE topic_id = $1 AND base_offset = 0", topic)
    place = rf"offsets 0 to 0 in partition 0 of the topic with the id {topic} cannot be decoded \(batch 0: "
    async with PostgresRecordLogs(module_database).open() as fresh:
        with pytest.raises(StorageError, match=place):
            await fresh.read(topic, 0, 0, MIB, 10)
        with pytest.raises(StorageError, match=place):
            await fresh.offset_for_timestamp(topic, 0, 0)
        with pytest.raises(StorageError, match=place):
            await fresh.compaction.replace(topic, 0, [Replacement(0, 0, [(0, 0)])])
        assert (await fresh.read(topic, 0, 1, MIB, 10)).batches[0].base_offset == 1
