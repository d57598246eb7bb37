"""The audit's own replay: as the share coordinator's over any run of requests,
and every planted difference is named."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType, structs
from sharequeue_pipeline.jobs.state_check import Finding, findings, laid_over, last_row, replay
from sharequeue_share_coordinator.http.export_api import KINDS
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import KeyState, Row
from sharequeue_share_coordinator.share_state.rows import replay as replay_row

from sharequeue.protocol.messages.audit import AuditedState, StateAnswer, StateRow
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import StateBatch

UPDATES_PER_SNAPSHOT = 4


def exported(rows: list[Row]) -> list[StateRow]:
    return [
        StateRow(
            seq=seq,
            kind=KINDS[row.kind],
            **{name: getattr(row, name) for name in StateRow.__struct_fields__[2:-1]},
        )
        for seq, row in enumerate(rows, 1)
    ]


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[str, PartitionState]]:
    """Any requests, as a leader may send them and as it never would."""
    steps = []
    for _ in range(draw(st.integers(1, 25))):
        batches = []
        for _ in range(draw(st.integers(0, 4))):
            first = draw(st.integers(0, 40))
            last = first + draw(st.integers(0, 12))
            batches.append(StateBatch(first, last, draw(st.sampled_from([0, 2, 3, 4])), draw(st.integers(1, 3))))
        request = PartitionState(
            partition=0,
            state_epoch=draw(st.integers(0, 2)),
            leader_epoch=draw(st.integers(0, 3)),
            start_offset=draw(st.integers(0, 30)),
            delivery_complete_count=draw(st.integers(0, 20)),
            state_batches=batches,
        )
        steps.append((draw(st.sampled_from(["initialize", "read", "write", "write", "write", "delete"])), request))
    return steps


def decide(name: str, state: KeyState | None, request: PartitionState) -> shard.Decision:
    match name:
        case "initialize":
            return shard.initialize(state, request, None, 1)
        case "read":
            return shard.read(state, request, None, UPDATES_PER_SNAPSHOT, 1)
        case "write":
            return shard.write(state, request, None, UPDATES_PER_SNAPSHOT, 1)
        case _:
            return shard.delete(state, request, None)


def run(steps: list[tuple[str, PartitionState]]) -> tuple[list[Row], KeyState | None]:
    """The rows that a share coordinator writes for these calls, and the final state."""
    rows: list[Row] = []
    state: KeyState | None = None
    for name, request in steps:
        row = decide(name, state, request).row
        if row is not None:
            rows.append(row)
            state = replay_row(state, row, UPDATES_PER_SNAPSHOT)
    return rows, state


@given(requests(), st.integers(0, 30))
def test_replay_from_any_snapshot_ends_in_the_same_state(steps: list[tuple[str, PartitionState]], skipped: int) -> None:
    rows, expected = run(steps)
    kept = exported(rows)
    snapshots = [place for place, row in enumerate(kept) if row.kind != "update"]
    if snapshots:
        kept = kept[snapshots[skipped % len(snapshots)] :]
    faults: list[str] = []
    state = replay(kept, faults)
    assert faults == []
    if expected is None:
        assert state is None
        return
    assert state is not None
    for field in ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count"):
        assert getattr(state, field) == getattr(expected, field), field
    assert list(state.state_batches) == [structs.astuple(batch) for batch in expected.batches.state_batches()]


def snapshot(seq: int = 1, **fields: Any) -> StateRow:
    given = {"start_offset": 0, "delivery_complete_count": 0, "state_epoch": 1, "leader_epoch": 1, **fields}
    return StateRow(seq=seq, kind="snapshot", **given)


def update(seq: int, *batches: tuple[int, int, int, int], **fields: Any) -> StateRow:
    given = {"delivery_complete_count": 0, **fields}
    return StateRow(seq=seq, kind="update", state_batches=[StateBatch(*batch) for batch in batches], **given)


def audited(
    *rows: StateRow, answer: dict[str, int] | None = None, end: int | UnsetType = 100, **fields: Any
) -> AuditedState:
    state = replay(rows, [])
    given = {"error_code": 0, "state_epoch": 1, "leader_epoch": 1}
    if state is not None:
        given |= {name: getattr(state, name) for name in ("start_offset", "delivery_complete_count")}
    return AuditedState(
        group_id="g",
        topic_id="id",
        partition=0,
        rows=list(rows),
        answer=StateAnswer(**{**given, **(answer or {})}),
        **{"topic": "orders", "log_start_offset": 0, "log_end_offset": end, **fields},
    )


def test_a_correct_state_has_no_findings() -> None:
    rows = snapshot(), update(2, (0, 9, 2, 1), (10, 12, 0, 1), delivery_complete_count=10), update(3, start_offset=10)
    assert findings(audited(*rows)) == []
    assert findings(audited(*rows, log_start_offset=50)) == []  # the group has not looked since
    never = StateAnswer(error_code=0)
    assert findings(structs.replace(audited(), answer=never)) == []
    waiting = snapshot(start_offset=-1, delivery_complete_count=-1)
    assert findings(audited(waiting)) == []


def test_an_update_written_beside_a_large_snapshot_may_have_the_epoch_before() -> None:
    beside, behind = snapshot(9, snapshot_epoch=1), update(7, (0, 0, 0, 1))
    assert findings(audited(beside, behind)) == []
    (finding,) = findings(audited(beside, update(10, (0, 0, 0, 1))))
    assert finding.detail == "row 10 updates snapshot 0, but follows snapshot 1"
    (finding,) = findings(audited(structs.replace(beside, snapshot_epoch=2), behind))
    assert finding.detail == "row 7 updates snapshot 0, but follows snapshot 2"


CASES = {
    "answer": (audited(snapshot(), answer={"start_offset": 5}), "state answer", "the rows come to 0, .* answers 5"),
    "answer epoch": (audited(snapshot(), answer={"state_epoch": 2}), "state answer", "state_epoch"),
    "answer leader": (
        audited(snapshot(), answer={"leader_epoch": 2}),
        "state answer",
        "leader_epoch: the rows come to 1",
    ),
    "answer count": (audited(snapshot(), answer={"delivery_complete_count": 2}), "state answer", "come to 0, .* 2"),
    "answer error": (audited(snapshot(), answer={"error_code": 3}), "state answer", "error 3"),
    "no snapshot": (audited(update(1)), "state rows", "an update without a snapshot"),
    "deleted": (
        audited(snapshot(), StateRow(seq=2, kind="tombstone"), update(3)),
        "state rows",
        "an update of a deleted snapshot",
    ),
    "begins with a tombstone": (
        audited(StateRow(seq=2, kind="tombstone"), update(3)),
        "state rows",
        "an update of a deleted snapshot",
    ),
    "other snapshot": (audited(snapshot(), update(2, snapshot_epoch=7)), "state rows", "row 2 updates snapshot 7"),
    "older snapshot": (audited(snapshot(), snapshot(2)), "state rows", "row 2 is snapshot 0, but follows snapshot 0"),
    "older epoch": (
        audited(snapshot(), snapshot(2, snapshot_epoch=1, state_epoch=0), answer={"state_epoch": 0}),
        "state rows",
        "the state epoch 0, below the 1",
    ),
    "backwards": (
        audited(snapshot(start_offset=5), update(2, start_offset=3)),
        "state rows",
        "moves the start offset back from 5 to 3",
    ),
    "backwards in a snapshot": (
        audited(snapshot(start_offset=5), snapshot(2, snapshot_epoch=1, start_offset=3)),
        "state rows",
        "moves the start offset back from 5 to 3",
    ),
    "unreadable": (audited(snapshot(), StateRow(seq=2, kind="update", fault="x")), "state rows", "cannot be read: x"),
    "behind the end": (audited(snapshot(start_offset=101)), "state and log", "101 lies behind the log end 100"),
    "batch behind the end": (audited(snapshot(), update(2, (90, 100, 0, 1))), "state and log", "90-100 reaches behind"),
    "too many done": (
        audited(snapshot(start_offset=98, delivery_complete_count=3)),
        "state and log",
        "only 2 offsets from the start offset 98",
    ),
    "too few done": (audited(snapshot(), update(2, (0, 4, 2, 1))), "state batches", "5 records .*_count is 0"),
    "overlap": (
        audited(snapshot(state_batches=[StateBatch(0, 5, 0, 1), StateBatch(5, 6, 0, 1)])),
        "state batches",
        "5-6 begins before the batch before it ends at 5",
    ),
    "below the start": (
        audited(snapshot(start_offset=3, state_batches=[StateBatch(1, 5, 0, 1)])),
        "state batches",
        "1-5 begins before the start offset 3",
    ),
    "backward batch": (audited(snapshot(state_batches=[StateBatch(5, 1, 0, 1)])), "state batches", "ends before"),
    "acquired is never stored": (
        audited(snapshot(state_batches=[StateBatch(0, 1, 1, 1)])),
        "state batches",
        "the delivery state 1",
    ),
    "negative count": (
        audited(snapshot(state_batches=[StateBatch(0, 1, 0, -1)])),
        "state batches",
        "the delivery count -1",
    ),
    "no start offset": (
        audited(snapshot(start_offset=-1, state_batches=[StateBatch(0, 1, 0, 1)])),
        "state batches",
        "there are state batches, but no start offset",
    ),
    "orphan": (structs.replace(audited(snapshot()), topic=UNSET), "orphaned state", "there is no such topic"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_difference_of_the_state_is_named(case: str) -> None:
    state, kind, expected = CASES[case]
    found: list[Finding] = findings(state)
    assert kind in {finding.kind for finding in found}
    details = " / ".join(finding.detail for finding in found if finding.kind == kind)
    assert re.search(expected, details), details


def test_a_topic_that_is_gone_needs_no_answer() -> None:
    orphan = structs.replace(audited(snapshot(), answer={"error_code": 3}), topic=UNSET)
    assert [finding.kind for finding in findings(orphan)] == ["orphaned state"]


def test_all_records_up_to_the_log_end_may_be_finished() -> None:
    assert findings(audited(snapshot(start_offset=100), end=100)) == []
    assert findings(audited(snapshot(start_offset=98, delivery_complete_count=2), end=100)) == []
    assert findings(audited(snapshot(state_batches=[StateBatch(0, 99, 2, 1)], delivery_complete_count=100))) == []


def test_without_a_log_end_nothing_lies_behind_it() -> None:
    unknown = audited(snapshot(start_offset=101), update(2, (110, 120, 0, 1)), end=UNSET, log_start_offset=UNSET)
    assert findings(unknown) == []


def test_no_count_is_needed_without_a_finished_record() -> None:
    uncounted = {"delivery_complete_count": -1}
    assert findings(audited(snapshot(state_batches=[StateBatch(0, 5, 0, 1)], **uncounted))) == []
    (finding,) = findings(audited(snapshot(state_batches=[StateBatch(0, 0, 4, 1)], **uncounted)))
    assert finding.detail == "1 records of the state batches are finished, but delivery_complete_count is -1"


def test_a_finished_record_counts_once_and_none_below_the_start_offset() -> None:
    """The overlap itself is the only finding."""
    twice = [StateBatch(0, 5, 2, 1), StateBatch(4, 7, 2, 1)]
    (finding,) = findings(audited(snapshot(state_batches=twice, delivery_complete_count=8)))
    assert finding.detail == "the state batch 4-7 begins before the batch before it ends at 5"
    below = [StateBatch(1, 5, 2, 1)]
    (finding,) = findings(audited(snapshot(start_offset=3, state_batches=below, delivery_complete_count=3)))
    assert finding.detail == "the state batch 1-5 begins before the start offset 3"


def test_each_batch_within_a_longer_one_is_named() -> None:
    nested = snapshot(state_batches=[StateBatch(0, 9, 0, 1), StateBatch(2, 3, 0, 1), StateBatch(5, 6, 0, 1)])
    assert [finding.detail for finding in findings(audited(nested))] == [
        "the state batch 2-3 begins before the batch before it ends at 9",
        "the state batch 5-6 begins before the batch before it ends at 9",
    ]


@pytest.mark.parametrize(
    ("fields", "findings_of_it"),
    [
        ({"leader_epoch": 0, "start_offset": 3}, 0),  # an initialisation
        ({"leader_epoch": 1, "start_offset": 3}, 1),
        ({"leader_epoch": 0, "start_offset": 3, "state_batches": [StateBatch(3, 4, 0, 1)]}, 1),
        ({"leader_epoch": 1, "start_offset": 3, "state_epoch": 2}, 0),  # a reset of the offsets
        ({"leader_epoch": 1, "start_offset": 5}, 0),
    ],
)
def test_only_a_reset_or_an_initialisation_goes_back(fields: dict[str, Any], findings_of_it: int) -> None:
    following = snapshot(2, snapshot_epoch=1, **fields)
    answer = {"state_epoch": fields.get("state_epoch", 1), "leader_epoch": fields["leader_epoch"]}
    assert len(findings(audited(snapshot(start_offset=5), following, answer=answer))) == findings_of_it


def test_the_newest_row_is_the_last_one() -> None:
    assert last_row(audited(snapshot(3), update(7))) == 7
    assert last_row(audited()) == -1


STATE_BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size - 1, state, count),
        st.integers(0, 12),
        st.integers(1, 6),
        st.sampled_from([0, 2, 3, 4]),
        st.integers(1, 2),
    ),
    max_size=4,
)


@given(STATE_BATCHES, STATE_BATCHES, st.integers(0, 12))
def test_batches_laid_over_others_are_those_of_each_record(
    below: list[StateBatch], above: list[StateBatch], start_offset: int
) -> None:
    """Of each record the higher delivery count wins, then the higher state; neighbours of one state are one batch."""
    records: dict[int, tuple[int, int]] = {}
    for each in [*below, *above]:
        for offset in range(max(start_offset, each.first_offset), each.last_offset + 1):
            records[offset] = max(records.get(offset, (0, 0)), (each.delivery_count, each.delivery_state))
    expected: list[tuple[int, int, int, int]] = []
    for offset, (count, state) in sorted(records.items()):
        if expected and expected[-1][1:] == (offset - 1, state, count):
            expected[-1] = (expected[-1][0], offset, state, count)
        else:
            expected.append((offset, offset, state, count))
    stored = tuple(structs.astuple(each) for each in below)
    assert list(laid_over(stored, above, start_offset)) == expected
