"""The share coordinator's rules without IO: scenarios SC, in the words of the state calls."""

from collections.abc import Sequence

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import SNAPSHOT, TOMBSTONE, UPDATE, KeyState, Row, encode_row, replay
from sharequeue_share_coordinator.share_state.shard import Decision

from sharequeue.protocol.errors import UnknownTopicOrPartition
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue.protocol.state import Given, Note, StateBatch, StateBatches
from sharequeue.protocol.types import Reason
from tests.core.states import StateAnnotation, Stored, stored_in, written

Batches = list[tuple[int, int, int, int]]
NO_TOPIC = shard.fault(0, UnknownTopicOrPartition, "no such partition")


class Shard:
    """One key: decides requests and replays each row, as the coordinator does."""

    def __init__(self, limit: int = 500) -> None:
        self.limit = limit
        self.now_ms = 1000
        self.state: KeyState | None = None
        self.rows: list[Row] = []

    def apply(self, decision: Decision) -> PartitionStateResult:
        if decision.row is not None:
            self.rows.append(decision.row)
            self.state = replay(self.state, decision.row, self.limit)
        return decision.result

    def init(self, epoch: int, start: int, topic: Decision | None = None) -> int:
        request = PartitionState(partition=0, state_epoch=epoch, start_offset=start)
        return self.apply(shard.initialize(self.state, request, topic, self.now_ms)).error_code

    def read(self, leader: int, topic: Decision | None = None) -> PartitionStateResult:
        request = PartitionState(partition=0, leader_epoch=leader)
        return self.apply(shard.read(self.state, request, topic, self.limit, self.now_ms))

    def write(
        self,
        state: int,
        leader: int,
        start: int,
        count: int,
        batches: Batches = [],  # noqa: B006 - read only
        *,
        annotations: Sequence[StateAnnotation] = (),
        topic: Decision | None = None,
        removed_unread: int = 0,
    ) -> int:
        request = PartitionState(
            partition=0,
            state_epoch=state,
            leader_epoch=leader,
            start_offset=start,
            delivery_complete_count=count,
            removed_unread=removed_unread,
            state=written([StateBatch(*batch) for batch in batches], annotations),
        )
        return self.apply(shard.write(self.state, request, topic, self.limit, self.now_ms)).error_code

    def delete(self, topic: Decision | None = None) -> int:
        return self.apply(shard.delete(self.state, PartitionState(partition=0), topic)).error_code

    def summary(self) -> tuple[int | None, ...]:
        """(state epoch, leader epoch, start offset, delivery-complete count)."""
        result = self.apply(shard.read_summary(self.state, PartitionState(partition=0), None))
        return result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count

    def sweep(self, interval_ms: int = 10_000) -> bool:
        row = None if self.state is None else shard.cold_snapshot(self.state, interval_ms, self.now_ms)
        self.apply(Decision(shard.done(0), row))
        return row is not None

    def kinds(self) -> list[int]:
        return [row.kind for row in self.rows]


def held(result: PartitionStateResult) -> tuple[int | None, Batches]:
    return result.start_offset, [
        (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in stored_in(result).state_batches()
    ]


def test_sc_001_a_write_is_an_update() -> None:
    key = Shard()
    assert key.init(0, -1) == 0
    assert key.write(0, 0, 0, 11, [(0, 10, 0, 1)]) == 0
    assert key.kinds() == [SNAPSHOT, UPDATE]
    assert [row.snapshot_epoch for row in key.rows] == [0, 0]
    assert held(key.read(0)) == (0, [(0, 10, 0, 1)])


def test_sc_003_read_and_write_need_initialize() -> None:
    key = Shard()
    assert key.write(0, 0, 0, 0) == 42
    assert key.read(0).error_code == 42
    assert key.rows == []


@pytest.mark.parametrize(
    ("partition", "leader", "state", "needs_leader", "needs_state"),
    [
        (-1, 0, 0, True, True),
        (0, -1, 0, True, True),
        (0, None, 0, True, False),
        (0, 0, -1, True, True),
        (0, None, None, False, True),
        (-1, None, None, False, False),
    ],
)
def test_sc_005_null_and_negative_fields_are_refused(
    partition: int, leader: int | None, state: int | None, needs_leader: bool, needs_state: bool
) -> None:
    request = PartitionState(partition=partition, leader_epoch=leader, state_epoch=state)
    refused = shard.form_fault(request, leader_epoch=needs_leader, state_epoch=needs_state)
    assert refused is not None
    assert (refused.result.error_code, refused.row) == (42, None)


def test_epochs_that_a_call_does_not_use_may_be_missing() -> None:
    request = PartitionState(partition=0)
    assert shard.form_fault(request, leader_epoch=False, state_epoch=False) is None


def test_sc_007_the_topic_is_checked_last() -> None:
    key = Shard()
    assert key.write(0, 0, 0, 0, topic=NO_TOPIC) == 42
    assert key.read(0, NO_TOPIC).error_code == 42
    assert key.init(3, 0, NO_TOPIC) == 3
    assert key.rows == []
    key.init(3, 0)
    key.read(2)
    assert key.init(2, 0, NO_TOPIC) == 124
    assert key.write(3, 1, 0, 0, topic=NO_TOPIC) == 74
    assert key.write(2, 2, 0, 0, topic=NO_TOPIC) == 124
    assert key.write(2, 1, 0, 0) == 74
    assert key.write(3, 2, 0, 0, topic=NO_TOPIC) == 3
    assert key.read(1, NO_TOPIC).error_code == 74
    assert key.read(5, NO_TOPIC).error_code == 3
    assert key.delete(NO_TOPIC) == 3
    assert shard.read_summary(key.state, PartitionState(partition=0), NO_TOPIC).result.error_code == 3
    assert key.summary() == (3, 2, 0, 0)


def test_a_write_after_a_start_of_postgresql_needs_the_version_that_it_builds_on() -> None:
    key = Shard()
    key.init(0, 0)
    for start in range(3):
        key.write(0, 0, start, 0)
    kept = key.state

    def write(version: int | None, store: str, start: int = 9) -> PartitionStateResult:
        request = PartitionState(
            partition=0, state_epoch=0, leader_epoch=0, start_offset=start, version=version or 0, store=store
        )
        return key.apply(shard.write(key.state, request, None, key.limit, key.now_ms, "now"))

    newest = write(key.read(0).version, "now")
    assert (newest.error_code, newest.store) == (0, "now")
    assert newest.version == key.read(0).version
    assert write(newest.version, "before").error_code == 0  # a restart that lost nothing
    lost = write(newest.version, "before").version
    key.state = kept  # the store went back
    assert write(lost, "before").error_code == 124
    assert write(lost, "before", start=10).error_code == 124
    assert key.state == kept
    version = key.read(0).version
    key.now_ms += 20_000
    assert key.sweep()  # a snapshot hides whether the version was there
    assert write(version, "before").error_code == 124
    assert write(version, "now").error_code == 0


def test_sc_009_a_fenced_write_records_nothing() -> None:
    key = Shard()
    key.init(1, -1)
    assert key.write(0, 5, 0, 0) == 124
    assert key.read(2).error_code == 0


@pytest.mark.parametrize(
    ("stored", "written", "result"),
    [
        pytest.param((5, 10), (11, 4), (11, 4), id="SC-011"),
        pytest.param((15, 10), (11, 20), (15, 10), id="SC-013"),
        pytest.param((5, 10), (5, 4), (5, 10), id="equal start keeps the larger"),
        pytest.param((5, 10), (5, 12), (5, 12), id="equal start takes the larger"),
        pytest.param((5, 10), (-1, 12), (5, 10), id="unchanged start"),
    ],
)
@pytest.mark.parametrize("limit", [500, 0])
def test_the_complete_count_belongs_to_its_start_offset(
    stored: tuple[int, int], written: tuple[int, int], result: tuple[int, int], limit: int
) -> None:
    key = Shard(limit)
    key.init(0, 0)
    key.write(0, 0, *stored)
    assert key.write(0, 0, *written) == 0
    assert key.summary()[2:] == result


@pytest.mark.parametrize("limit", [500, 0])
def test_sc_015_a_write_records_higher_epochs(limit: int) -> None:
    key = Shard(limit)
    key.init(1, 0)
    key.read(3)
    assert key.write(1, 9, 0, 0, [(0, 4, 0, 1)]) == 0
    assert key.write(1, 3, 0, 0) == 74
    assert key.write(7, 9, 0, 0) == 0
    assert key.write(1, 9, 0, 0) == 124
    assert key.summary()[:2] == (7, 9)
    assert held(key.read(9)) == (0, [(0, 4, 0, 1)])


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    batches = [StateBatch(0, 4, 0, 1), StateBatch(9, 8, 0, 1)]
    request = PartitionState(partition=0, leader_epoch=0, state_epoch=0, state=StateBatches(batches))
    refused = shard.form_fault(request, leader_epoch=True, state_epoch=True)
    assert refused is not None
    assert refused.result.error_code == 42
    assert refused.result.error_message == "the state batch 9 to 8 ends before it begins"


def test_sc_017_a_read_records_a_higher_leader_epoch_once() -> None:
    key = Shard()
    key.init(0, 7)
    key.write(0, 0, 7, 2, [(8, 9, 2, 1)])
    before = len(key.rows)
    assert held(key.read(1)) == (7, [(8, 9, 2, 1)])
    assert len(key.rows) == before + 1
    assert key.rows[-1].leader_epoch == 1
    assert key.summary() == (0, 1, 7, 2)
    assert held(key.read(1)) == (7, [(8, 9, 2, 1)])
    assert len(key.rows) == before + 1


def test_a_read_records_the_epoch_in_a_snapshot_when_one_is_due() -> None:
    key = Shard(limit=1)
    key.init(0, 0)
    key.write(0, 0, 0, 1, [(3, 3, 2, 1)])
    key.read(4)
    assert key.kinds() == [SNAPSHOT, UPDATE, SNAPSHOT]
    assert held(key.read(4)) == (0, [(3, 3, 2, 1)])
    assert key.read(3).error_code == 74


def test_sc_019_a_read_by_an_older_leader_is_fenced() -> None:
    key = Shard()
    key.init(0, 0)
    key.read(5)
    assert key.read(3).error_code == 74
    assert key.write(0, 4, 0, 0) == 74
    assert key.write(0, 5, 0, 0) == 0


def test_sc_021_a_read_needs_a_leader_epoch() -> None:
    request = PartitionState(partition=0, leader_epoch=-1)
    refused = shard.form_fault(request, leader_epoch=True, state_epoch=False)
    assert refused is not None
    assert refused.result.error_code == 42


def test_sc_023_a_second_initialize_clears_the_state_and_keeps_the_fence() -> None:
    key = Shard()
    key.init(5, 10)
    key.read(3)
    key.write(5, 3, 12, 1, [(15, 15, 2, 1)])
    assert key.init(5, 20) == 0
    assert key.rows[-1].kind == SNAPSHOT
    assert key.rows[-1].snapshot_epoch == 1
    assert key.summary() == (5, 0, 20, 0)
    assert key.read(2).error_code == 74
    assert held(key.read(3)) == (20, [])


def test_initialize_with_the_stored_state_writes_nothing() -> None:
    key = Shard()
    key.init(5, 10)
    assert key.init(5, 10) == 0
    assert len(key.rows) == 1
    assert key.init(6, 10) == 0
    assert len(key.rows) == 2


@pytest.mark.parametrize("start_offset", [-1, 0])
def test_a_repeated_initialize_keeps_what_was_acknowledged_since(start_offset: int) -> None:
    key = Shard()
    key.init(5, start_offset)
    key.read(3)
    key.write(5, 3, 10, 0, [(12, 14, 2, 1)])
    assert key.init(5, start_offset) == 0
    assert held(key.read(3)) == (10, [(12, 14, 2, 1)])
    assert key.init(6, start_offset) == 0
    assert held(key.read(3)) == (start_offset, [])


def test_sc_025_initialize_under_an_older_state_epoch_is_fenced() -> None:
    key = Shard()
    key.init(5, 10)
    assert key.init(4, 0) == 124
    assert key.summary()[0] == 5


def test_sc_027_the_count_is_unknown_until_the_start_offset_is_known() -> None:
    key, other = Shard(), Shard()
    key.init(0, -1)
    other.init(0, 7)
    assert key.summary() == (0, 0, -1, -1)
    assert other.summary() == (0, 0, 7, 0)
    assert Shard().summary() == (0, 0, -1, -1)


def test_sc_029_a_limit_of_zero_makes_only_snapshots() -> None:
    key = Shard(limit=0)
    key.init(0, 0)
    key.write(0, 0, 0, 1, [(1, 1, 2, 1)])
    key.write(0, 0, 0, 2, [(3, 3, 2, 1)])
    assert key.kinds() == [SNAPSHOT] * 3
    assert [row.snapshot_epoch for row in key.rows] == [0, 1, 2]
    assert held(key.read(0)) == (0, [(1, 1, 2, 1), (3, 3, 2, 1)])


def test_a_snapshot_follows_the_limits_number_of_updates() -> None:
    key = Shard(limit=2)
    key.init(0, 0)
    for offset in range(1, 7):
        key.write(0, 0, 0, offset, [(2 * offset, 2 * offset, 2, 1)])
    assert key.kinds()[1:] == [UPDATE, UPDATE, SNAPSHOT, UPDATE, UPDATE, SNAPSHOT]
    assert held(key.read(0)) == (0, [(2 * offset, 2 * offset, 2, 1) for offset in range(1, 7)])


def test_an_early_snapshot_does_not_reset_the_update_counter() -> None:
    key = Shard(limit=3)
    key.init(0, 0)
    key.write(0, 0, 0, 1)
    key.now_ms += 20_000
    assert key.sweep()
    key.write(0, 0, 0, 1)
    key.init(1, 5)
    key.write(1, 0, 5, 1)
    key.write(1, 0, 5, 1)
    assert key.kinds() == [SNAPSHOT, UPDATE, SNAPSHOT, UPDATE, SNAPSHOT, UPDATE, SNAPSHOT]


def test_sc_031_delete_forgets_state_and_epochs() -> None:
    key = Shard()
    key.init(5, 10)
    key.read(7)
    assert key.delete() == 0
    assert key.rows[-1].kind == TOMBSTONE
    assert key.read(9).error_code == 42
    rows = len(key.rows)
    assert key.delete() == 0
    assert len(key.rows) == rows
    assert key.init(0, -1) == 0
    assert key.read(1).error_code == 0


def test_sc_037_a_fresh_snapshot_is_not_cold() -> None:
    key = Shard()
    key.init(0, 0)
    key.write(0, 0, 0, 1)
    key.now_ms += 5000
    assert not key.sweep()


def test_sc_039_only_keys_older_than_the_interval_are_cold() -> None:
    old, fresh = Shard(), Shard()
    fresh.now_ms += 15_000
    for key in (old, fresh):
        key.init(0, 3)
        key.write(0, 0, 3, 1, [(5, 5, 2, 1)])
        key.read(1)
        key.now_ms = 1000 + 12_000 + 3000
    fresh.now_ms = old.now_ms = 16_000
    assert old.sweep()
    assert not fresh.sweep()
    assert held(old.read(1)) == (3, [(5, 5, 2, 1)])
    assert old.summary() == (0, 1, 3, 1)
    snapshot = old.rows[-1]
    assert (snapshot.snapshot_epoch, snapshot.create_timestamp_ms, snapshot.write_timestamp_ms) == (1, 1000, 16_000)
    old.now_ms += 20_000
    assert not old.sweep(), "nothing new to keep"


def test_sc_051_a_start_offset_prunes_batches_below_it() -> None:
    key = Shard()
    key.init(0, 100)
    key.write(0, 0, 100, 10, [(100, 109, 2, 1)])
    assert key.write(0, 0, 110, 0, [(110, 110, 0, 1)]) == 0
    assert held(key.read(0)) == (110, [(110, 110, 0, 1)])


def test_annotations_are_read_until_the_delivery_count_rises() -> None:
    for limit in (500, 0):
        key = Shard(limit)
        key.init(0, 0)
        note = StateAnnotation(1, 4, 1, available_at_ms=100, reason=Reason("slow"))
        key.write(0, 0, 0, 0, [(1, 4, 0, 1)], annotations=[note])
        assert stored_in(key.read(0)).annotations() == [note]
        key.write(0, 0, 0, 0, [(1, 3, 2, 2)])
        assert stored_in(key.read(0)).annotations() == [StateAnnotation(4, 4, 1, 100, Reason("slow"))]
        key.write(0, 0, 5, 0)
        assert stored_in(key.read(0)).annotations() == []


@pytest.mark.parametrize(
    ("batches", "unfinished"),
    [
        ((), 5),
        (((5, 9, 2, 1),), 10),
        (((5, 6, 2, 1), (7, 8, 4, 5), (9, 9, 2, 1)), 10),
        (((5, 6, 2, 1), (7, 8, 0, 1), (9, 9, 2, 1)), 7),
        (((5, 6, 2, 1), (7, 7, 3, 1)), 7),
        (((6, 9, 2, 1),), 5),
        (((5, 6, 2, 1), (8, 9, 2, 1)), 7),
    ],
    ids=["nothing", "a batch", "neighbours", "a released one", "one that is archiving", "a gap first", "a gap"],
)
def test_a_summary_has_the_first_unfinished_offset(
    batches: Sequence[tuple[int, int, int, int]], unfinished: int
) -> None:
    """The leader's write has the start offset from before that write; the next one has the new start offset."""
    key = Shard()
    key.init(0, 5)
    key.write(0, 0, 5, 0, list(batches))
    result = shard.read_summary(key.state, PartitionState(partition=0), None).result
    assert (result.start_offset, result.unfinished_offset) == (5, unfinished)


def test_a_summary_of_an_uninitialised_key_has_no_offset() -> None:
    assert shard.read_summary(None, PartitionState(partition=0), None).result.unfinished_offset == -1


@pytest.mark.parametrize(
    ("from_offset", "start", "count", "unfinished"),
    [(-1, 5, 4, 5), (3, 5, 4, 5), (7, 7, 3, 8), (8, 8, 2, 8), (10, 10, 2, 12), (20, 20, 0, 20)],
)
def test_a_summary_from_the_log_start_counts_only_what_the_log_has(
    from_offset: int, start: int, count: int, unfinished: int
) -> None:
    """Of the finished records 6, 7, 10 and 11 the log may have lost some."""
    key = Shard()
    key.init(0, 5)
    key.write(0, 0, 5, 4, [(6, 7, 2, 1), (8, 9, 0, 1), (10, 11, 4, 1)])
    result = shard.read_summary(key.state, PartitionState(partition=0, start_offset=from_offset), None).result
    assert (result.start_offset, result.delivery_complete_count, result.unfinished_offset) == (start, count, unfinished)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9), st.sampled_from((0, 2, 4))), max_size=40))
def test_pages_of_any_size_make_the_whole_state(ranges: list[tuple[int, int, int]]) -> None:
    key = Shard()
    key.init(0, 0)
    notes = [StateAnnotation(first, first, 1, 100, Reason("slow" * (first % 9 + 1))) for first, *_ in ranges[::2]]
    key.write(0, 0, 0, 0, [(first, first + length, state, 1) for first, length, state in ranges], annotations=notes)
    assert key.state is not None
    for size in (1, 100, 1000, 1 << 20):
        found: list[StateBatch] = []
        texts: dict[int, str] = {}
        offset: int | None = 0
        pages = 0
        while offset is not None:
            request = PartitionState(partition=0, leader_epoch=0, from_offset=offset)
            result = shard.read(key.state, request, None, 500, 0, size).result
            found += result.batches
            texts |= result.texts
            assert len(msgspec.json.encode((result.batches, result.texts))) < size + 250
            offset, pages = result.next_offset, pages + 1
        assert found == key.state.batches
        assert texts == dict(enumerate(key.state.texts))
        assert pages == max(len(found), 1) if size == 1 else pages >= len(found) * 16 // (size + 80)


def test_the_first_page_beside_a_snapshot_names_texts_as_later_pages_do() -> None:
    """The read raises the leader epoch when a snapshot is due, which forgets a text."""
    key = Shard()
    key.init(0, 0)
    key.write(0, 0, 0, 0, [(0, 0, 0, 1)], annotations=[StateAnnotation(0, 0, 1, reason=Reason("forgotten"))])
    notes = [StateAnnotation(n, n, 1, reason=Reason(f"reason {n % 3}")) for n in range(1, 300)]
    key.write(0, 0, 1, 0, [(n, n, 0, 1) for n in range(1, 300)], annotations=notes)
    found, offset, versions = Stored(), 0, set()
    while offset is not None:
        decision = shard.read(
            key.state, PartitionState(partition=0, leader_epoch=7, from_offset=offset), None, 2, 0, 900
        )
        if decision.row is not None:
            key.state = replay(key.state, encode_row(decision.row)[0], 2)
        found = found.with_page(decision.result)
        versions.add(decision.result.version)
        offset = decision.result.next_offset
    assert len(versions) == 1
    assert [note.reason for note in found.annotations()] == [note.reason for note in notes]


def test_an_empty_reason_is_kept_and_read() -> None:
    key = Shard()
    key.init(0, 0)
    note = StateAnnotation(0, 0, 1, reason=Reason(""))
    key.write(0, 0, 0, 0, [(0, 0, 0, 1)], annotations=[note])
    result = key.read(0)
    assert result.texts == {0: ""}
    assert stored_in(result).annotations() == [note]


@pytest.mark.parametrize("place", [1, -1])
def test_a_batch_that_names_no_text_is_refused(place: int) -> None:
    batch = StateBatch(0, 0, 0, 1, Note(reason=Given(place)))
    request = PartitionState(partition=0, leader_epoch=0, state_epoch=0, state=StateBatches([batch], ["a"]))
    refused = shard.form_fault(request, leader_epoch=True, state_epoch=True)
    assert refused is not None
    assert refused.result.error_message == f"a batch names the text {place} of 1"


def test_what_left_the_log_unread_is_kept_through_resets_and_snapshots() -> None:
    """The count never falls, and goes with the state."""
    key = Shard(limit=2)
    key.init(1, 0)
    assert key.write(1, 1, 5, 0, removed_unread=3) == 0
    assert key.write(1, 1, 6, 0) == 0
    assert key.read(2).removed_unread == 3
    assert key.kinds()[-2:] == [UPDATE, SNAPSHOT]
    assert key.write(1, 2, 9, 0, removed_unread=4) == 0
    key.init(2, 0)
    assert key.read(3).removed_unread == 4
    key.delete()
    key.init(3, 0)
    assert key.read(4).removed_unread == 0
