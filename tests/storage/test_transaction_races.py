"""Transactions when two calls meet in one instant, and when connections die: one wins, and both tell what is stored.

A call is stopped between two statements by a lock that the test holds: an end waits for the lock of a partition while
it has the transaction's row, and an append waits for it while it shares that row.
"""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.transactions.ending import End
from sharequeue_gateway.record_log.transactions.transaction_rules import ABORT, COMMIT, TERMINATE, TIME_OUT, State
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction

from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue_http.forms.errors import ApiError
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.lossy_proxy import LossyProxy
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import append_all, batch_of, deadline, new_topic
from tests.storage.test_transactions import (
    MINUTE_MS,
    begin,
    ended,
    opened,
    produce,
    rows,
    stable,
    stored,
)

LOG = "sharequeue-gateway-log"


@asynccontextmanager
async def locked(connection: Any, topic_id: str, partition: int = 0) -> AsyncIterator[None]:
    """Hold the lock of a partition."""
    key = store.lock_key(topic_id, partition)
    await connection.execute("SELECT pg_advisory_lock($1)", key)
    try:
        yield
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", key)


async def waiting(connection: Any, wanted: int, besides: int = 0) -> list[int]:
    """The backends of pools that wait for a lock, once there are so many `besides` this one."""
    async with asyncio.timeout(30):
        while True:
            found = [pid for pid in await waiting_for_a_lock(connection, LOG) if pid != besides]
            if len(found) >= wanted:
                return found
            await asyncio.sleep(0.01)


async def port_of_the_waiting_one(connection: Any) -> int:
    """The client's port of the only backend that waits for a lock, once there is one."""
    (pid,) = await waiting(connection, 1)
    port: int = await connection.fetchval("SELECT client_port FROM pg_stat_activity WHERE pid = $1", pid)
    return port


async def arrived(connection: Any, topic_id: str, batches: int) -> None:
    """Wait until so many batches are stored."""
    async with asyncio.timeout(30):
        while True:
            if len(await stored(connection, topic_id)) >= batches:
                return
            await asyncio.sleep(0.01)


async def end_an_idle_one(connection: Any) -> None:
    """End the backend that has a transaction and no statement, as PostgreSQL does after 10 s."""
    query = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND state = 'idle in transaction'"""
    async with asyncio.timeout(30):
        while True:
            if await connection.fetchval(query):
                return
            await asyncio.sleep(0.01)


async def attributes(connection: Any, topic_id: str) -> list[int]:
    return [row[2] for row in await stored(connection, topic_id)]


async def test_an_end_waits_for_an_append_that_shares_the_transaction(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        transaction = await begin(log)
        async with locked(admin, topic):
            append = structs.replace(batch_of(topic, "x"), transaction_id=transaction)
            appending = asyncio.create_task(append_all(log, [append], key_of(topic, "k", b"1")))
            await waiting(admin, 1)
            ending = asyncio.create_task(ended(other, transaction, COMMIT))
            await waiting(admin, 2)
        assert list((await appending).base_offsets) == [0]
        assert await ending == ("committed", "client")
        assert await attributes(admin, topic) == [16, 112]


async def test_an_append_during_the_end_is_refused_and_stops_no_other(database_url: str) -> None:
    topic, elsewhere = new_topic(), new_topic()
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        transaction = await begin(log)
        await produce(log, transaction, topic)
        await produce(log, None, elsewhere)
        async with locked(admin, topic):
            ending = asyncio.create_task(ended(other, transaction, COMMIT))
            await waiting(admin, 1)
            late = asyncio.create_task(produce(log, transaction, elsewhere))
            await waiting(admin, 2)
            assert await produce(log, None, new_topic()) == [0], "the gathered statement waits for nothing"
        assert await ending == ("committed", "client")
        with pytest.raises(ApiError) as refused:
            await late
        assert (KAFKA_CODES[refused.value.error], refused.value.extra["state"]) == (48, "committed")
        assert await attributes(admin, elsewhere) == [0]


@pytest.mark.parametrize("second", [ABORT, TERMINATE, TIME_OUT], ids=["abort", "terminate", "time-out"])
async def test_of_two_ends_one_wins_and_both_tell_it(database_url: str, second: Any) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        transaction = await begin(log)
        await produce(log, transaction, topic)
        async with locked(admin, topic):
            commit = asyncio.create_task(log.transactions._ending.end(transaction, End(COMMIT)))
            await waiting(admin, 1)
            abort = asyncio.create_task(other.transactions._ending.end(transaction, End(second)))
            await waiting(admin, 2)
        first, told = await commit, await abort
        assert first is not None
        assert told == first._replace(timeout_ms=None)
        assert first.state == State.COMMITTED
        assert await attributes(admin, topic) == [16, 112]


async def test_large_ends_of_two_gateways_do_not_lock_each_other_out(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        transactions = [await begin(log) for _ in range(4)]
        for number, transaction in enumerate(transactions):
            await produce(log, transaction, topic, *range(10 * number, 10 * number + 80))
        small = await begin(other)
        await produce(other, small, topic, 50, 5, 100)
        answers = await asyncio.gather(
            *(ended((log, other)[n % 2], one, COMMIT) for n, one in enumerate(transactions)), ended(other, small, ABORT)
        )
        assert answers == [("committed", "client")] * 4 + [("aborted", "client")]
        assert (await attributes(admin, topic)).count(112) == 320
        assert await admin.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


async def test_a_new_producer_waits_for_the_commit_of_the_old_one(database_url: str) -> None:
    topic, name = new_topic(), uuid.uuid4().hex
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        transaction = await begin(log, transactional_id=name)
        await produce(log, transaction, topic)
        async with locked(admin, topic):
            ending = asyncio.create_task(log.transactions.end(transaction, COMMIT, note="batch 3"))
            await waiting(admin, 1)
            beginning = asyncio.create_task(other.transactions.begin(NewTransaction(MINUTE_MS, name)))
            await waiting(admin, 2)
        assert (await ending).state == State.COMMITTED
        begun = await beginning
        assert begun.committed_note == "batch 3", "it read the note after that commit"


async def test_a_new_producer_that_was_overtaken_disturbs_no_newer_one(database_url: str) -> None:
    """It is stopped between its epoch and its look for open transactions."""
    topic, name = new_topic(), uuid.uuid4().hex
    async with (
        session(database_url) as admin,
        session(database_url) as holder,
        LossyProxy(database_url).running() as proxy,
        opened(proxy.url, deadline_s=60, connections=1) as slow,
        opened(database_url) as log,
    ):
        first = await slow.transactions.begin(NewTransaction(10 * MINUTE_MS, name))
        async with holder.transaction():
            await holder.execute("SELECT FROM log.transactional_producers WHERE transactional_id = $1 FOR UPDATE", name)
            beginning = asyncio.create_task(slow.transactions.begin(NewTransaction(MINUTE_MS, name)))
            port = await port_of_the_waiting_one(admin)
            proxy.hold_requests = True
        await proxy.holds_of(port)
        newest = await log.transactions.begin(NewTransaction(MINUTE_MS, name))
        assert newest.producer_epoch == first.producer_epoch + 2
        proxy.hold_requests = False
        await proxy.deliver()
        with pytest.raises(ApiError) as refused:
            await beginning
        assert KAFKA_CODES[refused.value.error] == 90
        await produce(log, newest.transaction_id, topic)
        assert await ended(log, newest.transaction_id, COMMIT) == ("committed", "client")


@pytest.mark.parametrize("end_first", [True, False])
async def test_an_end_and_the_deletion_of_its_topic(database_url: str, end_first: bool) -> None:
    gone, kept = new_topic(), new_topic()
    async with session(database_url) as admin, opened(database_url) as log, opened(database_url) as other:
        transaction = await begin(log)
        await produce(log, transaction, gone)
        await produce(log, transaction, kept)
        calls = [lambda: ended(log, transaction, COMMIT), lambda: other.delete_topic(gone, 1)]
        async with locked(admin, gone):
            tasks = []
            for number, call in enumerate(calls if end_first else reversed(calls)):
                tasks.append(asyncio.create_task(call()))
                await waiting(admin, number + 1)
        answers = await asyncio.gather(*tasks)
        assert ("committed", "client") in answers
        assert await attributes(admin, kept) == [16, 112]
        assert (await rows(admin))["transaction_partitions"] == 0
        assert await ended(other, transaction, COMMIT) == ("committed", "client")


async def test_a_partition_that_is_registered_during_a_sweep_is_not_lost(database_url: str) -> None:
    """Else its last stable offset would stand still for ever."""
    topic = new_topic()
    async with session(database_url) as admin, session(database_url) as writer, opened(database_url) as log:
        transaction = await begin(log)
        await produce(log, None, topic)
        async with writer.transaction():
            await writer.fetch("SELECT FROM log.transactions WHERE transaction_id = $1 FOR SHARE", transaction)
            await writer.execute("INSERT INTO log.transaction_partitions VALUES ($1, $2, 0, 1)", transaction, topic)
            await writer.execute(
                "UPDATE log.transactions SET deadline = clock_timestamp() WHERE transaction_id = $1", transaction
            )
            await log.transactions.sweep()
            assert (await rows(admin))["transactions"] == 1, "it is in use"
        await log.transactions.sweep()
        assert await rows(admin) == {
            "transactions": 0,
            "transaction_partitions": 0,
            "aborted_transactions": 1,
            "transaction_outcomes": 1,
        }
        assert await stable(admin, topic) == (2, 2)


async def test_a_transaction_in_use_for_too_long(database_url: str) -> None:
    topic = new_topic()
    async with (
        session(database_url) as admin,
        opened(database_url) as log,
        opened(database_url) as other,
    ):
        transaction = await begin(log)
        await produce(log, transaction, topic)
        async with locked(admin, topic):
            with deadline(log, 5), pytest.raises(ApiError) as refused:  # on a busy machine the wait begins late
                await log.transactions.end(transaction, COMMIT)
            assert (KAFKA_CODES[refused.value.error], refused.value.definite) == (51, True)
            assert refused.value.error.retriable
        assert await ended(other, transaction, COMMIT) == ("committed", "client")


# Connections that die


async def test_postgresql_asks_whether_a_silent_gateway_is_there(database_url: str) -> None:
    """A host that dies between two messages of a statement holds locks until then; else for two hours."""
    async with opened(database_url) as log, log.database.connection() as connection:
        shown = [await connection.fetchval(f"SHOW tcp_keepalives_{name}") for name in ("idle", "interval", "count")]
        assert shown == ["10", "5", "3"]


@pytest.mark.parametrize("waits_for", ["the transaction", "a partition"])
async def test_an_end_whose_backend_is_killed_is_made_again(database_url: str, waits_for: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, session(database_url) as holder, opened(database_url) as log:
        transaction = await begin(log)
        await produce(log, transaction, topic)
        async with holder.transaction():
            if waits_for == "the transaction":
                await holder.fetch("SELECT FROM log.transactions WHERE transaction_id = $1 FOR SHARE", transaction)
            else:
                await holder.execute("SELECT pg_advisory_xact_lock($1)", store.lock_key(topic, 0))
            ending = asyncio.create_task(ended(log, transaction, COMMIT))
            (killed,) = await waiting(admin, 1)
            await admin.execute("SELECT pg_terminate_backend($1)", killed)
            await waiting(admin, 1, killed)
        assert await ending == ("committed", "client")
        assert await attributes(admin, topic) == [16, 112]


@pytest.mark.parametrize("held", ["the statement", "COMMIT"])
@pytest.mark.parametrize("wish", [COMMIT, ABORT], ids=["commit", "abort"])
async def test_the_outcome_of_an_end_whose_connection_was_lost_is_found(
    database_url: str, wish: Any, held: str
) -> None:
    """The last request of the first try arrives after its connection was lost: what it did counts, or is undone."""
    topic = new_topic()
    async with (
        session(database_url) as admin,
        session(database_url) as holder,
        LossyProxy(database_url).running() as proxy,
        opened(proxy.url, deadline_s=60, connections=1) as log,
    ):
        before = await begin(log)
        await produce(log, before, topic)
        await log.transactions.end(before, COMMIT)  # the statements are prepared on its only connection
        transaction = await begin(log)
        await produce(log, transaction, topic)
        async with holder.transaction():
            if held == "COMMIT":
                await holder.execute("LOCK TABLE log.aborted_transactions IN ACCESS EXCLUSIVE MODE")
            else:
                await holder.execute("SELECT pg_advisory_xact_lock($1)", store.lock_key(topic, 0))
            ending = asyncio.create_task(log.transactions.end(transaction, wish))
            port = await port_of_the_waiting_one(admin)
            proxy.hold_requests = True
        await proxy.holds_of(port)
        proxy.cut()
        await proxy.deliver()
        if held == "the statement":  # its backend waits for a COMMIT, until PostgreSQL ends it
            await end_an_idle_one(admin)
        found = await ending
        assert found.state == wish.state
        assert (await attributes(admin, topic))[2:] == [16, 112 if wish == COMMIT else 48]
        assert (await rows(admin))["transactions"] == 0


@pytest.mark.parametrize("state", ["open", "committed", "aborted"])
async def test_an_append_whose_answer_was_lost_and_what_became_of_its_transaction(
    database_url: str, state: str
) -> None:
    topic = new_topic()
    async with (
        session(database_url) as admin,
        LossyProxy(database_url).running() as proxy,
        opened(proxy.url, deadline_s=60) as log,
        opened(database_url) as other,
    ):
        transaction = await begin(other)
        await produce(log, None, topic)
        await produce(log, transaction, topic)
        proxy.lose_answers = True
        appending = asyncio.create_task(produce(log, transaction, topic))
        await arrived(admin, topic, 3)
        if state != "open":
            await other.transactions.end(transaction, COMMIT if state == "committed" else ABORT)
        proxy.cut()
        if state == "open":
            assert await appending == [2]
        else:
            with pytest.raises(ApiError) as refused:
                await appending
            assert refused.value.extra["appended"] is True
            assert (KAFKA_CODES[refused.value.error], refused.value.extra["state"]) == (48, state)
        assert (await attributes(admin, topic))[:3] == [0, 16, 16]


# All together


class Run:
    """Random appends, ends, time-outs and sweeps at some gateways, and what was told of them."""

    def __init__(self, seed: int, logs: list[PostgresRecordLog], topic_id: str) -> None:
        self.random = random.Random(seed)
        self.logs = logs
        self.topic_id = topic_id
        self.open: list[str] = []
        self.wrote: dict[str, set[tuple[int, int]]] = {}
        self.told: dict[str, bool] = {}

    async def act(self) -> None:
        log, choice = self.random.choice(self.logs), self.random.random()
        transaction = self.random.choice(self.open) if self.open and self.random.random() < 0.8 else None
        if choice < 0.15:
            self.open.append(await begin(log, timeout_ms=self.random.choice([20, 200, 5000])))
            del self.open[:-6]
        elif choice < 0.75:
            await self.append(log, transaction)
        elif choice < 0.93 and transaction is not None:
            await self.end(log, transaction)
        else:
            await log.transactions.sweep()

    async def append(self, log: PostgresRecordLog, transaction: str | None) -> None:
        partitions = self.random.sample(range(8), self.random.choice([1, 1, 1, 3]))
        try:
            bases = await produce(log, transaction, self.topic_id, *partitions)
        except ApiError as error:
            if transaction is None or KAFKA_CODES[error.error] not in (48, 105):
                raise
        else:
            if transaction is not None:
                self.wrote.setdefault(transaction, set()).update(zip(partitions, bases, strict=True))

    async def end(self, log: PostgresRecordLog, transaction: str) -> None:
        try:
            found = await log.transactions.end(transaction, self.random.choice([COMMIT, COMMIT, ABORT]))
        except ApiError as error:
            if KAFKA_CODES[error.error] not in (48, 105):
                raise
            if error.extra.get("state"):
                self.tell(transaction, error.extra["state"] == "committed")
        else:
            self.tell(transaction, found.state == State.COMMITTED)

    def tell(self, transaction: str, committed: bool) -> None:
        assert self.told.setdefault(transaction, committed) == committed, "another outcome was told before"


async def run_stress(database_url: str, seed: int, seconds: float) -> None:
    topic = new_topic()
    places = [(topic, partition) for partition in range(8)]
    async with session(database_url) as admin, opened(database_url) as one, opened(database_url) as two:
        run = Run(seed, [one, two], topic)
        until = time.monotonic() + seconds
        seen: dict[Any, int] = {}

        async def work() -> None:
            while time.monotonic() < until or len(run.wrote) < 3:
                await run.act()

        async def watch() -> None:
            async with session(database_url) as watcher:
                while time.monotonic() < until:
                    for place, found in (await store.bounds(watcher, places)).items():
                        assert seen.get(place, 0) <= found.last_stable_offset <= found.log_end_offset
                        seen[place] = found.last_stable_offset
                    await asyncio.sleep(0.005)

        await asyncio.gather(*(work() for _ in range(8)), watch())
        await admin.execute("UPDATE log.transactions SET deadline = clock_timestamp()")
        await one.transactions.sweep()
        left = await rows(admin)
        assert (left["transactions"], left["transaction_partitions"]) == (0, 0)
        ends = await store.bounds(admin, places)
        assert all(found.last_stable_offset == found.log_end_offset for found in ends.values())
        next_offset: dict[int, int] = {}
        markers: dict[tuple[int, str], int] = {}
        batches: dict[str, set[tuple[int, int]]] = {}
        for partition, base, kind, transaction in await stored(admin, topic):
            assert base == next_offset.get(partition, 0), "a hole"
            next_offset[partition] = base + 1
            if kind & 32:
                assert transaction is not None
                assert (partition, transaction) not in markers
                markers[partition, transaction] = kind
            elif transaction is not None:
                assert (partition, transaction) not in markers, "a batch behind its marker"
                batches.setdefault(transaction, set()).add((partition, base))
        assert batches == run.wrote, "told and stored differ"
        outcomes = await admin.fetch(
            "SELECT transaction_id, committed FROM log.transaction_outcomes WHERE partitions > 0"
        )
        committed = {row[0]: row[1] for row in outcomes}
        assert set(committed) == set(batches)
        assert {one: told for one, told in run.told.items() if one in committed}.items() <= committed.items()
        aborted = await admin.fetch("SELECT partition, transaction_id FROM log.aborted_transactions")
        assert {tuple(row) for row in aborted} == {at for at, kind in markers.items() if kind == 48}
        for transaction, where in batches.items():
            expected = 112 if committed[transaction] else 48
            assert {at: kind for at, kind in markers.items() if at[1] == transaction} == {
                (partition, transaction): expected for partition, _ in where
            }
        assert await admin.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


async def test_random_transactions_tell_what_is_stored(database_url: str, seed: int) -> None:
    await run_stress(database_url, seed, 3)


@pytest.mark.soak
async def test_random_transactions_for_a_while(database_url: str, seed: int) -> None:
    await run_stress(database_url, seed, 20)
