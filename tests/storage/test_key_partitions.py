"""Partitions of the tables of keys and outcomes, made and dropped beside readers."""

import logging
import time
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from sharequeue_gateway.record_log import key_store
from sharequeue_gateway.record_log.locked_append import answer_of
from sharequeue_gateway.record_log.transactions import transaction_store
from sharequeue_gateway.record_log.transactions.transaction_rules import COMMIT
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction

from sharequeue.protocol.errors import StorageError
from tests.http.calls import HANG_S
from tests.storage.database import session
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import PostgresRecordLogs, append_all, batch_of, deadline, new_topic
from tests.storage.test_postgres_record_log import age_keys, key_partitions
from tests.storage.test_query_plans import Statement, explained


async def test_a_reader_stops_no_keyed_append_and_no_commit_at_the_end_of_a_period(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pg_dump, which reads all tables for hours: here periods last two seconds. The purge makes partitions each
    15 s, so it is woken too."""
    keys, outcomes = key_store.KEYS._replace(seconds=2), key_store.OUTCOMES._replace(seconds=2)
    monkeypatch.setattr(key_store, "KEYS", keys)
    topic = new_topic()
    async with (
        PostgresRecordLogs(database_url).open(outcome_period_s=2) as log,
        session(database_url) as reader,
        session(database_url) as admin,
        reader.transaction(),
    ):
        for table in (keys, outcomes):
            await reader.fetchval(f"SELECT count(*) FROM log.{table.name}")
        begun = await reader.fetchval(f"SELECT {keys.period}")
        number, made, over_s = 0, [], time.monotonic() + 2 * HANG_S
        while len(made) < 4 or await admin.fetchval(f"SELECT {keys.period}") < begun + 3:
            await append_all(log, [batch_of(topic, "k")], key_of(topic, str(number), b"1"))
            transaction = (await log.transactions.begin(NewTransaction(60_000))).transaction_id
            batch = msgspec.structs.replace(batch_of(topic, "t"), transaction_id=transaction)
            await append_all(log, [batch])
            await log.transactions.end(transaction, COMMIT)
            number += 1
            assert time.monotonic() < over_s, f"only {made} were made"
            made = await key_partitions(admin, keys)


async def test_a_look_up_scans_only_partitions_that_may_have_a_row(database_url: str) -> None:
    """Whatever there is for the day ahead, and from a clock that has jumped."""
    key = key_of(new_topic(), "k", b"1")
    look_ups: list[tuple[key_store.KeyTable, Statement, int]] = [
        (table, lambda c, lasting=lasting: answer_of(c, key._replace(lasting=lasting)), table.kept + 1)
        for table, lasting in ((key_store.KEYS, False), (key_store.LASTING_KEYS, True))
    ]
    outcomes = key_store.OUTCOMES
    look_ups.append((outcomes, lambda c: transaction_store.outcome(c, outcomes, "t"), outcomes.kept + 2))
    async with session(database_url) as admin:
        for table, statement, most in look_ups:
            for periods in range(-table.ahead, table.kept + 3):
                await age_keys(admin, table, periods)
            assert len(await key_partitions(admin, table)) > most
            nodes = await explained(admin, statement)
            scans = [node for node in nodes if node.get("Relation Name", "").startswith(table.name)]
            assert 0 < len(scans) <= most, scans


async def test_without_a_maker_what_needs_a_period_is_refused_and_certainly_not_done(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Other tables have the names of the partitions, so none can be made. The maker is woken, and makes them later."""
    topic = new_topic()
    async with PostgresRecordLogs(database_url).open() as log, session(database_url) as admin:
        transaction = (await log.transactions.begin(NewTransaction(600_000))).transaction_id
        await append_all(log, [msgspec.structs.replace(batch_of(topic, "t"), transaction_id=transaction)])
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: append_all(log, [batch_of(topic, "k")], key_of(topic, "k", b"1")),
            lambda: log.transactions.end(transaction, COMMIT),
        ]
        names = [
            f"log.{table.name}_{number}"
            for table in (key_store.KEYS, key_store.OUTCOMES)
            for number in await key_partitions(admin, table)
        ]
        async with admin.transaction():
            for name in names:
                await admin.execute(f"DROP TABLE {name}; CREATE TABLE {name} ()")
        with deadline(log, 3):  # on a busy machine the first try takes a second
            for call in calls:
                with pytest.raises(StorageError, match="is being made: try again") as refused:
                    await call()
                assert (refused.value.status, refused.value.definite) == (503, True)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
        await admin.execute(f"DROP TABLE {', '.join(names)}")
        for call in calls:
            await call()


async def test_old_partitions_are_dropped_when_nobody_reads_them(database_url: str) -> None:
    keys, topic = key_store.KEYS, new_topic()
    async with session(database_url) as reader, session(database_url) as admin:
        for periods in range(keys.most_partitions + 2):
            await age_keys(admin, keys, periods)
        before = await key_partitions(admin, keys)
        async with reader.transaction():
            await reader.fetchval(f"SELECT count(*) FROM log.{keys.name}")
            assert not await key_store.drop_key_partitions(admin, keys), "it does not wait for the reader"
            async with PostgresRecordLogs(database_url).open() as log:
                await append_all(log, [batch_of(topic, "k")], key_of(topic, "k", b"1"))
        assert await key_store.drop_key_partitions(admin, keys)
        assert min(await key_partitions(admin, keys)) > min(before)
