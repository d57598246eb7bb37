"""The reasons of a record: the last five are kept, with their times, through every change of leader."""

from collections.abc import Sequence

from sharequeue.protocol.types import GivenReason, RestoredLock
from tests.core.share_partition_driver import Driver
from tests.core.states import Stored

NOW_MS = 1_000_000
Said = tuple[tuple[str, int], ...]


def said(reasons: Sequence[GivenReason]) -> Said:
    return tuple((str(given.reason), given.at_ms) for given in reasons)


def reasons(d: Driver) -> list[tuple[int, int, Said, Said]]:
    """(first, last, earlier reasons, the reason of the last delivery) of each run."""
    return [
        (run.first, run.last, said(run.earlier), said(() if run.reason is None else (run.reason,)))
        for run in d.machine.runs
    ]


def stored(d: Driver) -> Stored:
    """The state after all writes of a driver."""
    state = Stored()
    for write in d.writes:
        state = state.updated(write.state, write.start_offset)
    return state


def next_leader(d: Driver, locks: Sequence[RestoredLock] = ()) -> Driver:
    state = stored(d)
    batches = [
        (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in state.state_batches()
    ]
    return Driver(
        batches, d.machine.start_offset, locks=locks, annotations=state.annotations(), delivery_count_limit=20
    )


def released(times: int) -> Driver:
    """Five records that were delivered and released so often; with a reason, but for the third time."""
    d = Driver(delivery_count_limit=20)
    for number in range(1, times + 1):
        d.fetch("[0-4]")
        d.ack("0-4 Rel", reason=None if number == 3 else f"no {number}", delay_ms=0)
        d.now_ms += 1000
    return d


def at(number: int) -> tuple[str, int]:
    return f"no {number}", NOW_MS + 1000 * (number - 1)


def test_the_first_reason_has_its_time_and_none_before_it() -> None:
    assert reasons(released(1)) == [(0, 4, (), (at(1),))]


def test_a_reason_becomes_an_earlier_one_with_the_next_delivery() -> None:
    d = released(2)
    assert reasons(d) == [(0, 4, (at(1),), (at(2),))]
    d.fetch("[0-4]")
    assert reasons(d) == [(0, 4, (at(1), at(2)), ())]


def test_the_last_five_earlier_reasons_are_kept() -> None:
    """Seven deliveries are one more than that; the third gave no reason."""
    assert reasons(released(8)) == [(0, 4, (at(2), at(4), at(5), at(6), at(7)), (at(8),))]


def test_the_next_leader_knows_all_of_them() -> None:
    d = released(8)
    assert reasons(next_leader(d)) == reasons(d)


def test_the_next_leader_of_held_records_knows_that_their_reason_is_an_earlier_one() -> None:
    d = released(2)
    d.fetch("[0-4]", "M2")
    found = next_leader(d, d.machine.locks())
    assert found.states() == "0-4 AQ×3"
    assert reasons(found) == reasons(d) == [(0, 4, (at(1), at(2)), ())]


def test_a_delivery_that_ended_in_memory_alone_hides_no_reason() -> None:
    d = released(2)
    d.fetch("[0-4]", "M2")
    d.hold_writes = True
    d.later()
    found = next_leader(d, d.machine.locks())
    assert reasons(found) == reasons(d) == [(0, 4, (at(1), at(2)), ())]


def test_a_lock_that_ends_gives_no_reason() -> None:
    d = released(1)
    d.fetch("[0-4]")
    d.later()
    assert reasons(d) == reasons(next_leader(d)) == [(0, 4, (at(1),), ())]


def test_a_refused_write_takes_its_reason_back() -> None:
    d = released(1)
    d.fetch("[0-4]")
    d.hold_writes = True
    d.ack("0-4 Rel", reason="never")
    d.finish(ok=False)
    assert reasons(d) == [(0, 4, (at(1),), ())]


def test_parts_of_a_batch_have_reasons_of_their_own() -> None:
    d = released(1)
    d.fetch("[0-4]")
    d.ack("0-1 Rel", reason="other")
    d.ack("2-4 Rel")
    expected = [(0, 1, (at(1),), (("other", NOW_MS + 1000),)), (2, 4, (at(1),), ())]
    assert reasons(d) == expected
    assert reasons(next_leader(d)) == expected


def test_a_dead_letter_has_them_also_at_the_next_leader() -> None:
    d = Driver(delivery_count_limit=20, dead_letter_topic_name="dlq")
    for number, word in ((1, "Rel"), (2, "Rej")):
        d.fetch("[0-4]")
        d.ack(f"0-4 {word}", reason=f"no {number}", delay_ms=0 if word == "Rel" else None)
        d.now_ms += 1000
    (letter,) = d.dead_letters
    assert letter.reason is not None
    assert said((*letter.earlier, letter.reason)) == (at(1), at(2))
    assert next_leader(d).dead_letters == [letter]


def test_finished_records_keep_the_last_reason_alone() -> None:
    d = released(2)
    d.fetch("[0-4]")
    d.ack("1-3 Rej", reason="useless")
    found = reasons(next_leader(d))
    assert found[1] == (1, 3, (), (("useless", NOW_MS + 2000),))


def test_equal_reasons_given_within_a_tenth_of_a_second_stay_one_range() -> None:
    d = Driver()
    d.fetch("[0-4]")
    for offset in range(5):
        d.ack(f"{offset} Rel", reason="closed", delay_ms=1000)
        d.now_ms += 20
    notes = stored(d).annotations()
    assert {note.reason_at_ms for note in notes} == {NOW_MS}
