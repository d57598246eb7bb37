"""A led share-partition wakes waiting fetches: the first in line, one behind a fetch that leaves records, one turned away.

It also remembers that it has no records, or since when its records were not served.
"""

from typing import Any, cast

from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.led_share_partition import LedSharePartition, may_acquire
from sharequeue_gateway.leader.log_news import LogNews
from sharequeue_gateway.leader.unserved import Unserved
from sharequeue_gateway.record_log.log import ReadResult, RecordLog

from sharequeue.clock import Clock
from sharequeue.protocol.types import SharePartitionKey
from tests.core.share_partition_driver import Driver

NO_LOG: Any = None  # not asked while the limits are used up


class Sleeper:
    """A fetch that waits."""

    def __init__(self) -> None:
        self.woken = False

    def wake(self) -> None:
        self.woken = True


def waiting(driver: Driver, sleepers: int = 3) -> tuple[LedSharePartition, list[Sleeper]]:
    led = LedSharePartition(SharePartitionKey("g", "t", 0), "orders", driver.machine, driver.now_ms)
    waiters = [Sleeper() for _ in range(sleepers)]
    for waiter in waiters:
        led.add_waiter(waiter)
    return led, waiters


def woken(waiters: list[Sleeper]) -> list[int]:
    return [index for index, waiter in enumerate(waiters) if waiter.woken]


def test_the_fetch_that_waited_longest_is_woken_first() -> None:
    led, waiters = waiting(Driver())
    led.wake()
    assert woken(waiters) == [0]
    led.wake()
    assert woken(waiters) == [0, 1]


def test_records_left_by_a_fetch_wake_the_next_one() -> None:
    led, waiters = waiting(Driver())
    led.wake_after(waiters[1])
    assert woken(waiters) == [2]
    led.wake_after(waiters[1])
    led.wake_after(waiters[2])
    assert woken(waiters) == [2]


def test_free_room_wakes_only_a_fetch_that_was_turned_away() -> None:
    driver = Driver(partition_max_record_locks=10)
    led, waiters = waiting(driver)
    driver.fetch("[0-9]")
    led.wake_turned_away(driver.now_ms)
    assert not may_acquire(led, NO_LOG, driver.now_ms)
    led.wake_turned_away(driver.now_ms)
    assert woken(waiters) == []
    driver.ack("5-9 Acc")
    led.wake_turned_away(driver.now_ms)
    assert woken(waiters) == [0]
    led.wake_turned_away(driver.now_ms)
    assert woken(waiters) == [0]


class EmptyLog:
    """The known end of a log whose records were all fetched; counts how often it is asked for."""

    def __init__(self) -> None:
        self.reads = 0

    def read_cached(self, *_: Any) -> ReadResult:
        self.reads += 1
        return ReadResult((), 0, 10)


def emptied() -> tuple[Driver, LedSharePartition, Any]:
    """A share-partition whose records are all held, and that is known to have no others."""
    driver = Driver()
    led, _ = waiting(driver)
    driver.fetch("[0-9]")
    log = EmptyLog()
    assert not may_acquire(led, cast(RecordLog, log), driver.now_ms)
    assert log.reads == 1
    return driver, led, log


def test_an_empty_share_partition_is_not_read_until_a_lock_ends() -> None:
    driver, led, log = emptied()
    deadline_ms = driver.machine.next_deadline_ms()
    assert deadline_ms is not None
    assert not may_acquire(led, log, deadline_ms - 1)
    assert log.reads == 1
    may_acquire(led, log, deadline_ms)
    assert log.reads == 2


def test_an_empty_share_partition_is_read_again_after_an_event() -> None:
    driver, led, log = emptied()
    led.wake()
    assert not may_acquire(led, log, driver.now_ms)
    assert log.reads == 2


def test_the_share_partition_unserved_longest_counts_for_its_group() -> None:
    leds = [
        LedSharePartition(SharePartitionKey(group, "t", partition), "orders", Driver().machine, 0)
        for group in ("g", "h")
        for partition in range(2)
    ]
    unserved = Unserved()
    for now_ms, led in enumerate(leds, 1):
        unserved.note(led, now_ms * 1000)
    unserved.note(leds[0], 9000)  # it is known for longer
    assert dict(unserved.longest_ms(10_000)) == {"g": 9000, "h": 7000}
    unserved.forget(leds[0])  # a fetch took some
    unserved.note(leds[0], 8000)  # and left some
    unserved.forget(leds[2])
    unserved.forget(leds[3])
    unserved.forget(leds[3])
    assert dict(unserved.longest_ms(10_000)) == {"g": 8000}


# News of the log


def news_of(driver: Driver, sleepers: int = 3) -> tuple[LogNews, Unserved, LedSharePartition, list[Sleeper]]:
    """A share-partition of group `g` that is led here, and the listener that wakes its fetches."""
    led, waiters = waiting(driver, sleepers)
    led_here, unserved, nowhere = LedIndex(), Unserved(), cast(Any, None)
    led_here.add(led)
    news = LogNews(
        led=led_here, unserved=unserved, activity=nowhere, cluster=nowhere, append_news=nowhere, clock=Clock(1000)
    )
    return news, unserved, led, waiters


def groups(unserved: Unserved) -> list[str]:
    return [group_id for group_id, _ in unserved.longest_ms(0)]


def test_an_append_wakes_one_fetch_and_is_noted_as_unserved() -> None:
    news, unserved, led, waiters = news_of(Driver())
    led.note_empty()
    news.changed("t", 0, 10)
    assert (woken(waiters), groups(unserved), led.empty_until_ms) == ([0], ["g"], 0)
    news.changed("t", 1, 10)
    assert woken(waiters) == [0], "another partition"


def test_an_append_behind_records_in_flight_is_noted_as_unserved() -> None:
    driver = Driver()
    news, unserved, _, _ = news_of(driver, sleepers=0)
    driver.fetch("[0-9]")
    news.changed("t", 0, 10)
    assert groups(unserved) == [], "everything up to the end is held"
    news.changed("t", 0, 11)
    assert groups(unserved) == ["g"]


def test_an_append_while_the_limits_are_used_up_is_not_unserved_and_wakes_a_fetch_when_there_is_room() -> None:
    driver = Driver(partition_max_record_locks=10)
    news, unserved, led, _ = news_of(driver, sleepers=0)
    driver.fetch("[0-9]")
    news.changed("t", 0, 20)
    assert groups(unserved) == []
    assert led.turned_away


def test_a_log_that_was_emptied_is_not_unserved() -> None:
    news, unserved, _, waiters = news_of(Driver())
    news.changed("t", 0, 0)
    assert groups(unserved) == []
    assert woken(waiters) == [0]


def test_an_end_that_is_not_followed_is_asked_for_by_the_next_fetch() -> None:
    driver, led, log = emptied()
    led_here, nowhere = LedIndex(), cast(Any, None)
    led_here.add(led)
    news = LogNews(
        led=led_here, unserved=Unserved(), activity=nowhere, cluster=nowhere, append_news=nowhere, clock=Clock(1000)
    )
    news.forgotten("t", 0)
    assert not may_acquire(led, log, driver.now_ms)
    assert log.reads == 2
