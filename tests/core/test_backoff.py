"""The group's backoff: what it applies to, from when it counts, and that every leader finds the same time."""

import pytest
from sharequeue_gateway.share_partition.backoff import jitter_seed, retry_at_ms

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import RestoredLock, SharePartitionKey
from tests.core.share_partition_driver import Driver, fetched

WAITS = (1_000, 5_000, 30_000)
PLAIN = {"retry_backoff_ms": WAITS, "retry_jitter_percent": 0}
NOW_MS = 1_000_000


def delays(d: Driver) -> list[tuple[int, int, int]]:
    """(first offset, last offset, time left) of each delayed run."""
    return [(run.first, run.last, run.available_at_ms - d.now_ms) for run in d.machine.runs if run.available_at_ms]


# The time


@pytest.mark.parametrize(("attempt", "wait_ms"), [(1, 1_000), (2, 5_000), (3, 30_000), (4, 30_000), (99, 30_000)])
def test_the_attempt_chooses_the_wait_and_the_last_one_repeats(attempt: int, wait_ms: int) -> None:
    assert retry_at_ms(ShareGroupConfig(**PLAIN), 7, 0, attempt, NOW_MS) == NOW_MS + wait_ms


def test_without_a_list_or_with_a_wait_of_0_there_is_no_wait() -> None:
    assert retry_at_ms(ShareGroupConfig(), 7, 0, 1, NOW_MS) == 0
    assert retry_at_ms(ShareGroupConfig(retry_backoff_ms=(0, 500)), 7, 0, 1, NOW_MS) == 0


def test_jitter_makes_waits_longer_only_and_spreads_batches() -> None:
    config = ShareGroupConfig(retry_backoff_ms=(100_000,), retry_jitter_percent=50)
    waits = [retry_at_ms(config, 7, first, 1, NOW_MS) - NOW_MS for first in range(0, 500_000, 500)]
    assert 100_000 <= min(waits) < 105_000
    assert 145_000 < max(waits) <= 150_000
    assert 122_000 < sum(waits) / len(waits) < 128_000
    assert all(wait % 100 == 0 for wait in waits)


def test_the_longest_wait_is_12_hours_with_its_jitter() -> None:
    config = ShareGroupConfig(retry_backoff_ms=(43_200_000,), retry_jitter_percent=50)
    assert {retry_at_ms(config, seed, 0, 1, NOW_MS) - NOW_MS for seed in range(50)} == {43_200_000}


def test_times_are_rounded_up_to_a_tenth_of_a_second() -> None:
    config = ShareGroupConfig(retry_backoff_ms=(1,), retry_jitter_percent=0)
    assert [retry_at_ms(config, 7, 0, 1, ended_ms) for ended_ms in (0, 99, 100)] == [100, 100, 200]


def test_group_topic_partition_batch_and_attempt_choose_the_jitter() -> None:
    config = ShareGroupConfig(retry_backoff_ms=(10_000_000,), retry_jitter_percent=50)
    keys = [SharePartitionKey(g, t, p) for g in ("g", "h") for t in ("t", "u") for p in (0, 1)]
    times = {retry_at_ms(config, jitter_seed(key), first, n, 0) for key in keys for first in (0, 5) for n in (1, 2)}
    assert len(times) == 2**5
    again = {retry_at_ms(config, jitter_seed(key), first, n, 0) for key in keys for first in (0, 5) for n in (1, 2)}
    assert again == times


# What it applies to


def test_a_release_without_a_delay_waits_longer_with_each_delivery() -> None:
    d = fetched("[0-4]", **PLAIN)
    for wait_ms in (*WAITS, WAITS[-1]):
        d.ack("0-4 Rel")
        assert delays(d) == [(0, 4, wait_ms)]
        assert d.fetch("[0-4]") == ""
        d.later(wait_ms - 1)
        assert d.fetch("[0-4]") == ""
        d.later(1)
        d.fetch("[0-4]", rl=True)
        if not d.machine.held_by("M1", 0, 4):
            break
        d.configure(delivery_count_limit=100)
    assert d.states() == "0-4 AQ×5"


def test_a_release_with_a_delay_goes_by_it_and_0_is_at_once() -> None:
    d = fetched("[0-4]", **PLAIN)
    d.ack("0-1 Rel", delay_ms=0)
    d.ack("2-3 Rel", delay_ms=70)
    d.ack("4 Rel")
    assert delays(d) == [(2, 3, 70), (4, 4, 1_000)]
    assert d.fetch("[0-4]") == "0-1×2"


# The next leader


def test_a_restored_lock_past_its_deadline_waits_from_the_deadline() -> None:
    lock = RestoredLock(0, 4, "M1", 2, NOW_MS - 600, 30_000)
    d = Driver([(0, 4, 0, 1)], locks=[lock], **PLAIN)
    assert delays(d) == [(0, 4, 4_400)]
    assert d.fetch("[0-4]") == ""
    d.later(4_400)
    assert d.fetch("[0-4]") == "0-4×3"


def test_a_restored_lock_whose_wait_is_over_too_is_available() -> None:
    d = Driver([(0, 4, 0, 1)], locks=[RestoredLock(0, 4, "M1", 2, NOW_MS - 5_000, 30_000)], **PLAIN)
    assert d.fetch("[0-4]") == "0-4×3"


def test_a_restored_lock_whose_deliveries_were_never_begun_waits_for_nothing() -> None:
    """Its release said so, and was not durable when the leader died."""
    lock = RestoredLock(0, 4, "M1", 1, NOW_MS - 600, 30_000, 1)
    d = Driver(locks=[lock], **PLAIN)
    assert delays(d) == []
    assert d.fetch("[0-4]") == "0-4×2"


def test_each_leader_finds_the_same_time_for_a_lock() -> None:
    config = {"retry_backoff_ms": (10_000,), "retry_jitter_percent": 50, "jitter_seed": 99}
    seen = fetched("[7-9]", start=7, hold_writes=True, **config)
    (lock,) = seen.machine.locks()
    seen.later(30_000)
    (wait,) = delays(seen)
    assert wait[2] > 10_000
    unseen = Driver(start=7, now_ms=seen.now_ms, locks=[lock], **config)
    told = Driver(start=7, now_ms=seen.now_ms, locks=seen.machine.locks(), **config)
    assert delays(unseen) == delays(told) == [wait]
    told.later(wait[2])
    assert told.fetch("[7-9]") == "7-9×2"


def test_what_was_never_counted_is_delivered_at_once_after_a_reload() -> None:
    assert Driver([(0, 4, 0, 1)], **PLAIN).fetch("[0-4]") == "0-4×2"


def test_at_the_limit_nothing_waits() -> None:
    d = fetched("[0-4]", delivery_count_limit=1, **PLAIN)
    d.ack("0-1 Rel")
    d.later()
    assert (delays(d), d.states()) == ([], "")


def test_a_failed_write_whose_lock_has_ended_waits_from_the_deadline() -> None:
    d = fetched("[0-4]", hold_writes=True, **PLAIN)
    d.ack("0-4 Acc")
    d.later(30_300)
    d.finish(ok=False)
    assert delays(d) == [(0, 4, 700)]
    delayed = d.machine.delayed_count
    d.later(700)
    assert (delayed, d.fetch("[0-4]")) == (5, "0-4×2")
