"""Parts of transactions: the commit of the whole says which count, and every other end aborts them."""

import asyncio
import uuid

import pytest
from msgspec import structs
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.transactions.ending import End
from sharequeue_gateway.record_log.transactions.transaction_rules import ABORT, COMMIT, TERMINATE, TIME_OUT, Wish
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction

from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue_http.forms.errors import ApiError
from tests.storage.database import session
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import append_all, batch_of, new_topic
from tests.storage.test_transaction_races import locked, waiting
from tests.storage.test_transactions import MINUTE_MS, begin, ended, let_pass, opened, produce, rows, stable, stored


async def parts_of(log: PostgresRecordLog, whole: str, count: int) -> list[str]:
    return [(await log.transactions.begin(NewTransaction(1, part_of=whole))).transaction_id for _ in range(count)]


async def visible(log: PostgresRecordLog, topic: str, partition: int = 0) -> list[int]:
    """The offsets whose records a reader of committed records sees."""
    read = await log.read(topic, partition, 0, 1 << 20, 1000, committed=True)
    return [batch.base_offset for batch in read.batches if batch.record_count and not batch.aborted]


async def refused(log: PostgresRecordLog, transaction: str, *parts: str) -> ApiError:
    with pytest.raises(ApiError) as fault:
        await log.transactions.end(transaction, COMMIT, parts=parts)
    return fault.value


async def test_a_commit_shows_the_parts_that_it_names_and_no_other(database_url: str) -> None:
    """TX: two attempts of one task wrote, and the second one counts."""
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        whole = await begin(log, transactional_id="job")
        lost, kept, also = await parts_of(other, whole, 3)
        for transaction in (lost, kept, also, whole, lost):
            await produce(log, transaction, topic, 0, 1)
        assert await visible(other, topic) == []
        assert (await stable(admin, topic))[0] == 0
        committed = await log.transactions.end(whole, COMMIT, parts=[kept, also], note="batch 7")
        assert committed.partitions == 2
        assert await visible(other, topic) == [1, 2, 3]
        assert await visible(log, topic, 1) == [1, 2, 3]
        marks = [row[2:] for row in await stored(admin, topic) if row[0] == 0 and row[2] > 16]
        assert marks == [(112, whole), (48, lost)], "one marker for the whole and the parts that count"
        assert (await stable(admin, topic)) == (7, 7)
        assert await ended(other, whole, COMMIT, parts=[kept, also]) == ("committed", "client"), "a repeat"
        assert await ended(log, kept, COMMIT) == ("committed", "client"), "what became of a part"
        assert await ended(log, lost, COMMIT) == (48, True, "aborted", "client")
        assert (await rows(admin))["transactions"] == 0
        assert (await log.transactions.begin(NewTransaction(MINUTE_MS, "job"))).committed_note == "batch 7"


async def test_a_commit_of_empty_parts_keeps_its_note(database_url: str) -> None:
    async with session(database_url) as admin, opened(database_url) as log:
        whole = await begin(log, transactional_id="job")
        parts = await parts_of(log, whole, 2)
        committed = await log.transactions.end(whole, COMMIT, parts=parts[:1], note="n")
        assert committed.partitions == 0
        assert await ended(log, parts[0], COMMIT) == ("committed", "client")
        assert await ended(log, parts[1], ABORT) == ("aborted", "client")
        assert (await rows(admin))["transaction_partitions"] == 0


@pytest.mark.parametrize(("wish", "reason"), [(ABORT, "client"), (TERMINATE, "administrator"), (TIME_OUT, "timed_out")])
async def test_every_other_end_of_the_whole_aborts_its_parts(database_url: str, wish: Wish, reason: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        whole = await begin(log)
        parts = await parts_of(log, whole, 3)
        for transaction in parts[:2]:
            await produce(log, transaction, topic)
        await log.transactions._ending.end(whole, End(wish))
        assert (await stable(admin, topic)) == (4, 4)
        assert await visible(log, topic) == []
        for part in parts:
            answer = await ended(log, part, COMMIT)
            assert answer[-2:] == ("aborted", reason)


async def test_a_new_producer_aborts_the_parts_of_the_earlier_one(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        whole = await begin(log, transactional_id="job")
        (part,) = await parts_of(log, whole, 1)
        await produce(log, part, topic)
        await begin(log, transactional_id="job")
        assert (await stable(admin, topic)) == (2, 2)
        assert await ended(log, part, COMMIT) == (90, True, "aborted", "fenced")
        assert KAFKA_CODES[(await refused(log, whole, part)).error] == 90
        with pytest.raises(ApiError) as late:
            await parts_of(log, whole, 1)
        assert KAFKA_CODES[late.value.error] in (48, 90)
        with pytest.raises(ApiError):
            await produce(log, part, topic)


async def test_a_part_that_has_ended_refuses_the_commit_and_nothing_ends(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        whole, foreign = await begin(log), await begin(log)
        dead, alive = await parts_of(log, whole, 2)
        for transaction in (dead, alive, foreign):
            await produce(log, transaction, topic)
        assert await ended(log, dead, ABORT) == ("aborted", "client")
        for wrong in (dead, foreign, str(uuid.uuid4()), whole):
            fault = await refused(log, whole, alive, wrong)
            assert (KAFKA_CODES[fault.error], fault.extra["state"]) == (48, "open")
            assert wrong in fault.detail
        assert KAFKA_CODES[(await refused(log, alive)).error] == 48, "a part is not committed by itself"
        assert (await stable(admin, topic))[0] == 1
        assert await ended(log, whole, COMMIT, parts=[alive]) == ("committed", "client")
        await log.transactions.end(foreign, ABORT)
        assert await visible(log, topic) == [1]


async def test_parts_pass_with_the_time_of_the_whole(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        whole = await begin(log)
        (part,) = await parts_of(log, whole, 1)
        deadlines = await admin.fetch("SELECT DISTINCT deadline FROM log.transactions")
        assert len(deadlines) == 1
        await produce(log, part, topic)
        for transaction in (whole, part):
            await let_pass(admin, transaction)
        late = await refused(log, whole, part)
        assert (KAFKA_CODES[late.error], late.extra["reason"]) == (48, "timed_out")
        assert await visible(log, topic) == []
        second = await begin(log)
        (part,) = await parts_of(log, second, 1)
        await produce(log, part, topic)
        for transaction in (second, part):
            await let_pass(admin, transaction)
        with pytest.raises(ApiError) as past:
            await parts_of(log, second, 1)
        assert past.value.extra["reason"] == "timed_out"
        await log.transactions.sweep()
        assert (await stable(admin, topic)) == (4, 4)
        assert (await rows(admin))["transaction_partitions"] == 0


async def test_a_part_has_no_parts(database_url: str) -> None:
    async with opened(database_url) as log:
        (part,) = await parts_of(log, await begin(log), 1)
        for wrong, code in ((part, 48), (str(uuid.uuid4()), 105)):
            with pytest.raises(ApiError) as fault:
                await parts_of(log, wrong, 1)
            assert KAFKA_CODES[fault.value.error] == code


async def test_a_commit_waits_for_an_append_to_a_part_that_it_names(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        whole = await begin(log)
        (part,) = await parts_of(log, whole, 1)
        async with locked(admin, topic):
            append = structs.replace(batch_of(topic, "x"), transaction_id=part)
            appending = asyncio.create_task(append_all(log, [append], key_of(topic, "k", b"1")))
            await waiting(admin, 1)
            ending = asyncio.create_task(ended(other, whole, COMMIT, parts=[part]))
            await waiting(admin, 2)
        assert list((await appending).base_offsets) == [0]
        assert await ending == ("committed", "client")
        assert await visible(log, topic) == [0]


async def test_a_part_does_not_begin_while_its_whole_ends(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        whole = await begin(log)
        await produce(log, whole, topic)
        async with locked(admin, topic):
            ending = asyncio.create_task(ended(log, whole, COMMIT))
            await waiting(admin, 1)
            late = asyncio.create_task(parts_of(other, whole, 1))
            await waiting(admin, 2)
        assert await ending == ("committed", "client")
        with pytest.raises(ApiError) as fault:
            await late
        assert (KAFKA_CODES[fault.value.error], fault.value.extra["state"]) == (48, "committed")


async def test_parts_over_too_many_partitions_are_not_committed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharequeue_gateway.record_log.transactions.transaction_rules.MOST_PARTITIONS", 3)
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        whole = await begin(log)
        first, second = await parts_of(log, whole, 2)
        await produce(log, first, topic, 0, 1)
        await produce(log, second, topic, 1, 2, 3)
        fault = await refused(log, whole, first, second)
        assert "1000" not in fault.detail
        assert fault.limit == 3
        assert await ended(log, whole, COMMIT, parts=[first]) == ("committed", "client")
        assert [(await stable(admin, topic, each))[0] for each in range(4)] == [2, 4, 2, 2]
