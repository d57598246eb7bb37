"""Transactions, groups of both isolation levels, and crashes, on PostgreSQL beside a model with a row for each offset.

Three gateways share a log. Each hears of the others' appends late, or never. Every step may crash one of them: its
memory is gone, and the share-partitions that it led are loaded elsewhere from what was durable, with or without the
write that was under way. The model knows each offset: a record, of which transaction, or the end of one.
"""

import asyncio
import json
import os
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from msgspec import structs
from sharequeue_gateway.delivery.partition_reader import absent_ranges
from sharequeue_gateway.record_log.log import OffsetOutOfRange, ReadResult
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.removing import purging
from sharequeue_gateway.record_log.transactions.transaction_rules import ABORT, COMMIT, State
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction
from sharequeue_gateway.share_partition.acquisition import Acquisition
from sharequeue_gateway.share_partition.outcomes import AcknowledgementBatch
from sharequeue_gateway.share_partition.runs import StateWrite
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import replay

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import AcknowledgeType, AcquireMode
from sharequeue_http.forms.errors import ApiError
from tests.core.restored import load
from tests.core.states import Stored
from tests.storage.database import session
from tests.storage.record_logs import NO_SWEEP, PostgresRecordLogs, append_all, batch_of, new_topic

GATEWAYS, PARTITIONS = 3, 2
GROUPS = {"all": ShareGroupConfig(), "booked": ShareGroupConfig(read_committed=True)}
TEN_MINUTES_MS = 600_000
MEMBER = "m"
gateways = st.integers(0, GATEWAYS - 1)
partitions = st.integers(0, PARTITIONS - 1)
places = st.sets(partitions, min_size=1)
groups = st.sampled_from(sorted(GROUPS))


class Row(NamedTuple):
    """What the log has at an offset. `value`: None: the end of a transaction."""

    value: int | None
    transaction: str | None


class Led:
    """A share-partition: its machine at the gateway that leads it, and what is durable at the share coordinator."""

    def __init__(self, gateway: int, config: ShareGroupConfig) -> None:
        row = shard.initialize(None, PartitionState(partition=0, state_epoch=1, start_offset=0), None, 0).row
        assert row is not None
        self.config = config
        self.durable: Any = replay(None, row, 3)
        self.leader_epoch = 0
        self.accepted: set[int] = set()
        """Offsets whose acceptance is durable."""
        self.load(gateway)

    def load(self, gateway: int) -> None:
        self.gateway = gateway
        self.leader_epoch += 1
        stored = Stored(self.durable.batches, self.durable.texts)
        self.machine = load(
            self.config,
            state_epoch=1,
            leader_epoch=self.leader_epoch,
            start_offset=self.durable.start_offset,
            state_batches=stored.state_batches(),
            annotations=stored.annotations(),
            now_ms=0,
        ).share_partition
        self.held: dict[int, int] = {}
        """Delivery count by offset."""

    def persist(self, write: StateWrite) -> None:
        request = PartitionState(
            partition=0,
            state_epoch=1,
            leader_epoch=self.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state=write.state,
        )
        row = shard.write(self.durable, request, None, 3, 0).row
        assert row is not None
        self.durable = replay(self.durable, row, 3)


class Stores:
    """The gateways' logs. They outlive an example, so that an example costs no connections."""

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url
        self.logs: list[PostgresRecordLog] = []
        self._open: list[AsyncExitStack] = []

    async def start(self) -> None:
        for number in range(GATEWAYS):
            self._open.append(AsyncExitStack())
            self.logs.append(await self._log(number))

    async def _log(self, number: int) -> PostgresRecordLog:
        opened = PostgresRecordLogs(self.database_url).open(connections=2, transactions=NO_SWEEP)
        log: PostgresRecordLog = await self._open[number].enter_async_context(opened)
        return log

    async def crash(self, number: int) -> None:
        await self._open[number].aclose()
        self.logs[number] = await self._log(number)

    async def stop(self) -> None:
        for opened in self._open:
            await opened.aclose()


class TransactionsModel(RuleBasedStateMachine):
    """See the module."""

    stores: Stores
    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        super().__init__()
        self.topic = new_topic()
        self.rows: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        self.start = [0] * PARTITIONS
        self.states: dict[str, str] = {}
        self.values = 0
        self.led = {(group, p): Led(p, config) for group, config in GROUPS.items() for p in range(PARTITIONS)}

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def log(self, gateway: int) -> PostgresRecordLog:
        return self.stores.logs[gateway]

    # What the model says

    @property
    def open(self) -> list[str]:
        return [transaction for transaction, state in self.states.items() if state == "open"]

    def stable(self, partition: int) -> int:
        """The last stable offset."""
        rows = self.rows[partition]
        firsts = [
            o for o, row in enumerate(rows) if row.transaction is not None and self.states[row.transaction] == "open"
        ]
        return max(self.start[partition], min([*firsts, len(rows)]))

    def receives(self, group: str, partition: int, offset: int) -> bool:
        """Whether a group is to receive what is at an offset, as far as that is decided now."""
        row = self.rows[partition][offset]
        if row.value is None:
            return False
        if group == "all" or row.transaction is None:
            return True
        return self.states[row.transaction] == "committed"

    def note_end(self, transaction: str, state: str) -> None:
        self.states[transaction] = state
        for rows in self.rows:
            if any(row.transaction == transaction for row in rows):
                rows.append(Row(None, None))

    # Transactions

    @precondition(lambda self: len(self.open) < 4)
    @rule(gateway=gateways)
    def begin(self, gateway: int) -> None:
        begun = self.run(self.log(gateway).transactions.begin(NewTransaction(TEN_MINUTES_MS)))
        self.states[begun.transaction_id] = "open"

    @rule(gateway=gateways, where=places, records=st.integers(1, 3))
    def produce(self, gateway: int, where: set[int], records: int) -> None:
        self.append(None, gateway, where, records)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), gateway=gateways, where=places, records=st.integers(1, 3))
    def produce_in_a_transaction(self, data: st.DataObject, gateway: int, where: set[int], records: int) -> None:
        self.append(data.draw(st.sampled_from(self.open)), gateway, where, records)

    @rule(gateway=gateways, other=gateways, where=places, ends=st.sampled_from((None, "commit", "abort")))
    def produce_whole(self, gateway: int, other: int, where: set[int], ends: str | None) -> None:
        """A transaction of two batches with a plain one between them. `ends`: how; None: it stays open."""
        if len(self.open) < 4:
            self.begin(gateway)
            transaction = self.open[-1]
            self.append(transaction, gateway, where, 2)
            self.append(None, other, where, 1)
            self.append(transaction, other, where, 1)
            if ends is not None:
                self.note_end(transaction, self.run(self._end(other, transaction, commit=ends == "commit")))

    def append(self, transaction: str | None, gateway: int, where: set[int], records: int) -> None:
        appends = []
        for partition in sorted(where):
            values = range(self.values, self.values + records)
            self.values += records
            appends.append(structs.replace(batch_of(self.topic, values, partition), transaction_id=transaction))
        bases = self.run(append_all(self.log(gateway), appends)).base_offsets
        for append, base in zip(appends, bases, strict=True):
            rows = self.rows[append.partition]
            assert base == len(rows), "the offset of the first record"
            first = json.loads(b"{" + append.tails[0][1:])["value"]
            rows += [Row(first + index, transaction) for index in range(records)]

    @precondition(lambda self: self.open)
    @rule(data=st.data(), gateway=gateways, other=gateways, commit=st.booleans(), late=st.sampled_from((0, 0, 0, 1)))
    def end(self, data: st.DataObject, gateway: int, other: int, commit: bool, late: int) -> None:
        """`late`: its time has passed. Another gateway, asked for the opposite, tells the same outcome."""
        transaction = data.draw(st.sampled_from(self.open))
        if late:
            self.run(self._let_pass(transaction))
        outcome = self.run(self._end(gateway, transaction, commit=commit))
        assert outcome == ("committed" if commit and not late else "aborted")
        assert self.run(self._end(other, transaction, commit=not commit)) == outcome
        self.note_end(transaction, outcome)

    @precondition(lambda self: self.open)
    @rule(gateway=gateways)
    def time_out_all(self, gateway: int) -> None:
        for transaction in self.open:
            self.run(self._let_pass(transaction))
        self.run(self.log(gateway).transactions.sweep())
        for transaction in self.open:  # each has one marker in each of its partitions, in any order
            self.note_end(transaction, "aborted")

    async def _let_pass(self, transaction: str) -> None:
        async with session(self.stores.database_url) as connection:
            await connection.execute(
                "UPDATE log.transactions SET deadline = clock_timestamp() WHERE transaction_id = $1", transaction
            )

    async def _end(self, gateway: int, transaction: str, *, commit: bool) -> str:
        try:
            ended = await self.log(gateway).transactions.end(transaction, COMMIT if commit else ABORT)
        except ApiError as error:
            return str(error.extra["state"])
        return State(ended.state).name.lower()

    # What gateways know

    @rule(gateway=gateways, partition=partitions)
    def hear(self, gateway: int, partition: int) -> None:
        self.log(gateway).hear_of(self.topic, partition, len(self.rows[partition]))

    @rule(gateway=gateways, partition=partitions)
    def look(self, gateway: int, partition: int) -> None:
        found = self.run(self.log(gateway).offsets(self.topic, [partition]))[partition]
        assert tuple(found) == (self.start[partition], self.stable(partition), len(self.rows[partition]))

    @rule(gateway=gateways)
    def crash(self, gateway: int) -> None:
        self.run(self.stores.crash(gateway))
        for led in self.led.values():
            if led.gateway == gateway:
                led.load((gateway + 1) % GATEWAYS)

    @rule(group=groups, partition=partitions, gateway=gateways)
    def move(self, group: str, partition: int, gateway: int) -> None:
        self.led[group, partition].load(gateway)

    @precondition(lambda self: any(self.rows))
    @rule(data=st.data(), gateway=gateways, partition=partitions)
    def trim(self, data: st.DataObject, gateway: int, partition: int) -> None:
        before = data.draw(st.integers(self.start[partition], len(self.rows[partition])))
        self.run(self._trim(gateway, partition, before))
        self.start[partition] = before

    async def _trim(self, gateway: int, partition: int, before: int) -> None:
        await self.log(gateway).delete_records(self.topic, {partition: before})
        async with session(self.stores.database_url) as connection:
            for stage, _ in [*purging.STAGES[:4]] * 2:
                await stage(connection, 1000, 0)

    # Readers

    @rule(data=st.data(), gateway=gateways, partition=partitions, records=st.integers(1, 30))
    def read_committed(self, data: st.DataObject, gateway: int, partition: int, records: int) -> None:
        offset = data.draw(st.integers(self.start[partition], len(self.rows[partition])))
        try:
            read = self.run(self._read(gateway, partition, offset, records, committed=True))
        except OffsetOutOfRange:
            return
        end = read.batches[-1].last_offset + 1 if read.batches else offset
        assert end <= max(self.stable(partition), offset)
        seen = self.values_of(read, offset, cut=True)
        wanted = {o: self.rows[partition][o].value for o in range(offset, end) if self.receives("booked", partition, o)}
        assert seen == wanted

    async def _read(self, gateway: int, partition: int, offset: int, records: int, *, committed: bool) -> ReadResult:
        what = self.topic, partition, offset, 1 << 20, records, committed
        return self.log(gateway).read_cached(*what) or await self.log(gateway).read(*what)

    @staticmethod
    def values_of(read: ReadResult, offset: int, *, cut: bool) -> dict[int, int]:
        found = {}
        for batch in read.batches:
            if not (cut and batch.aborted):
                part = batch.slice(max(offset, batch.base_offset), batch.last_offset)
                found.update({record["offset"]: record["value"] for record in json.loads(b"[" + part + b"]")})
        return found

    @rule(group=groups, partition=partitions, records=st.integers(1, 10))
    def fetch(self, group: str, partition: int, records: int) -> None:
        self.receive(group, partition, records)

    def receive(self, group: str, partition: int, records: int) -> int:
        """Read and acquire as a fetch does. Returns: how many records it got."""
        led = self.led[group, partition]
        machine, committed = led.machine, led.machine.config.read_committed
        while True:
            offset = machine.next_fetch_offset()
            try:
                read = self.run(self._read(led.gateway, partition, offset, records, committed=committed))
            except OffsetOutOfRange as out_of_range:
                machine.move_log_start(out_of_range.log_start_offset, 0)
                assert machine.next_fetch_offset() > offset
                continue
            if not read.batches:
                return 0
            acquiring = Acquisition(machine, MEMBER, AcquireMode.RECORD_LIMIT, 500, 0)
            absent = absent_ranges(read.batches, offset, group, committed)
            acquiring.acquire(read.batches, fetch_offset=offset, max_records=records, absent=absent)
            if acquiring.acquired:
                break
            if machine.next_fetch_offset() <= offset:
                return 0
        values = self.values_of(read, offset, cut=False)
        count = 0
        for first, last, delivery_count, *_ in acquiring.acquired:
            for at in range(first, last + 1):
                assert self.receives(group, partition, at), f"{group} got {self.rows[partition][at]} at {at}"
                assert values[at] == self.rows[partition][at].value
                assert not committed or at < self.stable(partition)
                assert at not in led.accepted, "an accepted record is delivered again"
                assert at not in led.held, "a held record is delivered again"
                led.held[at] = delivery_count
                count += 1
        return count

    @rule(
        group=groups,
        partition=partitions,
        kind=st.sampled_from((AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE)),
        lost=st.sampled_from((None, None, None, True, False)),
        most=st.integers(1, 10),
        gateway=gateways,
    )
    def settle(
        self, group: str, partition: int, kind: AcknowledgeType, lost: bool | None, most: int, gateway: int
    ) -> None:
        """`lost`: the gateway crashes before the write is answered; another one loads the share-partition."""
        led = self.led[group, partition]
        self.acknowledge(led, kind, lost, most)
        if lost is not None:
            led.load(gateway)

    @staticmethod
    def acknowledge(led: Led, kind: AcknowledgeType, lost: bool | None, most: int) -> None:
        """Settle the first records that are held. `lost`: no answer comes; True: the write was durable."""
        offsets = sorted(offset for offset in led.held if offset >= led.machine.start_offset)[:most]
        if not offsets:
            return
        batches = [AcknowledgementBatch(offset, offset, (kind,), led.held.pop(offset)) for offset in offsets]
        for write in led.machine.acknowledge(MEMBER, batches, 0).writes:
            if lost is not False:
                led.persist(write)
            if lost is None:
                led.machine.complete_write(write, refused_at_ms=None)
        if kind is AcknowledgeType.ACCEPT and lost is not False:
            led.accepted.update(offsets)

    # In the end

    def teardown(self) -> None:
        """All transactions end; each group drains each partition: it has received all that it must, once accepted."""
        for transaction in self.open:
            self.note_end(transaction, self.run(self._end(0, transaction, commit=True)))
        for (group, partition), led in self.led.items():
            led.load(led.gateway)
            end = len(self.rows[partition])
            self.look(led.gateway, partition)
            while self.receive(group, partition, 100):
                self.acknowledge(led, AcknowledgeType.ACCEPT, None, 1000)
            due = {o for o in range(self.start[partition], end) if self.receives(group, partition, o)}
            assert due <= led.accepted, f"{group} never got {due - led.accepted}"
            assert led.machine.next_fetch_offset() >= end, "it has passed all ends of transactions"


def check(database_url: str, examples: int, steps: int) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        stores = Stores(database_url)
        loop.run_until_complete(stores.start())
        TransactionsModel.stores, TransactionsModel.loop = stores, loop
        try:
            phases = (Phase.generate,) if os.environ.get("NO_SHRINK") else (Phase.generate, Phase.shrink)
            wanted = settings(max_examples=examples, stateful_step_count=steps, deadline=None, phases=phases)
            run_state_machine_as_test(TransactionsModel, settings=wanted)
        finally:
            loop.run_until_complete(stores.stop())


def test_groups_of_both_levels_receive_what_is_theirs(database_url: str) -> None:
    check(database_url, 8, 40)


@pytest.mark.soak
def test_groups_of_both_levels_receive_what_is_theirs_for_long(database_url: str) -> None:
    check(database_url, 1000, 60)
