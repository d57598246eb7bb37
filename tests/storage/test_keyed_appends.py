"""Appends with an idempotency key on the fast path: shared commits, and all ways in which two have the same key."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest
from msgspec import structs
from sharequeue_gateway.record_log import append_store, appending, key_store, store
from sharequeue_gateway.record_log.database import APPEND_SETTINGS
from sharequeue_gateway.record_log.locked_append import AppendRequest, lock_of
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch

from sharequeue.protocol.errors import InvalidTxnState
from sharequeue_http.forms.errors import InvalidRequest
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.lossy_proxy import LossyProxy
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import (
    Heard,
    PostgresRecordLogs,
    append,
    append_all,
    batch_of,
    in_company,
    new_topic,
    read_all,
)
from tests.storage.test_postgres_record_log import commits_of
from tests.storage.test_transactions import begin, let_pass, produce

HANG_S = 60


async def keyed(
    log: PostgresRecordLog, topic: str, name: str, value: object | None = None, partition: int = 0
) -> AppendResult:
    """Append one record under a key. `value`: absent: the key's name."""
    value = name if value is None else value
    return await log.appender.append([batch_of(topic, [value], partition)], key_of(topic, name, str(value).encode()))


@contextmanager
def slow_appends(log: PostgresRecordLog) -> Iterator[list[IdempotencyKey | None]]:
    """The keys of the appends that take the slow path."""
    taken: list[IdempotencyKey | None] = []
    locked_append = log.appender._locked_append
    by_lock = locked_append.append

    async def counted(request: AppendRequest, **options: Any) -> AppendResult:
        taken.append(request.key)
        return await by_lock(request, **options)

    locked_append.append = counted  # type: ignore[method-assign]
    yield taken
    locked_append.append = by_lock  # type: ignore[method-assign]


def names_of(taken: Sequence[IdempotencyKey | None]) -> list[str | None]:
    return [None if key is None else key.key for key in taken]


def offsets_of(results: Sequence[AppendResult]) -> list[int]:
    return [result.base_offsets[0] for result in results]


async def test_appends_with_keys_share_commits_with_others(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["first"])
        in_company(log)
        with slow_appends(log) as slow:
            results = await asyncio.gather(
                *(
                    keyed(log, topic, f"k{n}") if n % 3 else log.appender.append([batch_of(topic, [n])])
                    for n in range(90)
                )
            )
        assert slow == []
        assert offsets_of(results) == list(range(1, 91))
        assert [result.answer for result in results[1:3]] == [b"[2]", b"[3]"]
        assert await commits_of(admin, topic) == [1, 90]


async def test_an_append_with_a_key_takes_one_statement(module_database: str) -> None:
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["first"])
        await append(log, topic, ["second"])  # makes the connection
        sent: list[str] = []
        with slow_appends(log) as slow, log.appender._connection.query_logger(lambda query: sent.append(query.query)):
            await keyed(log, topic, "k")
            await asyncio.sleep(0)
        assert (slow, sent) == ([], [append_store.APPEND_ONE_WITH_KEY])


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("others", [0, 2, append_store.FEW])
async def test_a_used_key_sends_its_repeat_alone_to_the_slow_path(
    module_database: str, others: int, lasting: bool
) -> None:
    """The appends gathered with it are committed without it, those behind it too, and there is no hole."""
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["x"])
        key = key_of(topic, "k", b"1")._replace(lasting=lasting)
        first = await log.appender.append([batch_of(topic, ["k"])], key)
        with slow_appends(log) as slow:
            before = [log.appender.append([batch_of(topic, [n])]) for n in range(others)]
            behind = [keyed(log, topic, f"other{n}") for n in range(others)]
            *_, repeat = await asyncio.gather(*before, log.appender.append([batch_of(topic, ["k"])], key), *behind)
            repeat = await log.appender.append([batch_of(topic, ["k"])], key)
            with pytest.raises(InvalidRequest) as refused:
                await log.appender.append([batch_of(topic, ["l"])], key._replace(fingerprint=b"another body"))
        assert (repeat.repeated, repeat.answer, repeat.base_offsets) == (True, first.answer, first.base_offsets)
        assert refused.value.status == 422
        assert set(names_of(slow)) == {"k"}
        assert await read_all(log, topic) == ["x", "k", *range(others), *(f"other{n}" for n in range(others))]


async def test_two_with_one_key_in_one_commit_append_once(module_database: str) -> None:
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["x"])
        same = [log.appender.append([batch_of(topic, ["k"], n % 2)], key_of(topic, "k", b"1")) for n in range(5)]
        with slow_appends(log) as slow:
            results = await asyncio.gather(*same, keyed(log, topic, "other"))
        assert "k" in names_of(slow)
        assert len({result.answer for result in results[:5]}) == 1
        assert sorted(result.repeated for result in results[:5]) == [False, True, True, True, True]
        values = [*await read_all(log, topic), *await read_all(log, topic, 1)]
        assert sorted(map(str, values)) == ["k", "other", "x"]


async def test_an_open_transaction_that_holds_a_key_holds_up_this_key_alone(module_database: str) -> None:
    """As another gateway that appends to several partitions under the key and is slow. It takes none of the others'
    time: the commit does not wait for its lock."""
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["x"])
        async with admin.transaction():
            lock = lock_of(key_of(topic, "held", b""))
            await admin.execute("SELECT pg_advisory_xact_lock($1)", lock)
            held = asyncio.create_task(keyed(log, topic, "held"))
            async with asyncio.timeout(HANG_S):
                with slow_appends(log) as slow:
                    others = await asyncio.gather(*(keyed(log, topic, f"k{n}") for n in range(20)))
                await waiting_for_a_lock(admin, "sharequeue-gateway-log")
                assert [await append(log, topic, ["y"]) for _ in range(3)] == [21, 22, 23]
            assert not held.done()
        assert offsets_of(others) == list(range(1, 21))
        assert names_of(slow) == ["held"]
        assert (await held).base_offsets == [24]
        repeats = await asyncio.gather(keyed(log, topic, "held"), keyed(log, topic, "k3"))
        assert [(result.repeated, *result.base_offsets) for result in repeats] == [(True, 24), (True, 4)]


async def by(log: PostgresRecordLog, topic: str, caller: str, partitions: int = 1) -> tuple[bool, int]:
    """Append one record to each partition under the key `k`. Returns: whether it is a repeat; its offset."""
    appends = [batch_of(topic, ["v"], partition) for partition in range(partitions)]
    result = await log.appender.append(appends, key_of(topic, "k", b"v", caller))
    return result.repeated, result.base_offsets[0]


CALLERS: dict[str, list[tuple[str, tuple[bool, int]]]] = {
    "first without one, before access keys were required": [
        ("", (False, 1)),
        ("User:a", (True, 1)),
        ("User:b", (True, 1)),
        ("", (True, 1)),
    ],
    "another one has another key": [
        ("User:a", (False, 1)),
        ("User:b", (False, 2)),
        ("User:a", (True, 1)),
        ("User:b", (True, 2)),
        ("User:c", (False, 3)),
    ],
    "a repeat at a gateway that reads no access keys": [("User:a", (False, 1)), ("", (True, 1))],
}


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("calls", CALLERS.values(), ids=CALLERS)
async def test_whose_a_key_is(module_database: str, calls: list[tuple[str, tuple[bool, int]]], partitions: int) -> None:
    """A caller without a name finds the keys of all, so it cannot use one for another body. `partitions`: one, the fast
    path; two, the slow one."""
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["x"])
        for caller, answer in calls:
            assert await by(log, topic, caller, partitions) == answer
        with pytest.raises(InvalidRequest):
            await log.appender.append([batch_of(topic, ["other"])], key_of(topic, "k", b"other", ""))


async def test_a_repeat_with_a_caller_waits_for_the_first_try_without_one(module_database: str) -> None:
    """Two gateways have one request each: one without a caller, under way, and its repeat with an access key."""
    topic, logs = new_topic(), PostgresRecordLogs(module_database)
    async with session(module_database) as admin, logs.open() as log, logs.open() as other:
        await append(log, topic, ["x"])
        async with admin.transaction():
            await store.lock(admin, [(topic, 0)])
            first = asyncio.create_task(by(log, topic, "", 2))
            await waiting_for_a_lock(admin, "sharequeue-gateway-log")
            repeat = asyncio.create_task(by(other, topic, "User:a", 2))
            await waiting_for_a_lock(admin, "sharequeue-gateway-log")
        async with asyncio.timeout(HANG_S):
            assert sorted([await first, await repeat]) == [(False, 1), (True, 1)]
        assert await read_all(log, topic) == ["x", "v"]


WAIT_BEFORE_LOOKING = """
ALTER FUNCTION log.new_keys RENAME TO new_keys_at_once;
CREATE FUNCTION log.new_keys(a uuid[], l bigint[], t uuid[], k text[], p text[], c text[]) RETURNS uuid[]
LANGUAGE plpgsql STABLE AS $$ BEGIN
  PERFORM pg_advisory_lock(932);
  PERFORM pg_advisory_unlock(932);
  RETURN log.new_keys_at_once(a, l, t, k, p, c);
END $$
"""


async def test_a_key_that_is_committed_once_the_statement_has_begun_is_seen(database_url: str) -> None:
    """Another gateway commits it between the statement's snapshot and its lock, to another partition and without a
    caller: neither of the two unique indexes would notice. The function in between is stable: it hands on the
    statement's snapshot."""
    topic, logs = new_topic(), PostgresRecordLogs(database_url)
    async with (
        session(database_url) as admin,
        session(database_url) as blocker,
        logs.open() as log,
        logs.open() as other,
    ):
        await append(log, topic, ["x"])
        await append(log, topic, ["y"], 1)
        await admin.execute(WAIT_BEFORE_LOOKING)
        await blocker.execute("SELECT pg_advisory_lock(932)")
        late = asyncio.create_task(log.appender.append([batch_of(topic, ["k"])], key_of(topic, "k", b"1")))
        async with asyncio.timeout(HANG_S):
            await waiting_for_a_lock(admin, "sharequeue-gateway-append")
        several = [batch_of(topic, ["k"], 1), batch_of(topic, ["l"], 2)]
        first = await other.appender.append(several, key_of(topic, "k", b"1", ""))
        await blocker.execute("SELECT pg_advisory_unlock(932)")
        result = await late
        assert (result.repeated, result.answer) == (True, first.answer)
        assert await read_all(log, topic) == ["x"]
        assert await read_all(log, topic, 1) == ["y", "k"]


async def test_a_stale_end_refuses_the_append_and_leaves_its_key_free(module_database: str) -> None:
    """Another gateway has appended. The slow path takes the refused ones, and each is there once."""
    topic, logs = new_topic(), PostgresRecordLogs(module_database)
    async with logs.open() as log, logs.open() as other:
        for number in range(6):
            await keyed((log, other)[number % 2], topic, f"k{number}")
        await append(log, topic, ["theirs"])
        in_company(other)
        with slow_appends(other) as slow:
            results = await asyncio.gather(*(keyed(other, topic, f"l{n}") for n in range(3)))
        assert names_of(slow) == ["l0", "l1", "l2"]
        assert sorted(offsets_of(results)) == [7, 8, 9]
        repeats = await asyncio.gather(*(keyed(log, topic, f"l{n}") for n in range(3)))
        assert [result.base_offsets for result in repeats] == [result.base_offsets for result in results]
        assert sorted(map(str, await read_all(log, topic))) == sorted(
            [*(f"k{n}" for n in range(6)), *(f"l{n}" for n in range(3)), "theirs"]
        )


@pytest.mark.parametrize("together", [1, 3])
async def test_a_commit_whose_answer_is_lost_is_found_and_reported(module_database: str, together: int) -> None:
    """Waiting fetches learn of the records from nothing else."""
    topic, heard = new_topic(), Heard()
    async with (
        session(module_database) as admin,
        LossyProxy(module_database).running() as proxy,
        PostgresRecordLogs(proxy.url).open(listener=heard) as log,
    ):
        await append(log, topic, ["x"])
        in_company(log)
        await asyncio.gather(*(keyed(log, topic, f"y{n}") for n in range(together)))  # prepares the statement
        end = 1 + together
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            in_company(log)
            calls = [asyncio.create_task(keyed(log, topic, f"k{n}")) for n in range(together)]
            (backend,) = await waiting_for_a_lock(admin, "sharequeue-gateway-append")
            proxy.lose_answers = True
        while await admin.fetchval("SELECT state FROM pg_stat_activity WHERE pid = $1", backend) == "active":  # noqa: ASYNC110 - PostgreSQL knows it
            await asyncio.sleep(0.01)
        heard.appends.clear()
        proxy.cut()
        results = await asyncio.gather(*calls)
        found = [AppendResult([end + n], b"[%d]" % (end + n), repeated=True) for n in range(together)]
        assert results == found
        assert sorted(heard.appends) == [(topic, 0, end + n + 1, 1) for n in range(together)]
        assert (await read_all(log, topic))[end:] == [f"k{n}" for n in range(together)]


async def test_appends_with_keys_and_those_of_transactions_share_a_commit(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["x"])
        transaction = await begin(log)

        async def both(name: str) -> AppendResult:
            within = structs.replace(batch_of(topic, [name]), transaction_id=transaction)
            return await append_all(log, [within], key_of(topic, name, b"1"))

        in_company(log)
        with slow_appends(log) as slow:
            await asyncio.gather(
                *(
                    call
                    for n in range(10)
                    for call in (
                        keyed(log, topic, f"k{n}"),
                        produce(log, transaction, topic),
                        append(log, topic, [f"p{n}"]),
                        both(f"b{n}"),
                    )
                )
            )
        assert slow == []
        assert await commits_of(admin, topic) == [1, 40]
        known_ms = f"SELECT min(expires_at_ms) - {store.NOW_MS} FROM log.idempotency_keys WHERE topic_id = $1"
        assert await admin.fetchval(known_ms, topic) > key_store.DAY_MS // 2
        assert (await both("b7")).repeated
        assert sorted(map(str, await read_all(log, topic))) == sorted(
            ["x", *["x"] * 10, *(f"{kind}{n}" for kind in "kpb" for n in range(10))]
        )


async def test_an_ended_transaction_and_a_used_key_are_refused_alone(module_database: str) -> None:
    """Those behind them in their partition are in the next commit."""
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["x"])
        await keyed(log, topic, "k")
        transaction = await begin(log)
        await let_pass(admin, transaction)
        in_company(log)
        with slow_appends(log) as slow:
            ended, repeat, *others = await asyncio.gather(
                produce(log, transaction, topic),
                keyed(log, topic, "k"),
                *(append(log, topic, [n]) for n in range(5)),
                *(keyed(log, topic, f"l{n}") for n in range(5)),
                return_exceptions=True,
            )
        assert isinstance(ended, InvalidTxnState)
        assert isinstance(repeat, AppendResult)
        assert repeat.repeated
        assert names_of(slow) == [None, "k"]
        assert len(others) == 10
        assert sorted(map(str, await read_all(log, topic))) == sorted(
            ["x", "k", *map(str, range(5)), *(f"l{n}" for n in range(5))]
        )


async def test_a_commit_locks_no_more_than_so_many_keys(module_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL has room for some thousand locks of all gateways."""
    monkeypatch.setattr(appending, "MOST_KEYS", 20)
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["x"])
        in_company(log)
        results = await asyncio.gather(*(keyed(log, topic, f"k{n}") for n in range(50)))
        assert await commits_of(admin, topic) == [1, 20, 20, 10]
        assert offsets_of(results) == list(range(1, 51))


@pytest.mark.parametrize("count", [1, 2, append_store.FEW + 1])
async def test_no_plan_scans_the_keys(database_url: str, count: int) -> None:
    """A statement keeps the plan of its first call: it must suit a table that has grown since. It then looks at each
    partition that may have the key, once for each key."""
    topic = new_topic()
    end = 0

    async def append_some(connection: Any) -> None:
        nonlocal end
        rows = [
            (topic, 0, RecordBatch.encode(end + n, [b',"value":1}'], 7), append_store.new_append_id())
            for n in range(count)
        ]
        keys = {
            row[3]: key_store.NewKey(end * 100 + n, f"{end}-{n}", "/p", "c", b"f", b"[]", 1)
            for n, row in enumerate(rows)
        }
        assert await append_store.append(connection, rows, keys, {}) == {row[3]: True for row in rows}
        end += count

    async with (
        PostgresRecordLogs(database_url).open(),
        session(database_url) as admin,
    ):
        await admin.execute("INSERT INTO log.partitions (topic_id, partition) VALUES ($1, 0)", topic)
        connection = await asyncpg.connect(database_url, server_settings={**APPEND_SETTINGS, "jit": "off"})
        for _ in range(3):
            await append_some(connection)
        await admin.execute("ANALYZE")
        await append_some(connection)
        await admin.execute(
            f"""{key_store.KEEP} n, '{topic}', 'o' || n, '/p', 'c', 'f', '[]', '{{1}}' FROM generate_series(1, 20000) n"""
        )
        async with connection.transaction():  # it counts what this connection reads, and no sweep of the log
            read = """SELECT sum(seq_tup_read), sum(idx_tup_fetch) FROM pg_stat_xact_user_tables
                      WHERE relname = 'idempotency_keys'"""
            before = await connection.fetchrow(read)
            for _ in range(4):
                await append_some(connection)
            assert await connection.fetchrow(read) == before
        await connection.close()
