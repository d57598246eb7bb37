"""A delayed record is delivered now, or rejected, by hand: in memory at once, and for the next leader when written."""

import pytest
from sharequeue_gateway.share_partition.runs import REJECTED

from sharequeue.protocol.errors import InvalidRecordState
from sharequeue.protocol.types import Reason
from tests.core.share_partition_driver import Driver, fetched
from tests.core.states import Stored

DELAY_MS = 3_600_000


def delayed(**config: object) -> Driver:
    """Five records of one batch, the first and the last three of which are delayed; the second is held."""
    d = fetched("[0-4]", **config)
    d.ack("0 Rel", "2-4 Rel", delay_ms=DELAY_MS, reason="later")
    return d


def stored(d: Driver) -> Stored:
    found = Stored()
    for write in d.writes:
        found = found.updated(write.state)
    return found


def settle(d: Driver, offset: int, count: int = 1, reason: str | None = None) -> list[int]:
    """Returns: the offsets of the dead letters, which are rejected."""
    ended = d.machine.settle_delayed(offset, count, None if reason is None else Reason(reason), d.now_ms)
    assert ended.write is not None
    d.writes.append(ended.write)
    d.machine.complete_write(ended.write, refused_at_ms=None)
    for letter in ended.dead_letters:
        assert (letter.cause, letter.reason and str(letter.reason.reason)) == (REJECTED, reason)
    return [letter.first_offset for letter in ended.dead_letters]


def test_a_record_whose_delay_ends_by_hand_is_delivered_again() -> None:
    d = delayed()
    assert settle(d, 3) == []
    assert (d.machine.delayed_count, d.machine.waiting_count) == (3, 4)
    assert d.fetch("[0-4]") == "3-3×2"
    notes = {note.first_offset: note for note in stored(d).annotations()}
    assert notes[3].available_at_ms is not None
    assert notes[3].available_at_ms <= d.now_ms + 100, "the next leader waits no longer"
    assert str(notes[3].reason) == "later"
    assert notes[4].available_at_ms is not None
    assert notes[4].available_at_ms > d.now_ms + 100


@pytest.mark.parametrize("queue", ["", "dead"])
def test_a_delayed_record_is_rejected_by_hand(queue: str) -> None:
    d = delayed(dead_letter_topic_name=queue)
    held = d.machine.held_count
    assert settle(d, 0, reason="no customer") == ([0] if queue else [])
    assert (d.machine.delayed_count, d.machine.waiting_count) == (3, 3)
    assert d.machine.held_count == held + bool(queue)
    assert d.machine.start_offset == (0 if queue else 1), "a finished record at the start moves it"
    assert settle(d, 2, reason="no customer") == ([2] if queue else [])
    d.later(DELAY_MS)
    d.machine.expire(d.now_ms)
    assert d.fetch("[0-4]") == "1-1×2, 3-4×2", "the end of its delay brings it back no more"
    found = {batch.first_offset: batch.delivery_state for batch in stored(d).state_batches()}
    assert found[2] == (3 if queue else 4)
    if queue:
        (note,) = [note for note in stored(d).annotations() if note.first_offset == 2]
        assert (str(note.reason), note.available_at_ms) == ("no customer", None)


@pytest.mark.parametrize(("offset", "count"), [(1, 1), (3, 2), (9, 1)], ids=["held", "another delivery", "not fetched"])
def test_only_the_delivery_that_was_named_is_changed(offset: int, count: int) -> None:
    d = delayed()
    before = d.states()
    with pytest.raises(InvalidRecordState):
        settle(d, offset, count)
    assert d.states() == before


def test_a_record_whose_release_is_not_durable_is_not_changed() -> None:
    d = fetched("[0]", hold_writes=True)
    d.ack("0 Rel", delay_ms=DELAY_MS)
    with pytest.raises(InvalidRecordState):
        settle(d, 0)
