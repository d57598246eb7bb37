"""What has changed since a large snapshot was stored whole: it leads to the same state, and costs what it holds."""

import random

import pytest
from hypothesis import given, settings
from msgspec import structs
from sharequeue_share_coordinator.share_state import batch_list as module
from sharequeue_share_coordinator.share_state import changes as changes_module
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.batch_list import BatchList
from sharequeue_share_coordinator.share_state.changes import changes_between, with_changes
from sharequeue_share_coordinator.share_state.notes import TOO_MANY
from sharequeue_share_coordinator.share_state.row_format import (
    decode_large,
    decode_row,
    encode_parts,
    encode_row,
)
from sharequeue_share_coordinator.share_state.rows import (
    MOST_CHANGED,
    SNAPSHOT,
    Base,
    KeyState,
    Row,
    base_serves,
    replay,
    restored,
    snapshot_due,
)

from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import Reason, StateAnnotation, StateBatch
from tests.core.test_batch_list import Update, check_form, notable_updates
from tests.core.test_row_format import NOW_MS, delayed
from tests.examples import examples


@pytest.fixture(params=[1, 3, 512])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """At short blocks every update crosses them."""
    monkeypatch.setattr(module, "BLOCK", request.param)
    monkeypatch.setattr(changes_module, "BLOCK", request.param)


@pytest.mark.usefixtures("block")
def test_changes_lead_to_the_later_list() -> None:
    @settings(max_examples=examples(60))
    @given(notable_updates, notable_updates)
    def check(earlier: list[Update], later: list[Update]) -> None:
        before, start_offset = BatchList(), -1
        for update in earlier:
            before, start_offset = before.updated(*update), max(start_offset, update[2])
        after = before
        for new, notes, start in later:
            start_offset = max(start_offset, start)
            after = after.updated(new, notes, start_offset)
        cut = before.from_start(start_offset)
        changes = changes_between(cut, after)
        assert changes.gone == sorted(changes.gone)
        found = with_changes(cut, changes)
        assert found == after
        check_form(found)
        assert with_changes(cut, changes_between(cut, cut)) == cut

    check()


def test_changes_name_what_an_update_touches_and_share_the_rest() -> None:
    before = delayed(100_000, random.Random(7))
    after = before.updated([StateBatch(50_000, 50_000, 2, 1), StateBatch(200_001, 200_400, 2, 1)], [], -1)
    changes = changes_between(before, after)
    assert changes.gone == [50_000]
    assert [batch.first_offset for batch in changes.added] == [50_000, 200_001]
    found = with_changes(before, changes)
    shared = set(map(id, before.blocks)) & set(map(id, found.blocks))
    assert len(shared) == len(before.blocks) - 2


# As rows


def stored_whole(state: KeyState, snapshot_id: int = 1) -> tuple[Row, list[bytes]]:
    parts, reasons, transactions = encode_parts(state.batches)
    return shard.large_snapshot(state, 0, snapshot_id, parts, reasons, transactions), parts


def published(state: KeyState, row: Row) -> KeyState:
    decided = shard.publish(state, state, row, NOW_MS).row
    assert decided is not None
    after = replay(state, decided, 500, 1)
    assert after is not None
    return after


def state_of(batches: BatchList) -> KeyState:
    row = Row(kind=SNAPSHOT, snapshot_epoch=1, state_epoch=1, start_offset=0, delivery_complete_count=0)
    empty = replay(None, row, 500, 10)
    assert empty is not None
    return structs.replace(empty, batches=batches, reasons=batches.reasons(), update_bytes=1000, updates=500, rows=500)


def updated(state: KeyState, *batches: StateBatch, notes: tuple[StateAnnotation, ...] = (), start: int = 0) -> KeyState:
    request = PartitionState(
        partition=0,
        state_epoch=1,
        leader_epoch=1,
        start_offset=start,
        state_batches=list(batches),
        annotations=list(notes),
    )
    row = shard.write(state, request, None, 500, NOW_MS).row
    assert row is not None
    after = replay(state, row, 500, len(encode_row(row)))
    assert after is not None
    return after


def loaded(row: Row, parts: list[bytes]) -> KeyState:
    read = decode_row(encode_row(row))
    return restored(read, *decode_large(read, parts))


def test_a_snapshot_of_changes_is_loaded_as_the_state_that_it_was_taken_of() -> None:
    """Reasons and transactions that the parts do not name, a start offset that has moved, and a second one."""
    row, parts = stored_whole(state_of(delayed(5000, random.Random(7))))
    state = published(state_of(delayed(5000, random.Random(7))), row)
    assert state.base is not None
    state = loaded(row, parts)
    new = StateAnnotation(20_000, 20_003, 2, NOW_MS + 900, Reason("another one"), 1, NOW_MS)
    pending = StateAnnotation(20_010, 20_010, 2, None, None, 0, None, (), "t-9")
    for number in range(3):
        state = updated(
            state,
            StateBatch(20_000, 20_010, 0, 2),
            StateBatch(2 * number + 6000, 2 * number + 6000, 2, 1),
            notes=(new, pending),
            start=1001 + 100 * number,
        )
        changed = shard.changed_snapshot(state, 7)
        assert changed is not None
        assert len(encode_row(changed)) < 1500
        again = loaded(changed, parts)
        assert again.batches == state.batches
        assert again.reasons == state.reasons & again.batches.reasons()
        assert (again.start_offset, again.snapshot_bytes) == (state.start_offset, len(changed.changes))
        assert again.base is not None
        after = published(state, changed)
        assert after.base is not None
        assert again.base.written == after.base.written > 0
        assert (after.updates, after.update_bytes, after.rows) == (0, 0, 0)
        assert "another one" in after.reasons
        state = again if number else after


def test_a_state_without_a_snapshot_in_parts_is_stored_whole() -> None:
    assert shard.changed_snapshot(state_of(delayed(2000, random.Random(7))), 7) is None


def test_bytes_that_are_no_changes_are_refused() -> None:
    state = state_of(delayed(2000, random.Random(7)))
    row, parts = stored_whole(state)
    changed = shard.changed_snapshot(updated(published(state, row), StateBatch(9000, 9000, 2, 1)), 7)
    assert changed is not None
    for damaged in (structs.replace(changed, changes=changed.changes[:-9]), structs.replace(changed, changes=b"x")):
        with pytest.raises(ValueError, match=r"the changes since the snapshot cannot be read|truncated|malformed"):
            decode_large(damaged, parts)
    with pytest.raises(ValueError, match="1 parts belong to it, but 0 are stored"):
        decode_large(changed, [])


# When one is stored whole


def base_of(size: int, written: int) -> Base:
    return Base(BatchList(), 1, 1, size, (), (), written)


@pytest.mark.parametrize(
    ("size", "written", "changed", "reasons", "serves"),
    [
        (10_000, 0, 5000, (), True),
        (10_000, 0, 5001, (), False),
        (10_000, 9999, 5000, (), True),
        (10_000, 10_000, 1250, (), True),
        (10_000, 10_000, 1251, (), False),
        (10_000, 200_000, 0, ("a",), True),
        (10_000, 200_001, 0, ("a",), False),
        (10_000, 20_000, 0, ("a", TOO_MANY), True),
        (10_000, 20_001, 0, ("a", TOO_MANY), False),
        (8 * MOST_CHANGED, 0, MOST_CHANGED, (), True),
        (8 * MOST_CHANGED, 0, MOST_CHANGED + 1, (), False),
    ],
)
def test_a_snapshot_is_stored_whole_again_when_its_parts_serve_no_longer(
    size: int, written: int, changed: int, reasons: tuple[str, ...], serves: bool
) -> None:
    assert base_serves(base_of(size, written), changed, frozenset(reasons)) is serves


@pytest.mark.parametrize("limit", [0, 500])
def test_no_large_snapshot_is_due_before_a_row_lies_behind_the_last(limit: int) -> None:
    """With the limit 0 each one asked for the next, without an end."""
    state = beginning(2000)
    assert not snapshot_due(state, limit)
    changed = shard.changed_snapshot(state, 7)
    assert changed is not None
    assert not snapshot_due(published(state, changed), limit)
    assert snapshot_due(updated(state, StateBatch(9000, 9000, 2, 1)), 0)


def cost(state: KeyState, offsets: list[int]) -> tuple[int, int, int]:
    """Accept single records, with snapshots as they come. Returns: bytes of updates and snapshots; most updates."""
    updates = snapshots = longest = 0
    for offset in offsets:
        before = state.update_bytes
        state = updated(state, StateBatch(offset, offset, 2, 2))
        updates += state.update_bytes - before
        longest = max(longest, state.updates)
        if snapshot_due(state, 500):
            row = shard.changed_snapshot(state, 0)
            if row is None:
                row, _ = stored_whole(state)
                snapshots += row.size
            snapshots += len(encode_row(row))
            state = published(state, row)
    return updates, snapshots, longest


def beginning(count: int) -> KeyState:
    state = state_of(delayed(count, random.Random(7)))
    return published(state, stored_whole(state)[0])


def test_beside_delayed_records_snapshots_cost_little_and_few_updates_are_replayed() -> None:
    """Accepted one after another behind 20,000 delayed ones, whose whole snapshot has the bytes of 2,000 updates."""
    updates, snapshots, longest = cost(beginning(20_000), list(range(40_000, 50_000)))
    assert snapshots < 0.05 * updates
    assert longest == 500


def test_snapshots_of_records_everywhere_cost_less_than_the_updates() -> None:
    """The worst: each update touches another block, and all of them change in the end."""
    offsets = [2 * n for n in range(10_000)]
    random.Random(7).shuffle(offsets)
    updates, snapshots, longest = cost(beginning(10_000), offsets)
    assert 0 < snapshots < updates
    assert longest <= 10_000


def test_the_reasons_of_a_large_state_are_forgotten_when_it_is_stored_whole() -> None:
    """Until then the parts refer to them."""
    state = beginning(2000)
    state = updated(state, *(StateBatch(2 * n, 2 * n, 2, 2) for n in range(1999)))
    state = updated(state, *(StateBatch(10_000 + 2 * n, 10_000 + 2 * n, 0, 1) for n in range(2000)))
    row = shard.changed_snapshot(structs.replace(state, update_bytes=0), 0)
    assert row is None or len(published(state, row).reasons) == 100
    assert len(published(state, stored_whole(state)[0]).reasons) == 1
