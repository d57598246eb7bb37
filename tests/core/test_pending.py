"""Records that are pending on a transaction: held for it, settled by its commit, or let go."""

from typing import Any

import pytest
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.outcomes import AcknowledgementBatch
from sharequeue_gateway.share_partition.runs import DecidedWrite, Hold, StateWrite

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import ConcurrentTransactions, InvalidRecordState
from sharequeue.protocol.types import AcknowledgeType, Reason, RestoredLock, SettledBatch
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from tests.core.share_partition_driver import TYPES, Driver, fetched
from tests.core.states import StateAnnotation, Stored

T1, T2 = "t-1", "t-2"
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


class Settling:
    """A driver whose writes are stored, so that it can be loaded again as another leader finds it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.stored = Stored()
        self.start = driver.machine.start_offset
        for write in driver.writes:
            self.store(write)

    @property
    def machine(self) -> SharePartition:
        return self.driver.machine

    def store(self, write: StateWrite) -> None:
        self.start = max(self.start, write.start_offset)
        self.stored = self.stored.updated(write.state, self.start)

    def hold(
        self,
        *batches: str,
        transaction: str = T1,
        member: str = "M1",
        count: int | None = 1,
        ok: bool = True,
        **more: Any,
    ) -> list[SettledBatch]:
        parsed = []
        for batch in batches:
            place, *names = batch.split()
            first, _, last = place.partition("-")
            types = tuple(AcknowledgeType(TYPES[name]) for name in names)
            parsed.append(AcknowledgementBatch(int(first), int(last or first), types, count, **more))
        held = self.machine.hold(member, transaction, parsed, self.driver.now_ms)
        for hold in held.holds:
            if not hold.durable:
                self.complete(hold, ok=ok)
        return held.batches

    def complete(self, write: StateWrite, *, ok: bool = True) -> None:
        if ok:
            self.store(write)
        completed = self.machine.complete_write(write, refused_at_ms=None if ok else self.driver.now_ms)
        self.driver.dead_letters += completed.dead_letters

    def resolve(self, settled: list[SettledBatch], transaction: str = T1) -> int | None:
        """Returns: how many records were let go; None: nothing was pending."""
        resolved = self.machine.resolve(transaction, settled, self.driver.now_ms)
        if resolved is None:
            return None
        assert isinstance(resolved.write, DecidedWrite)
        self.complete(resolved.write)
        return resolved.let_go

    def load_again(self, *, locks: bool = True, **config: object) -> "Settling":
        """As the next leader, with or without the locks that this one knew."""
        driver = Driver(
            [tuple(batch) for batch in map(_fields, self.stored.state_batches())],  # type: ignore[misc]
            self.start,
            annotations=self.stored.annotations(),
            locks=self.machine.locks() if locks else (),
            now_ms=self.driver.now_ms,
            **{name: getattr(self.driver.config, name) for name in ShareGroupConfig.__struct_fields__} | config,
        )
        again = Settling(driver)
        again.stored, again.start = self.stored, self.start
        return again

    def pending(self) -> dict[str, int]:
        """Records by their transaction."""
        return {
            name: sum(last - first + 1 for hold in holds for first, last in hold.ranges)
            for name, holds in self.machine.holds.items()
        }


def _fields(batch: Any) -> tuple[int, int, int, int]:
    return batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count


def settling(**config: object) -> Settling:
    return Settling(fetched("[0-9]", **config))


def test_pending_records_refuse_every_other_event() -> None:
    group = settling()
    group.hold("0-4 Acc")
    assert group.pending() == {T1: 5}
    assert group.driver.states() == "0-9 AQ×1"
    with pytest.raises(InvalidRecordState, match="pending on transaction t-1"):
        group.driver.ack("0-4 Acc", count=1)
    with pytest.raises(InvalidRecordState):
        group.driver.ack("0-4 Ren", count=1)
    group.driver.close()
    assert group.driver.states() == "0-4 AQ×1 | 5-9 AV×1", "a member that leaves leaves them pending"
    assert group.driver.later() == 0, "no lock ends it"
    assert group.driver.fetch("[0-9]", "M2") == "5-9×2"
    assert group.machine.held_count == 10


def test_a_commit_settles_as_an_acknowledgement_does() -> None:
    group = settling(dead_letter_topic_name="__dlq.x")
    batches = group.hold("0-2 Acc", "3-4 Rel", "5-6 Rej", reason=Reason("odd"))
    assert group.resolve(batches) == 0
    assert group.pending() == {}
    assert group.driver.where()[0] == 3
    assert group.driver.states() == "3-4 AV×1 | 5-6 ARCHIVING×1 | 7-9 AQ×1"
    assert [(each.first_offset, each.reason and str(each.reason.reason)) for each in group.driver.dead_letters] == [
        (5, "odd")
    ]
    assert group.stored.annotations()[0].reason == Reason("odd")
    assert all(note.transaction_id is None for note in group.stored.annotations())
    assert group.resolve(batches) is None, "applying twice changes nothing"


def test_an_aborted_transaction_gives_them_back_to_their_holder() -> None:
    group = settling()
    group.hold("0-4 Acc")
    assert group.resolve([]) == 5
    assert group.driver.states() == "0-9 AQ×1"
    assert group.stored.annotations() == []
    group.driver.ack("0-9 Acc", count=1)
    assert group.driver.where()[0] == 10


def test_a_lock_that_ran_out_meanwhile_ends_when_they_are_let_go() -> None:
    group = settling(delivery_count_limit=2)
    group.hold("0-4 Acc")
    assert group.driver.later(30_001) == 5, "the others"
    assert group.resolve([]) == 5
    assert group.machine.next_deadline_ms() is not None
    assert group.driver.later(0) == 5
    assert group.driver.fetch("[0-9]", "M2") == "0-9×2"


def test_a_commit_of_less_lets_go_the_rest() -> None:
    """An earlier try of the same transaction may have held more."""
    group = settling()
    batches = group.hold("0-4 Acc")
    group.hold("5-9 Acc")
    assert group.resolve(batches) == 5
    assert group.driver.states() == "5-9 AQ×1"
    assert group.driver.where()[0] == 5


def test_a_repeat_joins_and_another_transaction_waits() -> None:
    group = settling()
    first = group.hold("0-9 Acc")
    assert group.hold("2-4 Acc") == [SettledBatch(2, 4, ACCEPT, "M1", 1)]
    assert group.pending() == {T1: 10}
    with pytest.raises(ConcurrentTransactions):
        group.hold("2-4 Acc", transaction=T2)
    with pytest.raises(InvalidRecordState):
        group.hold("2-4 Acc", member="M2")
    with pytest.raises(InvalidRecordState):
        group.hold("2-4 Acc", count=2)
    assert group.resolve(first) == 0


@pytest.mark.parametrize(
    ("batch", "member", "count", "error"),
    [
        ("0-4 Acc", "M2", 1, InvalidRecordState),
        ("0-4 Acc", "M1", 2, InvalidRecordState),
        ("0-4 Ren", "M1", 1, InvalidRequest),
        ("5-12 Acc", "M1", 1, InvalidRequest),
        ("20-21 Acc", "M1", 1, InvalidRequest),
    ],
)
def test_what_is_not_held_is_refused_whole(batch: str, member: str, count: int, error: type[ApiError]) -> None:
    group = settling()
    with pytest.raises(error):
        group.hold("6-6 Acc", batch, member=member, count=count)
    assert group.pending() == {}
    group.driver.ack("0-9 Acc", count=1)


def test_what_was_finished_is_refused() -> None:
    """An acknowledgement alone ignores it; a transaction must not: another member may have settled it."""
    group = settling()
    group.driver.ack("0-4 Acc")
    with pytest.raises(InvalidRecordState, match="finished before"):
        group.hold("3-6 Acc")
    assert group.pending() == {}


def test_a_refused_hold_changes_nothing() -> None:
    group = settling()
    group.hold("0-4 Acc", ok=False)
    assert group.pending() == {}
    assert group.machine.holds == {}
    group.driver.ack("0-9 Acc", count=1)


def test_a_hold_that_is_not_durable_is_not_decided() -> None:
    group = settling()
    (hold,) = group.machine.hold("M1", T1, [AcknowledgementBatch(0, 4, (ACCEPT,), 1)], group.driver.now_ms).holds
    assert group.resolve([]) is None
    assert isinstance(hold, Hold)
    group.complete(hold)
    assert group.resolve([]) == 5


def test_the_next_leader_finds_them_pending() -> None:
    group = settling()
    batches = group.hold("0-4 Acc")
    for locks in (True, False):
        later = group.load_again(locks=locks)
        assert later.pending() == {T1: 5}
        assert later.driver.fetch("[0-9]", "M2") == ("" if locks else "5-9×1"), "nobody gets them"
        assert later.driver.later() == 5, "the others' locks end, theirs do not"
        assert later.resolve(batches) == 0
        assert later.driver.where()[0] == 5


def test_the_time_since_the_oldest_are_pending_is_known() -> None:
    """A leader counts from when it finds them."""
    group = settling()
    driver = group.driver
    assert group.machine.pending_since_ms is None
    began_ms = driver.now_ms
    group.hold("0-1 Acc")
    driver.now_ms += 500
    group.hold("2-3 Acc", transaction=T2)
    assert group.machine.pending_since_ms == began_ms
    assert group.resolve([]) == 2
    assert group.machine.pending_since_ms == began_ms + 500
    driver.now_ms += 500
    later = group.load_again()
    assert later.machine.pending_since_ms == driver.now_ms


def test_the_next_leader_without_the_locks_lets_them_go_to_the_group() -> None:
    group = settling()
    group.hold("0-4 Acc")
    later = group.load_again(locks=False)
    assert later.resolve([]) == 5
    assert later.driver.later(0) == 5
    assert later.driver.fetch("[0-9]", "M2") == "0-4×2, 5-9×1", "the delivery counts"


def test_a_let_go_record_that_is_loaded_again_was_never_delivered() -> None:
    """Its state has the count before its delivery: 0. Only its lock knows of the delivery."""
    group = settling()
    group.hold("0-4 Acc")
    group.resolve([])
    later = group.load_again(locks=False)
    assert later.pending() == {}
    assert later.machine.first_new() == 0
    assert later.driver.fetch("[0-9]", "M2") == "0-4×1, 5-9×1"


def test_a_hold_of_a_record_that_was_delivered_again() -> None:
    """It was released before: the state has the count 1."""
    group = settling()
    group.driver.ack("0-9 Rel")
    group.store(group.driver.writes[-1])
    group.driver.fetch("[0-9]", "M2")
    batches = group.hold("0-9 Acc", member="M2", count=2)
    assert group.stored.annotations() == [StateAnnotation(0, 9, 1, transaction_id=T1)]
    later = group.load_again(locks=False)
    assert later.resolve(batches) == 0
    assert later.driver.where()[0] == 10


def test_a_settled_delivery_is_not_applied_to_a_later_one() -> None:
    group = settling()
    batches = group.hold("0-4 Acc")
    late = [batch._replace(delivery_count=2) for batch in batches]
    assert group.resolve(late) == 5


def test_the_log_start_passes_pending_records() -> None:
    group = settling()
    batches = group.hold("0-4 Acc")
    group.machine.move_log_start(3, group.driver.now_ms)
    assert group.resolve(batches) == 3
    assert group.driver.where()[0] == 3, "the member holds 0-2 until the lock ends"
    assert group.driver.later() == 8
    assert group.driver.states() == "5-9 AV×1"
    assert group.driver.where()[0] == 5


def test_the_reason_of_the_delivery_before_is_kept() -> None:
    group = settling()
    group.driver.ack("0-9 Rel", reason="odd")
    group.store(group.driver.writes[-1])
    group.driver.fetch("[0-9]", "M2")
    group.hold("0-9 Acc", member="M2", count=2)
    for locks in (True, False):
        later = group.load_again(locks=locks)
        (run,) = later.machine.runs
        assert [str(each.reason) for each in run.earlier] == ["odd"]
        assert run.reason is None


def test_a_repeat_waits_for_the_write_that_is_under_way() -> None:
    group = settling()
    batch = AcknowledgementBatch(0, 4, (ACCEPT,), 1)
    first = group.machine.hold("M1", T1, [batch], group.driver.now_ms).holds
    again = group.machine.hold("M1", T1, [batch], group.driver.now_ms).holds
    assert again == first
    assert not first[0].durable


def test_records_are_named_once() -> None:
    group = settling()
    with pytest.raises(InvalidRequest, match="acknowledged twice"):
        group.hold("0-4 Acc", "4-5 Rel")
    assert group.pending() == {}


def test_a_settlement_leaves_what_is_pending_on_another_transaction() -> None:
    group = settling()
    group.hold("0-4 Acc")
    group.hold("5-9 Acc", transaction=T2)
    assert group.resolve([SettledBatch(0, 9, ACCEPT, "M1", 1)]) == 0
    assert group.pending() == {T2: 5}
    assert group.driver.states() == "5-9 AQ×1"


def test_a_lock_of_a_later_delivery_is_not_pending() -> None:
    """The transaction ended before that delivery, so its outcome cannot concern it."""
    driver = Driver(
        [(0, 9, 0, 0)],
        0,
        annotations=[StateAnnotation(0, 9, 0, transaction_id=T1)],
        locks=[RestoredLock(0, 9, "M2", 2, 1_020_000, 30_000)],
    )
    assert driver.machine.holds == {}
    driver.ack("0-9 Acc", member="M2", count=2)
    assert driver.where()[0] == 10


def test_a_check_finds_the_refusal_of_a_hold_and_changes_nothing() -> None:
    group = settling()
    group.hold("0-1 Acc")
    before = group.driver.states()
    machine = group.machine
    machine.check_hold("M1", T1, AcknowledgementBatch(0, 3, (ACCEPT,), 1))
    with pytest.raises(ConcurrentTransactions):
        machine.check_hold("M1", "t-2", AcknowledgementBatch(0, 3, (ACCEPT,), 1))
    with pytest.raises(InvalidRecordState):
        machine.check_hold("M2", T1, AcknowledgementBatch(2, 3, (ACCEPT,), 1))
    with pytest.raises(InvalidRecordState):
        machine.check_hold("M1", T1, AcknowledgementBatch(2, 3, (ACCEPT,), 2))
    assert group.driver.states() == before
    assert group.pending() == {T1: 2}


def test_neighbours_are_held_as_one_range_and_settled_as_one_batch() -> None:
    group = settling()
    batches = [AcknowledgementBatch(offset, offset, (ACCEPT,), 1) for offset in (3, 0, 1, 2, 5)]
    held = group.machine.hold("M1", T1, batches, group.driver.now_ms)
    (hold,), settled = held.holds, held.batches
    assert hold.ranges == [(0, 3), (5, 5)]
    assert [(each.first_offset, each.last_offset) for each in hold.state.batches] == [(0, 3), (5, 5)]
    assert [(each.first_offset, each.last_offset) for each in settled] == [(3, 3), (0, 2), (5, 5)]
    group.complete(hold)
    assert not hold.state.batches, "a hold lives for as long as its transaction"
    assert group.resolve(settled) == 0
    assert group.driver.where()[0] == 4


def test_neighbours_that_differ_are_settled_apart() -> None:
    group = settling()
    alike = [AcknowledgementBatch(offset, offset, (ACCEPT,), 1) for offset in (0, 1)]
    others = [AcknowledgementBatch(2, 2, (RELEASE,), 1), AcknowledgementBatch(3, 3, (RELEASE,), 1, delay_ms=5)]
    settled = group.machine.hold("M1", T1, [*alike, *others], group.driver.now_ms).batches
    assert [(each.first_offset, each.last_offset, each.type) for each in settled] == [
        (0, 1, ACCEPT),
        (2, 2, RELEASE),
        (3, 3, RELEASE),
    ]
