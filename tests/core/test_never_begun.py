"""Deliveries that were never begun: forgiven beside the delivery count, which never falls."""

import pytest
from sharequeue_gateway.share_partition.outcomes import Acknowledged

from sharequeue.protocol.state import StateBatch
from sharequeue.protocol.types import Reason, RestoredLock
from tests.core.restored import load
from tests.core.share_partition_driver import Driver, fetched
from tests.core.states import StateAnnotation, annotations

FIVE = "[0-4]"


def attempts(d: Driver) -> list[tuple[int, int, int, int]]:
    """(first, last, delivery count, attempt) of each run."""
    return [(run.first, run.last, run.delivery_count, run.attempt) for run in d.machine.runs]


def test_a_release_that_was_never_begun_is_no_attempt_and_keeps_the_count() -> None:
    d = fetched(FIVE)
    d.ack("0-1 Rel", begun=False)
    assert attempts(d) == [(0, 1, 1, 0), (2, 4, 1, 1)]
    assert d.fetch(FIVE) == "0-1×2"
    assert attempts(d)[0] == (0, 1, 2, 1)


def test_the_limit_goes_by_attempts() -> None:
    d = fetched(FIVE, delivery_count_limit=2)
    d.ack("0-4 Rel", begun=False)
    for count in (2, 3):
        d.fetch(FIVE, rl=True, max=500)
        assert d.machine.held_by("M1", 0, 0)[0].delivery_count == count
        d.ack("0-4 Rel")
    assert d.states() == ""


def test_at_most_as_many_deliveries_are_forgiven_as_the_limit_allows_attempts() -> None:
    """So a record is delivered twice as often as the limit at most."""
    d = fetched("[0]", delivery_count_limit=3)
    deliveries = 1
    while True:
        d.ack("0 Rel", begun=False)
        if not d.fetch("[0]"):
            break
        deliveries += 1
    assert deliveries == 6
    assert d.states() == ""


def test_what_no_client_saw_is_forgiven_without_counting_against_the_bound() -> None:
    d = fetched("[0]", delivery_count_limit=2)
    for _ in range(20):
        d.ack("0 Rel", begun=False, seen=False)
        d.fetch("[0]")
    assert attempts(d) == [(0, 0, 21, 1)]
    for _ in range(2):
        d.ack("0 Rel", begun=False)
        d.fetch("[0]")
    assert attempts(d) == [(0, 0, 23, 1)]
    d.ack("0 Rel", begun=False)
    assert d.fetch("[0]") == "0-0×24"
    d.ack("0 Rel", begun=False)
    assert d.states() == ""


def test_no_backoff_is_added_and_a_delay_holds() -> None:
    d = fetched(FIVE, retry_backoff_ms=(9_000,))
    d.ack("0-1 Rel", begun=False)
    d.ack("2-4 Rel", begun=False, delay_ms=500)
    assert d.fetch(FIVE) == "0-1×2"
    d.later(500)
    assert d.fetch(FIVE) == "2-4×2"


def test_no_backoff_is_added_behind_an_earlier_attempt() -> None:
    d = fetched(FIVE, retry_backoff_ms=(9_000,))
    d.ack("0-4 Rel")
    d.later(20_000)
    assert d.fetch(FIVE) == "0-4×2"
    d.ack("0-4 Rel", begun=False)
    assert d.fetch(FIVE) == "0-4×3"


def test_only_releases_forgive() -> None:
    d = fetched(FIVE)
    d.ack("0-4 Rel Acc Rej Gap Ren", begun=False)
    d.fetch(FIVE)
    assert attempts(d)[0] == (0, 0, 2, 1)
    assert all(run.forgiven == 0 for run in d.machine.runs if run.first)


def test_a_repeat_is_recognised_and_forgives_once() -> None:
    d = fetched("[0]", delivery_count_limit=1)
    d.ack("0 Rel", begun=False, count=1)
    again = d.ack("0 Rel", begun=False, count=1)
    assert again == Acknowledged((), False, [])
    assert attempts(d) == [(0, 0, 1, 0)]


# Throttled redelivery


@pytest.mark.parametrize(("throttle", "redelivered"), [(True, "0-1×4"), (False, "0-4×4")])
def test_records_that_a_worker_released_are_throttled_if_the_group_says_so(throttle: bool, redelivered: str) -> None:
    d = fetched(FIVE, throttle_released=throttle)
    for _ in range(2):
        d.ack("0-4 Rel")
        d.fetch(FIVE)
    d.ack("0-4 Rel")
    assert d.fetch(FIVE) == redelivered


@pytest.mark.parametrize("end", ["lock", "leave"])
def test_records_whose_worker_died_or_left_are_always_throttled(end: str) -> None:
    d = fetched(FIVE, throttle_released=False)
    for _ in range(3):
        d.later() if end == "lock" else d.close()
        last = d.fetch(FIVE)
    assert last == "0-1×4"


@pytest.mark.parametrize("end", ["lock", "leave"])
def test_a_worker_that_dies_after_releases_by_others_is_throttled(end: str) -> None:
    d = fetched(FIVE, throttle_released=False)
    for _ in range(2):
        d.ack("0-4 Rel")
        assert d.fetch(FIVE).startswith("0-4")
    d.later() if end == "lock" else d.close()
    assert d.fetch(FIVE) == "0-1×4"


def test_a_release_that_was_never_begun_does_not_spare_what_killed_its_worker() -> None:
    d = fetched(FIVE, throttle_released=False)
    for _ in range(3):
        d.later()
        last = d.fetch(FIVE)
    assert last == "0-1×4"
    d.ack("0-1 Rel", begun=False)
    assert d.fetch(FIVE) == "0-1×5"


def test_after_a_load_a_reason_tells_that_a_worker_released_the_records() -> None:
    notes = [StateAnnotation(0, 4, 3, reason=Reason("the bank is away"))]
    loaded = [Driver([(0, 4, 0, 3)], annotations=these, throttle_released=False) for these in (notes, [])]
    assert [d.fetch(FIVE) for d in loaded] == ["0-4×4", "0-1×4"]


# Persisting, and the next leader


def test_the_release_and_each_later_write_carry_what_is_forgiven() -> None:
    d = fetched(FIVE, dead_letter_topic_name="dlq")
    d.ack("0-4 Rel", begun=False)
    d.fetch(FIVE)
    d.ack("0 Rel")
    d.ack("1 Acc")
    d.ack("2 Rej")
    d.later()
    carried = {
        (note.first_offset, note.delivery_count): note.forgiven
        for write in d.writes
        for note in annotations(write.state)
    }
    assert carried == {(0, 1): 1, (0, 2): 1, (2, 2): 1, (3, 2): 1}, "an accepted record needs none"


def test_a_restored_lock_past_its_deadline_ends_the_record_by_its_attempts() -> None:
    ended = [RestoredLock(0, 0, "M1", 3, 1, 30_000, 1), RestoredLock(1, 1, "M1", 3, 1, 30_000, 0)]
    d = Driver(locks=ended, delivery_count_limit=3)
    assert d.states() == "0-0 AV×3 | 1-1 AQ×3"


def test_persisted_forgiveness_is_restored_whatever_the_count_is_now() -> None:
    loaded = load(
        Driver(delivery_count_limit=2).config,
        state_epoch=1,
        leader_epoch=1,
        start_offset=0,
        state_batches=[StateBatch(0, 9, 0, 2)],
        annotations=[StateAnnotation(2, 4, 1, forgiven=1), StateAnnotation(5, 9, 2, forgiven=2)],
        now_ms=1,
    )
    runs = [(run.first, run.last, run.attempt) for run in loaded.share_partition.runs]
    assert runs == [(0, 1, 2), (2, 4, 1), (5, 9, 0)]


def test_the_cause_of_a_restored_dead_letter_goes_by_attempts() -> None:
    config = {"delivery_count_limit": 2, "dead_letter_topic_name": "dlq"}
    notes = [StateAnnotation(0, 0, 2, forgiven=1)]
    d = Driver([(0, 1, 3, 2)], annotations=notes, **config)
    assert [letter.cause for letter in d.dead_letters] == [
        "Offset rejected by client.",
        "Offset delivery count exceeded the threshold.",
    ]


def test_a_log_start_within_a_write_leaves_the_rest_forgiven() -> None:
    d = Driver(hold_writes=True)
    d.fetch(FIVE)
    d.ack("0-4 Rel", begun=False)
    d.machine.move_log_start(2, d.now_ms)
    d.finish(ok=False)
    assert attempts(d) == [(2, 4, 1, 1)]


def test_a_failed_write_takes_the_forgiveness_back() -> None:
    d = fetched(FIVE, hold_writes=True)
    d.ack("0-1 Rel", begun=False)
    d.ack("2-4 Rel", begun=False, seen=False)
    assert attempts(d) == [(0, 1, 1, 0), (2, 4, 1, 0)]
    d.finish(ok=False)
    d.finish(ok=False)
    assert attempts(d) == [(0, 1, 1, 1), (2, 4, 1, 1)]
    assert [run.unseen for run in d.machine.runs] == [0, 0]


@pytest.mark.parametrize("seen", [False, True])
def test_a_lock_carries_no_forgiveness_that_may_be_refused(seen: bool) -> None:
    """All locks are written while the release is under way; it is refused, and its leader is killed."""
    d = fetched(FIVE, hold_writes=True)
    d.ack("0-4 Rel", begun=False, seen=seen)
    (lock,) = d.machine.locks()
    d.finish(ok=False)
    assert d.machine.locks() == [lock]
    assert attempts(Driver(locks=[lock])) == attempts(d) == [(0, 4, 1, 1)]


def test_a_lock_carries_what_is_forgiven_to_the_next_leader() -> None:
    d = fetched(FIVE, delivery_count_limit=2)
    d.ack("0-4 Rel", begun=False)
    d.fetch(FIVE)
    (lock,) = d.machine.locks()
    assert (lock.delivery_count, lock.forgiven) == (2, 1)
    later = Driver(locks=[lock], delivery_count_limit=2)
    assert attempts(later) == [(0, 4, 2, 1)]
    later.later()
    assert later.fetch(FIVE) == "0-4×3"
