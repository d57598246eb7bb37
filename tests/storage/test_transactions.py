"""Transactions of the record log: each call on a transaction in each of its states,
answered as the table of rules says."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs
from sharequeue_gateway.record_log import key_store, store
from sharequeue_gateway.record_log.locked_append import AppendRequest, LockedAppend
from sharequeue_gateway.record_log.log import AppendResult
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.removing import purging
from sharequeue_gateway.record_log.transactions import list_store
from sharequeue_gateway.record_log.transactions.ending import End
from sharequeue_gateway.record_log.transactions.transaction_rules import (
    ABORT,
    COMMIT,
    FENCE,
    TERMINATE,
    TIME_OUT,
    Reason,
    State,
    Wish,
)
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction, TransactionOptions

from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue.protocol.messages.transactions import ListTransactionsQuery
from sharequeue_http.forms.errors import ApiError, TooLarge
from tests.storage.database import session
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import NO_SWEEP, Heard, PostgresRecordLogs, append_all, batch_of, new_topic

MINUTE_MS = 60_000


@asynccontextmanager
async def opened(
    database_url: str, *, transactions: TransactionOptions = NO_SWEEP, **options: Any
) -> AsyncIterator[PostgresRecordLog]:
    """A record log that does not sweep by itself."""
    async with PostgresRecordLogs(database_url).open(transactions=transactions, **options) as log:
        yield log


async def begin(log: PostgresRecordLog, **wish: Any) -> str:
    wish.setdefault("timeout_ms", 10 * MINUTE_MS)
    return (await log.transactions.begin(NewTransaction(**wish))).transaction_id


async def produce(log: PostgresRecordLog, transaction_id: str | None, topic_id: str, *partitions: int) -> list[int]:
    """One record to each of these partitions (or to 0)."""
    appends = [
        structs.replace(batch_of(topic_id, ["x"], partition), transaction_id=transaction_id)
        for partition in partitions or (0,)
    ]
    return list((await append_all(log, appends)).base_offsets)


async def let_pass(connection: Any, transaction_id: str) -> None:
    """The time of a transaction passes."""
    await connection.execute(
        "UPDATE log.transactions SET deadline = clock_timestamp() WHERE transaction_id = $1", transaction_id
    )


async def stored(connection: Any, topic_id: str) -> list[tuple[int, int, int, str | None]]:
    """Partition, base offset, attributes and transaction of each batch."""
    rows = await connection.fetch(
        """SELECT partition, base_offset, attributes, transaction_id FROM log.record_batches
           WHERE topic_id = $1 ORDER BY 1, 2""",
        topic_id,
    )
    return [tuple(row) for row in rows]


async def stable(connection: Any, topic_id: str, partition: int = 0) -> tuple[int, int]:
    """The last stable offset and the log end."""
    found = (await store.bounds(connection, [(topic_id, partition)]))[topic_id, partition]
    return found.last_stable_offset, found.log_end_offset


async def rows(connection: Any) -> dict[str, int]:
    """How many rows the tables of transactions have."""
    tables = ("transactions", "transaction_partitions", "aborted_transactions", "transaction_outcomes")
    return {table: await connection.fetchval(f"SELECT count(*) FROM log.{table}") for table in tables}


async def ended(log: PostgresRecordLog, transaction_id: str, wish: Wish, **more: Any) -> tuple[Any, ...]:
    """A call that ends a transaction. Returns: the number of the error, and what it says; or the outcome."""
    try:
        found = await log.transactions.end(transaction_id, wish, **more)
    except ApiError as error:
        said = (error.extra.get("state"), error.extra.get("reason"))
        return (KAFKA_CODES[error.error], error.definite, *said)
    return found.state.name.lower(), found.reason.name.lower()


async def test_a_commit_writes_a_marker_to_each_partition_and_leaves_nothing_open(database_url: str) -> None:
    topic, heard = new_topic(), Heard()
    async with session(database_url) as admin, opened(database_url, listener=heard) as log:
        await produce(log, None, topic, 0)
        transaction = await begin(log)
        assert await produce(log, transaction, topic, 0, 1) == [1, 0]
        assert await produce(log, transaction, topic, 0) == [2]
        assert await produce(log, None, topic, 1) == [1]
        assert (await stable(admin, topic, 0), await stable(admin, topic, 1)) == ((1, 3), (0, 2))
        heard.appends.clear()
        first = await log.transactions.end(transaction, COMMIT)
        assert (first.state, first.reason, first.partitions) == (State.COMMITTED, Reason.CLIENT, 2)
        assert first.ended_at_ms is not None
        assert first.ended_at_ms >= first.began_at_ms
        assert heard.appends == [(topic, 0, 4, 0), (topic, 1, 3, 0)], "the markers wake who waits"
        assert await stored(admin, topic) == [
            (0, 0, 0, None),
            (0, 1, 16, transaction),
            (0, 2, 16, transaction),
            (0, 3, 112, transaction),
            (1, 0, 16, transaction),
            (1, 1, 0, None),
            (1, 2, 112, transaction),
        ]
        assert (await stable(admin, topic, 0), await stable(admin, topic, 1)) == ((4, 4), (3, 3))
        again = await log.transactions.end(transaction, COMMIT)
        assert again == first._replace(timeout_ms=None), "a repeat is answered the same"
        assert await produce(log, None, topic, 0) == [4], "this gateway knows the new end"
        assert await rows(admin) == {
            "transactions": 0,
            "transaction_partitions": 0,
            "aborted_transactions": 0,
            "transaction_outcomes": 1,
        }


async def test_an_abort_keeps_who_was_aborted_where(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        transaction = await begin(log)
        await produce(log, None, topic, 0)
        await produce(log, transaction, topic, 0, 1)
        await log.transactions.end(transaction, ABORT)
        assert [row[2] for row in await stored(admin, topic)] == [0, 16, 48, 16, 48]
        aborted = await admin.fetch(
            "SELECT partition, transaction_id, first_offset, marker_offset FROM log.aborted_transactions ORDER BY 1"
        )
        assert [tuple(row) for row in aborted] == [(0, transaction, 1, 2), (1, transaction, 0, 1)]


async def made(log: PostgresRecordLog, admin: Any, topic: str, state: str) -> str:
    """A transaction in a state; except in `empty` ones it has a record in partition 0."""
    if state == "absent":
        return str(uuid.uuid4())
    transaction = await begin(log)
    if "empty" not in state:
        await produce(log, transaction, topic)
    if state.startswith("past"):
        await let_pass(admin, transaction)
    wish = {"committed": COMMIT, "aborted": ABORT, "terminated": TERMINATE, "timed out": TIME_OUT, "fenced": FENCE}
    if state in wish:
        await log.transactions._ending.end(transaction, End(wish[state]))
    return transaction


LATE = (48, True, "aborted", "timed_out")
COMMITTED = (48, True, "committed", "client")
GONE = (105, False, None, None)
END_ANSWERS: dict[tuple[str, str], tuple[Any, ...]] = {
    ("commit", "open"): ("committed", "client"),
    ("commit", "empty"): ("committed", "client"),
    ("commit", "past"): LATE,
    ("commit", "past and empty"): LATE,
    ("commit", "committed"): ("committed", "client"),
    ("commit", "aborted"): (48, True, "aborted", "client"),
    ("commit", "terminated"): (48, True, "aborted", "administrator"),
    ("commit", "timed out"): LATE,
    ("commit", "fenced"): (90, True, "aborted", "fenced"),
    ("commit", "absent"): GONE,
    ("abort", "open"): ("aborted", "client"),
    ("abort", "empty"): ("aborted", "client"),
    ("abort", "past"): ("aborted", "timed_out"),
    ("abort", "past and empty"): ("aborted", "timed_out"),
    ("abort", "fenced"): (90, True, "aborted", "fenced"),
    ("terminate", "open"): ("aborted", "administrator"),
    ("terminate", "past"): ("aborted", "timed_out"),
    ("terminate", "committed"): COMMITTED,
}
WISHES = {"commit": COMMIT, "abort": ABORT, "terminate": TERMINATE}


async def test_each_end_of_a_transaction_in_each_state(module_database: str) -> None:
    async with session(module_database) as admin, opened(module_database) as log, opened(module_database) as other:
        for (call, state), expected in END_ANSWERS.items():
            topic = new_topic()
            transaction = await made(log, admin, topic, state)
            assert await ended(log, transaction, WISHES[call]) == expected, (call, state)
            assert await ended(other, transaction, WISHES[call]) == expected, (call, state, "a repeat at any gateway")
            if expected[0] in ("committed", "aborted"):
                found = [await one.transactions.end(transaction, WISHES[call]) for one in (log, other)]
                assert found[0] == found[1], (call, state)
            if state != "absent":
                batches = [row[2] for row in await stored(admin, topic)]
                committed = "committed" in expected
                assert batches == ([] if "empty" in state else [16, 112 if committed else 48]), (call, state)


APPEND_ANSWERS: dict[str, tuple[Any, ...]] = {
    "open": (),
    "past": LATE,
    "past and empty": LATE,
    "committed": COMMITTED,
    "aborted": (48, True, "aborted", "client"),
    "terminated": (48, True, "aborted", "administrator"),
    "timed out": LATE,
    "fenced": (90, True, "aborted", "fenced"),
    "absent": (105, True, None, None),
}


async def test_each_append_to_a_transaction_in_each_state(module_database: str) -> None:
    async with session(module_database) as admin, opened(module_database) as log, opened(module_database) as other:
        for state, way in itertools.product(APPEND_ANSWERS, ("fast", "slow", "keyed", "several")):
            topic = new_topic()
            transaction = await made(log, admin, topic, state)
            for _ in range(2):
                if way == "fast":
                    await produce(log, None, topic)  # its end is known now
                gateway = other if way == "slow" else log
                before = len(await stored(admin, topic))
                said = await refusal(gateway, topic, transaction, way)
                assert said == APPEND_ANSWERS[state], (state, way)
                after = [row for row in await stored(admin, topic) if row[2] < 32]
                assert len(after) <= before if said else after[-1][2:] == (16, transaction), (state, way)


async def refusal(gateway: PostgresRecordLog, topic: str, transaction: str, way: str) -> tuple[Any, ...]:
    """Append to a transaction. Returns: what the error says, nothing if there is none."""
    partitions = (0, 1) if way == "several" else (0,)
    appends = [structs.replace(batch_of(topic, ["x"], part), transaction_id=transaction) for part in partitions]
    key = key_of(topic, uuid.uuid4().hex, b"1") if way == "keyed" else None
    try:
        await append_all(gateway, appends, key)
    except ApiError as error:
        said = (KAFKA_CODES[error.error], error.definite, error.extra.get("state"), error.extra.get("reason"))
        return said if error.extra.get("appended") is None else (*said, "appended")
    return ()


async def test_a_key_gives_the_first_answer_while_the_transaction_is_open(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        transaction = await begin(log)
        append = structs.replace(batch_of(topic, ["x"]), transaction_id=transaction)
        key = key_of(topic, "k", b"1")
        first = await append_all(log, [append], key)
        assert (await append_all(log, [append], key)).answer == first.answer
        await log.transactions.end(transaction, COMMIT)
        with pytest.raises(ApiError) as refused:
            await append_all(log, [append], key)
        assert (KAFKA_CODES[refused.value.error], refused.value.extra["state"]) == (48, "committed")
        assert [row[2] for row in await stored(admin, topic)] == [16, 112]


# Producers with a transactional id


async def refused_begin(log: PostgresRecordLog, **wish: Any) -> tuple[int, Any]:
    with pytest.raises(ApiError) as refused:
        await begin(log, **wish)
    return KAFKA_CODES[refused.value.error], refused.value.extra


async def test_a_new_producer_fences_the_earlier_one(database_url: str) -> None:
    topic, name = new_topic(), uuid.uuid4().hex
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        first = await log.transactions.begin(NewTransaction(MINUTE_MS, name))
        assert first.transactional_id == name
        await produce(log, first.transaction_id, topic)
        second = await other.transactions.begin(NewTransaction(MINUTE_MS, name))
        assert second.producer_epoch == first.producer_epoch + 1
        assert await ended(log, first.transaction_id, COMMIT) == (90, True, "aborted", "fenced")
        assert (await refused_begin(log, transactional_id=name, producer_epoch=first.producer_epoch))[0] == 90
        await produce(other, second.transaction_id, topic)
        assert await ended(other, second.transaction_id, COMMIT) == ("committed", "client"), "it was not disturbed"
        third = await other.transactions.begin(NewTransaction(MINUTE_MS, name, second.producer_epoch))
        assert third.producer_epoch == second.producer_epoch
        assert [row[2] for row in await stored(admin, topic)] == [16, 48, 16, 112]


async def test_epochs_that_are_not_the_current_one(database_url: str) -> None:
    name = uuid.uuid4().hex
    async with session(database_url) as admin, opened(database_url) as log:
        assert (await refused_begin(log, transactional_id=name, producer_epoch=0))[0] == 105
        begun = await log.transactions.begin(NewTransaction(10 * MINUTE_MS, name))
        first, epoch = begun.transaction_id, begun.producer_epoch
        unknown = await refused_begin(log, transactional_id=name, producer_epoch=epoch + 1)
        assert unknown == (47, {"producer_epoch": epoch})
        code, said = await refused_begin(log, transactional_id=name, producer_epoch=epoch)
        assert (code, said["transaction_id"], said["state"]) == (48, first, "open")
        await let_pass(admin, first)
        await begin(log, transactional_id=name, producer_epoch=epoch)
        assert await ended(log, first, COMMIT) == LATE


async def test_the_note_of_the_last_commit_is_answered(database_url: str) -> None:
    topic, name = new_topic(), uuid.uuid4().hex
    async with opened(database_url) as log:
        for note in ("batch 7", None, "batch 8"):
            transaction = await begin(log, transactional_id=name)
            await produce(log, transaction, topic)
            await log.transactions.end(transaction, COMMIT, note=note)
        transaction = await begin(log, transactional_id=name)
        await produce(log, transaction, topic)
        await log.transactions.end(transaction, ABORT, note="batch 9")
        begun = await log.transactions.begin(NewTransaction(MINUTE_MS, name))
        assert begun.committed_note == "batch 8"


# Bounds


async def test_most_transactions_are_bounded(database_url: str) -> None:
    async with session(database_url) as admin, opened(database_url) as log:
        await admin.execute(
            """INSERT INTO log.transactions (transaction_id, timeout_ms, deadline)
               SELECT n::text, 1, now() + interval '1 hour' FROM generate_series(1, 9999) n"""
        )
        last = await begin(log)
        with pytest.raises(ApiError, match="10000 transactions are open") as refused:
            await begin(log)
        assert (KAFKA_CODES[refused.value.error], refused.value.status, refused.value.limit) == (89, 429, 10_000)
        await log.transactions.end(last, ABORT)
        await begin(log)


async def test_a_transaction_has_at_most_a_thousand_partitions(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        transaction = await begin(log)
        await produce(log, transaction, topic, *range(999))
        await produce(log, transaction, topic, 999)
        await produce(log, None, topic, 1000)
        for gateway in (log, other):
            with pytest.raises(ApiError, match="1001 partitions; the most is 1000") as refused:
                await produce(gateway, transaction, topic, 1000)
            assert (KAFKA_CODES[refused.value.error], refused.value.limit) == (10, 1000)
        await produce(log, transaction, topic, 3)
        assert await ended(log, transaction, COMMIT) == ("committed", "client")
        markers = "SELECT count(*) FROM log.record_batches WHERE topic_id = $1 AND attributes = 112"
        assert await admin.fetchval(markers, topic) == 1000


async def test_appends_that_share_a_commit_keep_to_the_thousand_partitions(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        await produce(log, None, topic, *range(980, 1020))
        transaction = await begin(log)
        await produce(log, transaction, topic, *range(980))
        answers = await asyncio.gather(
            *(produce(log, transaction, topic, partition) for partition in range(980, 1020)), return_exceptions=True
        )
        taken = (await rows(admin))["transaction_partitions"]
        assert 1000 <= taken <= 1008, "those that register in the same moment, on 8 connections, do not see each other"
        assert [type(answer) for answer in answers if answer != [1]] == [TooLarge] * (1020 - taken)


async def test_a_transaction_has_bounded_bytes(database_url: str) -> None:
    topic = new_topic()
    async with opened(database_url, transactions=NO_SWEEP._replace(most_bytes=200)) as log:
        transaction = await begin(log)
        await produce(log, transaction, topic, 0, 1)
        with pytest.raises(ApiError, match="max_transaction_bytes") as refused:
            await produce(log, transaction, topic, *range(5))
        assert refused.value.limit == 200
        assert await ended(log, transaction, COMMIT) == ("committed", "client")


# Topics that are deleted


async def test_a_deleted_topic_leaves_the_transaction(database_url: str) -> None:
    gone, kept = new_topic(), new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        transaction, alone = await begin(log), await begin(log)
        await produce(log, transaction, gone, 0, 1)
        await produce(log, transaction, kept)
        await produce(log, alone, gone)
        await log.delete_topic(gone, 2)
        found = await log.transactions.end(transaction, COMMIT)
        assert (found.state, found.partitions) == (State.COMMITTED, 1)
        assert [row[2] for row in await stored(admin, kept)] == [16, 112]
        assert await ended(log, alone, COMMIT) == ("committed", "client")
        with pytest.raises(ApiError, match="deleted"):
            await produce(log, await begin(log), gone)
        assert (await rows(admin))["transaction_partitions"] == 0


# Sweep


async def test_a_sweep_ends_what_is_past_and_leaves_no_row_of_what_wrote_nothing(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        wrote, empty, ended_empty, open_one = [await begin(log) for _ in range(4)]
        await produce(log, wrote, topic)
        await produce(log, open_one, topic, 1)
        await log.transactions.end(ended_empty, COMMIT)
        for transaction in (wrote, empty):
            await let_pass(admin, transaction)
        await log.transactions.sweep()
        assert [row[2] for row in await stored(admin, topic)] == [16, 48, 16]
        assert await ended(log, wrote, COMMIT) == LATE
        assert await ended(log, empty, COMMIT) == GONE
        assert await ended(log, ended_empty, COMMIT) == ("committed", "client")
        assert (await rows(admin))["transactions"] == 1


async def test_a_sweep_sees_what_is_open_and_ends_are_counted_once(database_url: str) -> None:
    topic = new_topic()
    ends: list[tuple[State, Reason]] = []
    forgotten: list[int] = []
    options = NO_SWEEP._replace(
        count_end=lambda transaction, seconds: ends.append((transaction.state, transaction.reason)),
        count_forgotten=forgotten.append,
    )
    async with session(database_url) as admin, opened(database_url, transactions=options) as log:
        await log.transactions.sweep()
        assert tuple(log.transactions.open_now) == (0, None, None, 0, 0)
        oldest = await begin(log, transactional_id="billing")
        committed, empty, past, ended_empty = [await begin(log) for _ in range(4)]
        for transaction in (oldest, committed, past):
            await produce(log, transaction, topic, 0, 1)
        await admin.execute(
            "UPDATE log.transactions SET began_at = began_at - interval '70 s' WHERE transaction_id = $1", oldest
        )
        await log.transactions.sweep()
        now = log.transactions.open_now
        assert (now.transactions, now.oldest, now.transactional_id, now.partitions) == (5, oldest, "billing", 2)
        assert 70_000 <= now.age_ms < 130_000
        for _ in range(2):
            await log.transactions.end(committed, COMMIT)
            await log.transactions.end(ended_empty, ABORT)
        for transaction in (past, empty):
            await let_pass(admin, transaction)
        forgotten.clear()
        await log.transactions.sweep()
        assert sum(forgotten) == 1
        assert log.transactions.open_now.transactions == 1
    assert ends == [
        (State.COMMITTED, Reason.CLIENT),
        (State.ABORTED, Reason.CLIENT),
        (State.ABORTED, Reason.TIMED_OUT),
    ]


A_DAY_LATER = "UPDATE log.transactional_producers SET keep_until = now(), producer_epoch = producer_epoch - 86400"
"""Epochs are seconds, so a day later they are that much smaller than the clock."""


async def test_the_epoch_of_a_producer_that_was_forgotten_is_not_given_again(database_url: str) -> None:
    name = uuid.uuid4().hex
    async with session(database_url) as admin, opened(database_url) as log:
        zombie = await log.transactions.begin(NewTransaction(MINUTE_MS, name))
        newer = await log.transactions.begin(NewTransaction(MINUTE_MS, name))
        assert await ended(log, newer.transaction_id, COMMIT) == ("committed", "client")
        await admin.execute("UPDATE log.transactional_producers SET keep_until = now(), producer_epoch = 2000000000")
        await log.transactions.sweep()
        assert await admin.fetchval("SELECT count(*) FROM log.transactional_producers") == 1, "it is ahead of the clock"
        await admin.execute("UPDATE log.transactional_producers SET producer_epoch = $1", newer.producer_epoch)
        await admin.execute(A_DAY_LATER)
        await log.transactions.sweep()
        assert await admin.fetchval("SELECT count(*) FROM log.transactional_producers") == 0
        epochs = (zombie.producer_epoch - 86400, newer.producer_epoch - 86400)
        assert [(await refused_begin(log, transactional_id=name, producer_epoch=e))[0] for e in epochs] == [105, 105]
        await begin(log, transactional_id=name)
        assert [(await refused_begin(log, transactional_id=name, producer_epoch=e))[0] for e in epochs] == [90, 90]


async def test_outcomes_are_known_for_25_hours(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        transaction = await begin(log)
        await produce(log, transaction, topic)
        assert await ended(log, transaction, COMMIT) == ("committed", "client")
        for hours, known in ((24, True), (25, False)):
            await admin.execute(
                "UPDATE log.transaction_outcomes SET ended_at = now() - make_interval(hours => $1)", hours
            )
            await purging.remove_outcomes("committed", admin, 1000, key_store.KNOWN_S)
            assert (await log.transactions.find(transaction) is not None) is known


async def test_a_marker_of_another_gateway_sends_one_append_to_the_slow_path(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves the end of the log behind the back of a gateway that knows an earlier end."""
    taken: list[AppendRequest] = []
    append = LockedAppend.append

    async def counted(self: LockedAppend, request: AppendRequest, **options: Any) -> AppendResult:
        taken.append(request)
        return await append(self, request, **options)

    monkeypatch.setattr(LockedAppend, "append", counted)
    topic_id = new_topic()
    async with opened(database_url) as commits, opened(database_url) as appends:
        assert await produce(appends, None, topic_id) == [0]
        assert await produce(appends, None, topic_id) == [1]
        before = len(taken)
        transaction_id = await begin(commits)
        assert await produce(appends, transaction_id, topic_id) == [2]
        assert len(taken) == before
        await commits.transactions.end(transaction_id, COMMIT)
        assert [await produce(appends, None, topic_id) for _ in range(5)] == [[4], [5], [6], [7], [8]]
        assert len(taken) == before + 1


async def test_a_page_of_ended_ones_looks_at_a_bounded_number(database_url: str) -> None:
    """The one that is asked for is the oldest of 25,000: the third page has it."""
    async with session(database_url) as admin, opened(database_url) as log:
        await admin.execute(
            """INSERT INTO log.transaction_outcomes (transaction_id, transactional_id, producer_epoch,
                 principal, committed, reason, partitions, began_at, ended_at)
               SELECT 'o' || n, 'p' || (n = 1)::int, 0, '', true, 0, 1,
                 now(), now() - interval '1 minute' + n / 10 * interval '1 millisecond'
               FROM generate_series(1, 25000) n"""
        )
        found, places = [], [None]
        while True:
            query = ListTransactionsQuery(state="committed", transactional_id="p1", page_size=100)
            page, place = await log.database.query(list_store.list_ended, query, places[-1])
            found.append([each.transaction_id for each in page])
            if place is None:
                break
            places.append(place)
        assert found == [[], [], ["o1"]]
        seen: list[str] = []
        place = None
        while True:
            query = ListTransactionsQuery(state="committed", transactional_id_prefix="p", page_size=999)
            page, place = await log.database.query(list_store.list_ended, query, place)
            seen += [each.transaction_id for each in page]
            if place is None:
                break
        assert len(seen) == len(set(seen)) == 25_000
