"""Any sequence of events, legal or not: the real machine and the record-by-record model never disagree.

Foreign members, wrong forms and places, stale reads and counts, late timers, writes that fail or end in any order, and
new leaders that load what is durable.
"""

import itertools
import os
from collections.abc import Iterable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from msgspec import structs
from sharequeue_gateway.delivery.acknowledging import check, check_atomic
from sharequeue_gateway.share_partition.acquisition import Acquisition, can_acquire
from sharequeue_gateway.share_partition.bounds import limited_by
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.new_records import begin_at_new
from sharequeue_gateway.share_partition.outcomes import AcknowledgementBatch
from sharequeue_gateway.share_partition.restoring import Restoring
from sharequeue_share_coordinator.share_state import shard

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.state import StateBatch
from sharequeue.protocol.types import (
    ACKNOWLEDGE_TYPES,
    AcknowledgeType,
    AcquireMode,
    DeliveryState,
    OffsetRange,
    Reason,
    RestoredLock,
)
from sharequeue_http.forms.errors import ApiError
from tests.core.acquisition_model import Call
from tests.core.record_model import ACQUIRED, FINAL, INVALID_REQUEST, Refused, Settlement
from tests.core.restored import Loaded
from tests.core.share_partition_driver import Batch
from tests.core.share_partition_model import Model
from tests.core.side_by_side import SideBySide, spread
from tests.core.states import Stored

MEMBERS = ("M1", "M2", "M3")
NAMES = (*ACKNOWLEDGE_TYPES, "accept", "accept", "release", "release", "acquire")
SIZES = st.integers(1, 5)
LENGTHS = (None, None, 5_000, 300_000)
"""Of a lock: the group's, shorter, or longer."""

configs = st.fixed_dictionaries(
    {
        "delivery_count_limit": st.sampled_from((1, 2, 3, 4, 5, 5, 7)),
        "dead_letter_topic_name": st.sampled_from(("", "dlq")),
        "renew_acknowledge_enable": st.sampled_from((True, True, False)),
        "partition_max_record_locks": st.sampled_from((4, 12, 2000, 2000)),
        "count_span": st.booleans(),
        "max_span": st.sampled_from((12, 1_000_000)),
        "max_runs": st.sampled_from((5, 250_000, 250_000)),
        "partition_max_delayed_records": st.sampled_from((0, 3, 9, 100_000)),
        "redelivery_percent": st.sampled_from((75, 50, 0, 100)),
        "record_lock_duration_ms": st.sampled_from((10_000, 30_000)),
        "retry_backoff_ms": st.sampled_from(((), (), (4_950,), (0, 7_000, 30_000))),
        "retry_jitter_percent": st.sampled_from((0, 10, 50)),
        "throttle_released": st.booleans(),
        "forgives": st.sampled_from((True, True, False)),
    }
)
layouts = st.lists(st.tuples(st.sampled_from((0, 0, 0, 1, 3)), SIZES), min_size=1, max_size=4)

jitters = st.sampled_from((0, 0, 0, 0, -2, 2, 4))
acknowledge_names = st.sampled_from(("accept", "accept", "release", "release", "reject", "renew", "gap"))
calls = st.fixed_dictionaries(
    {
        "member": st.sampled_from(MEMBERS),
        "record_limit": st.booleans(),
        "max_records": st.sampled_from((0, 1, 2, 3, 5, 8, 500)),
        "batch_size": st.integers(1, 8),
        "absent": st.sampled_from(([], [], [], [(0, 0)], [(2, 1)], [(1, 0), (1, 2)])),
        "ask": st.booleans(),
        "reads": st.sampled_from((1, 1, 2, 4)),
        "lock_ms": st.sampled_from(LENGTHS),
    }
)

WEIGHTS = {
    "fetch": 8,
    "read_log": 1,
    "settle": 6,
    "settle_all": 1,
    "acknowledge": 5,
    "give_back": 1,
    "complete_write": 6,
    "complete_dead_letter": 2,
    "pass_time": 3,
    "expire": 1,
    "release_member": 2,
    "move_log_start": 2,
    "configure": 1,
    "crowd": 1,
    "change_leader": 1,
}
"""One rule draws from these: with a rule each, Hypothesis turns most of them off in most examples."""
EVENTS = [event for event, weight in WEIGHTS.items() for _ in range(weight)]


def named(acknowledgement: Acknowledgement) -> list[str] | None:
    return None if acknowledgement.types is msgspec.UNSET else msgspec.json.decode(acknowledgement.types)


def legal(acknowledgement: Acknowledgement) -> bool:
    """Whether the form of an acknowledgement is right. Source: KIP-932, protocol checks 1 to 5."""
    first, last, types = acknowledgement.first_offset, acknowledgement.last_offset, named(acknowledgement)
    if types is None:
        return 0 <= first <= last and acknowledgement.type in ACKNOWLEDGE_TYPES
    return 0 <= first <= last and len(types) in (1, last - first + 1) and set(types) <= set(ACKNOWLEDGE_TYPES)


def joined(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets as ranges, ascending."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = ranges[-1][0], offset
        else:
            ranges.append((offset, offset))
    return ranges


class AnyEvents(SideBySide):
    """Draws events and gives each to both."""

    @initialize(config=configs, start=st.integers(0, 3))
    def start(self, config: dict[str, Any], start: int) -> None:
        self.begin(ShareGroupConfig(**config), start)

    @rule(event=st.sampled_from(EVENTS), data=st.data())
    def step(self, event: str, data: st.DataObject) -> None:
        getattr(self, event)(data)

    # Fetching

    def read_log(self, data: st.DataObject) -> None:
        """A read of the log whose records are acquired only later, when other events have come between."""
        fetch_offset = self.begin_at()
        self.read = fetch_offset, self.draw_log(data, fetch_offset, 0)

    def begin_at(self) -> int:
        """Where a fetch begins. A read below the log start finds that start; a new leader learns of it in this way."""
        if self.machine.next_fetch_offset() < self.log_start:
            assert self.machine.move_log_start(self.log_start, self.now_ms) == self.model.move_log_start(self.log_start)
        self.model.runs = len(self.machine.runs)
        new_offset = begin_at_new(self.machine)
        assert new_offset == self.model.begin_at_new()
        return self.machine.next_fetch_offset() if new_offset is None else new_offset

    @staticmethod
    def draw_log(data: st.DataObject, fetch_offset: int, lowest: int) -> list[tuple[int, int]]:
        """Batches of the log from around an offset on, none below `lowest`."""
        jitter, layout = data.draw(jitters), data.draw(layouts)
        base = max(lowest, fetch_offset + jitter)
        log: list[tuple[int, int]] = []
        for hole, size in layout:
            first = base + (hole if log else 0)
            last = max(first + size - 1, fetch_offset if not log else 0)
            log.append((first, last))
            base = last + 1
        return log

    def fetch(self, data: st.DataObject) -> None:
        if self.read is None:
            self.read_log(data)
        assert self.read is not None
        self.acquire(data, *self.read, **data.draw(calls))

    def acquire(
        self,
        data: st.DataObject,
        fetch_offset: int,
        log: list[tuple[int, int]],
        *,
        member: str,
        record_limit: bool,
        max_records: int,
        batch_size: int,
        absent: list[tuple[int, int]],
        ask: bool,
        reads: int,
        lock_ms: int | None,
    ) -> None:
        """One fetch, which reads on behind what it has read while its limits allow more."""
        self.read = None
        if ask:
            self.ask()
        call = Call(self.model, member, self.now_ms, record_limit, batch_size, lock_ms)
        mode = AcquireMode.RECORD_LIMIT if record_limit else AcquireMode.BATCH_OPTIMIZED
        acquisition = Acquisition(self.machine, member, mode, batch_size, self.now_ms, lock_ms)
        while True:
            self.acquire_of_read(call, acquisition, fetch_offset, log, max_records - len(call.taken), absent)
            fetch_offset, reads, absent = self.machine.next_fetch_offset(), reads - 1, []
            if not reads or acquisition.over or fetch_offset <= log[-1][1]:
                break
            log = self.draw_log(data, fetch_offset, log[-1][1] + 1)
        ranges = acquisition.acquired
        assert ranges == sorted(ranges)
        limit = "record_limit" if record_limit else "batch_optimized"
        note(f"{member} acquires {max_records} in all, {limit}, {batch_size=}: {ranges}")
        length_ms = lock_ms or self.config.record_lock_duration_ms
        ends_ms = self.now_ms + length_ms
        forgiven = {offset: self.model.records[offset].forgiven for offset in call.taken}
        taken = {offset: (count, ends_ms, length_ms, forgiven[offset]) for offset, count in call.taken.items()}
        assert spread(ranges) == taken
        assert not self.handed_out.intersection(call.taken.items()), "one delivery was handed out twice"
        self.handed_out.update(call.taken.items())
        if record_limit:
            assert len(call.taken) <= max_records
        self.locks += [RestoredLock(first, last, member, *rest) for first, last, *rest in ranges]

    def acquire_of_read(
        self,
        call: Call,
        acquisition: Acquisition,
        fetch_offset: int,
        log: list[tuple[int, int]],
        max_records: int,
        absent: list[tuple[int, int]],
    ) -> None:
        position = log[0][0]
        self.removed.update(range(fetch_offset, position))
        for skip, more in absent:
            self.removed.update(range(position + skip, position + skip + more + 1))
            position += skip + more + 1
        gone = joined(offset for offset in self.removed if log[0][0] <= offset < max(position, log[-1][1] + 1))
        note(f"{max_records} of {log} from {fetch_offset}, {gone=}")
        before = len(call.taken)
        self.model.runs = len(self.machine.runs)
        self.model.acquire(call, max_records=max_records, fetch_offset=fetch_offset, log=log, absent=gone)
        more = acquisition.acquire(
            [Batch(*extent) for extent in log],
            fetch_offset=fetch_offset,
            max_records=max_records,
            absent=[OffsetRange(*extent) for extent in gone],
        )
        assert (more, acquisition.over) == (len(call.taken) - before, call.over)

    def ask(self) -> None:
        """Whether a fetch may take anything, and which bound stops new records."""
        self.model.runs = len(self.machine.runs)
        model = self.model
        room, _ = model.room(model.next_fetch_offset())
        _, new = model.room(model.end + 1)
        assert can_acquire(self.machine) == (new > 0 or (room > 0 and model.next_fetch_offset() <= model.end))
        assert (limited_by(self.machine) is None) == (new > 0)

    # Acknowledging

    def acknowledge(self, data: st.DataObject) -> None:
        """Anything, however wrong."""
        member, atomic = data.draw(st.sampled_from(MEMBERS)), data.draw(st.booleans())
        known = sorted(self.model.records) or [self.model.start]
        wanted = []
        for _ in range(data.draw(st.sampled_from((1, 1, 2, 3)))):
            first = data.draw(st.sampled_from(known)) + data.draw(st.sampled_from((0, 0, 0, -1, 1, -40, 40)))
            last = first + data.draw(st.sampled_from((0, 0, 1, 2, 4, 9, -1)))
            each = data.draw(st.sampled_from((False, False, True)))
            size = max(1, last - first + 1 + data.draw(st.sampled_from((0, 0, 0, 0, 1, -1)))) if each else 1
            names = data.draw(st.lists(st.sampled_from(NAMES), min_size=size, max_size=size))
            record = self.model.records.get(first)
            count = data.draw(st.sampled_from((None, None, record.count if record else 1, 1, 2)))
            alters = {"release", "reject"} & set(names)
            wanted.append(
                Acknowledgement(
                    topic="t",
                    partition=0,
                    first_offset=first,
                    last_offset=last,
                    type=None if each else names[0],
                    types=msgspec.Raw(msgspec.json.encode(names)) if each else msgspec.UNSET,
                    delivery_count=count,
                    reason=data.draw(st.sampled_from((None, None, Reason("why"), Reason("late")))) if alters else None,
                    delay_ms=data.draw(st.sampled_from((None, None, 0, 5_000))) if "release" in names else None,
                    lock_duration_ms=data.draw(st.sampled_from(LENGTHS)) if "renew" in names else None,
                    begun="release" not in names or data.draw(st.booleans()),
                )
            )
        for unit in [wanted] if atomic else [[one] for one in wanted]:
            self.apply(member, unit, atomic)

    def settle(self, data: st.DataObject) -> None:
        """A holder acknowledges a part of what it holds, as most clients do."""
        name = data.draw(acknowledge_names)
        held = [(o, r) for o, r in sorted(self.model.records.items()) if r.state is ACQUIRED and o >= self.model.start]
        if held:
            position = data.draw(st.integers(0, len(held) - 1))
            first, record = held[position]
            more = data.draw(st.sampled_from((0, 0, 1, 3, 100)))
            last = first
            while more and (last + 1, record.member) in {(o, r.member) for o, r in held}:
                last, more = last + 1, more - 1
            one = Acknowledgement(topic="t", partition=0, first_offset=first, last_offset=last, type=name)
            if name == "release":
                one.delay_ms = data.draw(st.sampled_from((None, None, 0, 5_000)))
                one.begun = data.draw(st.booleans())
            if name == "renew":
                one.lock_duration_ms = data.draw(st.sampled_from(LENGTHS))
            self.apply(record.member or "", [one], False)

    def give_back(self, data: st.DataObject) -> None:
        """The gateway gives back what a client never saw: it hung up before the answer was written."""
        held = [(o, r) for o, r in sorted(self.model.records.items()) if r.state is ACQUIRED and o >= self.model.start]
        if not held:
            return
        offset, record = data.draw(st.sampled_from(held))
        member, kinds = record.member or "", (AcknowledgeType.RELEASE,)
        mine = Settlement(offset, offset, kinds, record.count, None, None, None, False, False)
        batch = AcknowledgementBatch(offset, offset, kinds, record.count, begun=False, seen=False)
        note(f"{member} never saw {offset}")
        try:
            model_write, *_ = self.model.acknowledge(member, [mine], self.now_ms)
        except Refused:
            with pytest.raises(ApiError):
                self.machine.acknowledge(member, [batch], self.now_ms)
            return
        for write in self.machine.acknowledge(member, [batch], self.now_ms).writes:
            if id(write) not in {id(pending) for pending, _ in self.pending}:
                self.sent(write, model_write)

    def settle_all(self, data: st.DataObject) -> None:
        """Each holder acknowledges all it holds, and all writes succeed in their order."""
        name = data.draw(acknowledge_names)
        for offset, record in sorted(self.model.records.items()):
            if record.state is ACQUIRED and offset >= self.model.start:
                one = Acknowledgement(topic="t", partition=0, first_offset=offset, last_offset=offset, type=name)
                self.apply(record.member or "", [one], False)
        while self.pending:
            self.complete(0, True)

    def apply(self, member: str, unit: list[Acknowledgement], atomic: bool) -> None:
        note(f"{member} acknowledges {unit}, {atomic=}")
        refusal = None
        try:
            batches = self.checked(unit, atomic)
            model_write, joined, ignored, renewed = self.model.acknowledge(member, batches, self.now_ms)
        except Refused as refused:
            refusal = refused.number
        if refusal is not None:
            with pytest.raises(ApiError) as raised:
                self.apply_to_machine(member, unit, atomic)
            assert KAFKA_CODES[raised.value.error] == refusal
            return
        result = self.apply_to_machine(member, unit, atomic)
        assert result.ignored == ignored
        assert set(spread([lock[:2] for lock in set(result.renewed)])) == renewed
        self.locks += [RestoredLock(first, last, member, *rest) for first, last, *rest in result.renewed]
        known = {id(write): mine for write, mine in self.pending}
        new = [write for write in result.writes if id(write) not in known]
        assert [known[id(write)] for write in result.writes if id(write) in known] == joined
        assert len(new) == bool(model_write.moved)
        if new:
            self.sent(new[0], model_write)

    @staticmethod
    def checked(unit: list[Acknowledgement], atomic: bool) -> list[Any]:
        for one in unit:
            if not legal(one):
                raise Refused(INVALID_REQUEST)
        if atomic and any(left.last_offset >= right.first_offset for left, right in itertools.pairwise(unit)):
            raise Refused(INVALID_REQUEST)
        return [
            Settlement(
                one.first_offset,
                one.last_offset,
                [ACKNOWLEDGE_TYPES[name] for name in named(one) or [one.type or ""]],
                one.delivery_count,
                one.reason,
                one.delay_ms,
                one.lock_duration_ms,
                one.begun,
            )
            for one in unit
        ]

    def apply_to_machine(self, member: str, unit: list[Acknowledgement], atomic: bool) -> Any:
        batches: list[AcknowledgementBatch] = [check(one) for one in unit]
        if atomic:
            check_atomic(batches)
        return self.machine.acknowledge(member, batches, self.now_ms)

    # Outcomes

    def complete_write(self, data: st.DataObject) -> None:
        """Any of the pending writes succeeds or fails."""
        if self.pending:
            self.complete(data.draw(st.integers(0, len(self.pending) - 1)), data.draw(st.integers(0, 3)) > 0)

    def complete_dead_letter(self, data: st.DataObject) -> None:
        length = data.draw(st.integers(0, 6))
        archiving = [o for o, record in sorted(self.model.records.items()) if record.state is DeliveryState.ARCHIVING]
        first = data.draw(st.sampled_from(archiving)) if archiving else self.model.start
        write = self.machine.complete_dead_letter(first, first + length, self.now_ms)
        self.perhaps_sent(write, self.model.complete_dead_letter(first, first + length))

    # Time, members, the log, settings, leaders

    def pass_time(self, data: st.DataObject) -> None:
        """Time passes; due locks end at once or, by a late timer, some time later."""
        self.now_ms += data.draw(st.sampled_from((1, 4_999, 10_000, 29_999, 30_000, 300_000)))
        if data.draw(st.integers(0, 2)):
            self.expire(data)

    def expire(self, data: st.DataObject) -> None:
        expired = self.machine.expire(self.now_ms)
        note(f"at {self.now_ms} {expired.records} locks end")
        write, records, available, dead_letters = self.model.expire(self.now_ms)
        assert (expired.records, expired.made_available) == (records, available)
        self.check_dead_letters(expired.dead_letters, dead_letters)
        self.perhaps_sent(expired.write, write)

    def release_member(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(MEMBERS))
        self.perhaps_sent(self.machine.release_member(member, self.now_ms), self.model.release_member(member))

    def move_log_start(self, data: st.DataObject) -> None:
        offset = self.model.start + data.draw(st.sampled_from((-3, 0, 1, 1, 2, 3, 5, 12)))
        note(f"the log starts at {offset}")
        self.log_start = max(self.log_start, offset)
        assert self.machine.move_log_start(offset, self.now_ms) == self.model.move_log_start(offset)

    def crowd(self, data: st.DataObject) -> None:
        """The gateway has too many runs, or enough room again."""
        self.machine.crowded = self.model.crowded = data.draw(st.booleans())

    def configure(self, data: st.DataObject) -> None:
        self.config = self.machine.config = self.model.config = ShareGroupConfig(**data.draw(configs))

    def left(self) -> list[RestoredLock]:
        """The locks that a leader leaves. Redis keeps those below a start offset that only memory knows."""
        assert self.durable is not None
        start = self.machine.memory_start
        kept = [lock for lock in self.locks if lock.first_offset < start] if start > self.durable.start_offset else []
        return [*kept, *self.machine.locks()]

    def loaded_in_pages(self, size: int) -> Loaded:
        """As a gateway loads what is durable: in pages of about `size` bytes."""
        assert self.durable is not None
        machine = SharePartition(self.config, self.durable.start_offset, 1, 1)
        batches: list[StateBatch] = []
        texts: dict[int, str] = {}
        offset: int | None = 0
        while offset is not None:
            page, named, offset = shard.page_of(self.durable.batches, self.durable.texts, offset, size)
            batches += page
            texts |= named
        for _ in Restoring(machine, texts, self.now_ms).restore(batches, self.locks):
            pass
        return Loaded(machine, machine.loaded())

    def change_leader(self, data: st.DataObject) -> None:
        """Load what is durable, with every lock there ever was, those that the leader leaves, or none."""
        keep = data.draw(st.sampled_from(("all", "left", "none")))
        assert self.durable is not None
        earlier = self.model.records
        self.locks = {"all": self.locks, "left": self.left(), "none": []}[keep]
        self.pending, self.read = [], None
        if keep == "none":  # without Redis, deliveries whose outcome is not durable are forgotten
            self.handed_out = {(o, n) for o, n in self.handed_out if n <= self.committed.get(o, (0, 0))[0]}
        note(f"a new leader loads {self.durable}, {self.locks=}")
        loaded = self.loaded_in_pages(data.draw(st.sampled_from((1, 60, 1000, 1 << 40))))
        self.machine = loaded.share_partition
        batches = [structs.astuple(batch)[:4] for batch in Stored(self.durable.batches).state_batches()]
        self.model, dead_letters = Model.load(
            self.config,
            self.durable.start_offset,
            batches,
            self.notes,
            self.said,
            self.forgiven,
            self.locks,
            self.now_ms,
        )
        self.check_dead_letters(loaded.dead_letters, dead_letters)
        if keep == "left":
            for offset, record in earlier.items():
                if offset in self.model.records:
                    assert self.model.records[offset].count == record.count
                else:
                    assert offset < self.model.start or not record.count or record.state in FINAL


NORMAL = settings(
    max_examples=50,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def test_the_machine_agrees_with_the_model() -> None:
    phases = (Phase.generate,) if os.environ.get("NO_SHRINK") else (Phase.generate, Phase.shrink)
    run_state_machine_as_test(AnyEvents, settings=settings(NORMAL, phases=phases))


@pytest.mark.soak
def test_the_machine_agrees_with_the_model_in_a_long_run(seed: int) -> None:
    long = settings(NORMAL, max_examples=20_000, stateful_step_count=60, derandomize=False)
    run_state_machine_as_test(hypothesis.seed(seed)(AnyEvents), settings=long)
