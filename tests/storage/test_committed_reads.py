"""Reads of read_committed groups on PostgreSQL: where they end, what they leave out, and when they ask the log."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.log import PartitionAppend, ReadResult
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.reading.committed_reads import CommittedReads
from sharequeue_gateway.record_log.removing import purging
from sharequeue_gateway.record_log.removing.compacting import Replacement
from sharequeue_gateway.record_log.retention_rule import RetentionRule

from sharequeue_http.forms.errors import InvalidRequest
from tests.storage import transactions_by_hand as by_hand
from tests.storage.database import session
from tests.storage.record_logs import Heard, PostgresRecordLogs, append, new_topic, tail

WHOLE = (1 << 20, 1000)


async def committed(log: PostgresRecordLog, topic: str, offset: int = 0) -> ReadResult:
    """As a fetch reads: from memory if it can tell, otherwise from the database."""
    return log.read_cached(topic, 0, offset, *WHOLE, True) or await log.read(topic, 0, offset, *WHOLE, True)


def values(read: ReadResult) -> str:
    """The values that a read_committed reader receives."""
    kept = [batch.slice(batch.base_offset, batch.last_offset) for batch in read.batches if not batch.aborted]
    return "".join(record["value"] for part in kept for record in json.loads(b"[" + part + b"]"))


async def test_without_transactions_the_log_is_never_asked(database: str) -> None:
    """Appends here and elsewhere, reads from memory and from the database, heard ends, a restart."""
    topic = new_topic()
    logs = PostgresRecordLogs(database)
    async with logs.open() as here, logs.open() as elsewhere:
        await append(here, topic, "ab")
        assert values(await committed(here, topic)) == "ab"
        await append(elsewhere, topic, "cd")
        here.hear_of(topic, 0, 4)
        assert here.read_cached(topic, 0, 2, *WHOLE, True) is None, "an end that was heard proves nothing"
        assert values(await committed(here, topic, 2)) == "cd"
        assert values(await committed(elsewhere, topic)) == "abcd"
        assert (await committed(here, topic, 4)).end_offset == 4
        assert here.committed_reads.questions == elsewhere.committed_reads.questions == 0
    async with logs.open() as again:
        assert values(await committed(again, topic)) == "abcd"
        assert again.committed_reads.questions == 0


async def test_tx_007_a_read_ends_at_the_oldest_open_transaction(database: str) -> None:
    topic = new_topic()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:
        await append(log, topic, "abcde")
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "xy", transaction)
        await by_hand.append(connection, (topic, 0), "fg")
        await log.look([(topic, 0)])
        read = await committed(log, topic)
        assert (values(read), read.end_offset, read.log_end_offset) == ("abcde", 5, 9)
        assert (await committed(log, topic, 5)).batches == ()
        assert (await committed(log, topic, 7)).batches == ()
        assert values(await log.read(topic, 0, 0, *WHOLE)) == "abcdexyfg", "an uncommitted read has everything"


async def test_a_page_right_after_a_commit_is_whole(database: str) -> None:
    """The gateway has judged the log up to the transaction, and hears only of the end behind its marker."""
    topic = new_topic()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:
        await append(log, topic, "abc")
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "xy", transaction)
        await by_hand.end(connection, transaction, commit=True)
        log.hear_of(topic, 0, 6)
        assert values(await log.read(topic, 0, 0, *WHOLE, True)) == "abcxy"
        assert log.committed_reads.questions == 1
        read = log.read_cached(topic, 0, 0, *WHOLE, True)
        assert read is not None
        assert values(read) == "abcxy"


@pytest.mark.parametrize(("commit", "rest"), [(True, "xyfg"), (False, "fg")])
async def test_the_marker_is_news_and_shows_the_rest(database: str, commit: bool, rest: str) -> None:
    topic = new_topic()
    heard = Heard()
    async with (
        session(database) as connection,
        PostgresRecordLogs(database).open(listener=heard, interest=lambda: [(topic, 0)]) as log,
    ):
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "xy", transaction)
        await by_hand.append(connection, (topic, 0), "fg")
        read = await committed(log, topic)
        assert (values(read), read.end_offset) == ("", 0)
        heard.take_changes()
        await by_hand.end(connection, transaction, commit=commit)
        async with asyncio.timeout(60):
            assert await heard.changes.get() == (topic, 0)
        assert values(await committed(log, topic)) == rest
        questions = log.committed_reads.questions
        assert values(await committed(log, topic)) == rest
        assert log.committed_reads.questions == questions, "the answer holds until the end moves"


async def test_readers_of_a_partition_share_a_question(database: str) -> None:
    topic = new_topic()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "xy", transaction)
        await by_hand.end(connection, transaction, commit=False)
        await append(log, topic, "z")
        reads = await asyncio.gather(*(log.read(topic, 0, 0, *WHOLE, True) for _ in range(50)))
        assert [values(read) for read in reads] == ["z"] * 50
        assert log.committed_reads.questions == 1


async def test_three_gateways_obey_when_news_are_late(database: str) -> None:
    """Each hears only of ends, in the wrong order, after the transaction has ended and another one has begun."""
    topic = new_topic()
    logs = PostgresRecordLogs(database)
    async with session(database) as connection, logs.open() as first, logs.open() as second, logs.open() as third:
        gateways: Sequence[PostgresRecordLog] = (first, second, third)
        for log in gateways:
            await log.learn_ends([(topic, 0)])
        one = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "ab", one)
        await by_hand.end(connection, one, commit=False)
        two = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "cd", two)
        await append(third, topic, "ef")
        for log, ends in zip(gateways, ([7, 2, 3], [3], []), strict=True):
            for end in ends:
                log.hear_of(topic, 0, end)
            assert (values(await committed(log, topic)), (await committed(log, topic)).end_offset) == ("", 3)
        await by_hand.end(connection, two, commit=True)
        for log in gateways:
            log.hear_of(topic, 0, 8)
            # memory has the aborted records, and the reader goes on; if the watch has just looked, the log is asked
            assert values(await committed(log, topic)) in ("", "cdef")
            assert values(await committed(log, topic, 3)) == "cdef"


async def test_deleted_records_of_an_open_transaction_hold_nothing_below_the_log_start(database: str) -> None:
    topic = new_topic()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "xy", transaction)
        await append(log, topic, "ab")
        await log.delete_records(topic, {0: 2})
        read = await committed(log, topic, 2)
        assert read.log_start_offset == 2
        await by_hand.end(connection, transaction, commit=False)
        log.hear_of(topic, 0, 5)
        assert values(await committed(log, topic, 2)) == "ab"


async def test_a_log_start_within_a_batch_shows_nothing_of_its_open_transaction(database: str) -> None:
    topic = new_topic()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "wxyz", transaction)
        await log.delete_records(topic, {0: 2})
        await by_hand.append(connection, (topic, 0), "a")
        log.hear_of(topic, 0, 5)
        read = await committed(log, topic, 2)
        assert (list(read.batches), read.end_offset) == ([], 2)
        await by_hand.end(connection, transaction, commit=True)
        log.hear_of(topic, 0, 6)
        assert values(await committed(log, topic, 2)) == "wxyza"


async def test_an_answer_that_is_outdated_says_nothing_about_the_end(database: str) -> None:
    """Else a fetch would sleep for ever: the end of the transaction was news before it read this answer."""
    topic = new_topic()
    asked, go_on = asyncio.Event(), asyncio.Event()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:

        async def slowly(*question: object) -> object:
            answer = await log.database.query(*question)  # type: ignore[arg-type]
            asked.set()
            await go_on.wait()
            return answer

        log.committed_reads = CommittedReads(slowly, log._known)
        await log.learn_ends([(topic, 0)])
        before = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "ab", before)
        await by_hand.end(connection, before, commit=True)
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "xy", transaction)
        log.hear_of(topic, 0, 5)
        reading = asyncio.create_task(log.read(topic, 0, 0, *WHOLE, True))
        await asked.wait()
        await by_hand.end(connection, transaction, commit=True)
        log.hear_of(topic, 0, 6)
        await log.look([(topic, 0)])
        go_on.set()
        read = await reading
        assert (values(read), read.end_offset) == ("ab", 6)
        assert values(await committed(log, topic, 3)) == "xy"


# Markers: the last, the first and the only row


async def test_retention_by_size_keeps_the_newest_records_and_not_only_a_marker(database: str) -> None:
    topic = new_topic()
    async with session(database) as connection:
        await by_hand.append(connection, (topic, 0), "a")
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "b", transaction)
        await by_hand.end(connection, transaction, commit=True)
        assert await store.start_by_bytes(connection, topic, 0, 1) == 1


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
async def test_retention_by_age_passes_markers(database: str, commit: bool) -> None:
    topic = new_topic()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "ab", transaction)
        await by_hand.end(connection, transaction, commit=commit)
        newer = await log.appender.append([PartitionAppend(topic, 0, [tail("c")], 10**12)])
        assert list(newer.base_offsets) == [3]
        rule = RetentionRule(retention_ms=1000)
        (removed,) = await log.apply_retention(topic, [0], rule, 10**12 + 500)
        assert removed.log_start_offset == 3, "the marker goes with the records before it"
        assert values(await committed(log, topic, 3)) == "c"
        (removed,) = await log.apply_retention(topic, [0], rule, 10**12 + 5000)
        assert removed.log_start_offset == 4
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "d", transaction)
        await by_hand.end(connection, transaction, commit=commit)
        await log.delete_records(topic, {0: 5})
        (removed,) = await log.apply_retention(topic, [0], rule, 10**12 + 5000)
        assert removed.log_start_offset == 6, "a marker that is the only row"
        assert await append(log, topic, "e") == 6


async def test_compaction_lists_aborted_batches_and_refuses_markers_and_what_is_not_stable(database: str) -> None:
    topic = new_topic()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "ab", transaction)
        await by_hand.end(connection, transaction, commit=False)
        await append(log, topic, "c")
        await by_hand.append(connection, (topic, 0), "d", await by_hand.begin(connection))
        await append(log, topic, "e")
        listed, bounds = await log.compaction.batches(topic, 0, 0, 100)
        assert [(batch.base_offset, batch.aborted) for batch in listed] == [
            (0, True),
            (2, False),
            (3, False),
            (4, False),
            (5, False),
        ]
        assert bounds.last_stable_offset == 4
        with pytest.raises(InvalidRequest, match="2 is the marker of a transaction"):
            await log.compaction.replace(topic, 0, [Replacement(2, 0, [(2, 2)])])
        with pytest.raises(Exception, match="reaches the last stable offset 4"):
            await log.compaction.replace(topic, 0, [Replacement(4, 0, [(4, 4)])])
        await log.compaction.replace(topic, 0, [Replacement(0, 0, [(0, 1)])])
        assert values(await log.read(topic, 0, 0, *WHOLE)) == "cde"
        assert values(await committed(log, topic)) == "c"


async def test_an_aborted_transaction_is_remembered_until_its_marker_is_purged(database: str) -> None:
    topic = new_topic()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "ab", transaction)
        await by_hand.end(connection, transaction, commit=False)
        await append(log, topic, "c")
        for start, left in ((1, 1), (2, 1), (3, 0)):
            await log.delete_records(topic, {0: start})
            for _ in range(2):  # the first round ends at the mark of the earlier start
                for stage, _ in purging.STAGES[:4]:
                    await stage(connection, 100, 0)
            assert (
                await connection.fetchval("SELECT count(*) FROM log.aborted_transactions WHERE topic_id = $1", topic)
                == left
            )
            if left:
                async with PostgresRecordLogs(database).open() as restarted:
                    assert values(await committed(restarted, topic, start)) == "c"


async def test_aborted_transactions_of_a_deleted_topic_are_forgotten(database: str) -> None:
    topic = new_topic()
    async with session(database) as connection, PostgresRecordLogs(database).open() as log:
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "ab", transaction)
        await by_hand.end(connection, transaction, commit=False)
        await log.delete_topic(topic, 1)
        await purging.remove_aborted(connection, 100, 60)
        assert (
            await connection.fetchval("SELECT count(*) FROM log.aborted_transactions WHERE topic_id = $1", topic) == 0
        )
