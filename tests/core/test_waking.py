"""Which waiting fetch a share-partition wakes: the first that sleeps, the next behind one, or one that was turned away.

And what is noted of it: that it has no records, or since when no fetch acquired those it has.
"""

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sharequeue_gateway.cluster.metadata import KnownTopic
from sharequeue_gateway.delivery.fetcher import ASKED_ALONE, parts_in_turn, parts_of
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import LedIndex, Sought, WholeTopics, all_of
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loading.load_registry import Loads
from sharequeue_gateway.leader.log_news import LogNews
from sharequeue_gateway.leader.wake_up import may_acquire, pass_on
from sharequeue_gateway.record_log.log import ReadResult, RecordLog

from sharequeue.clock import Clock
from sharequeue.protocol.types import SharePartitionKey
from tests.core.share_partition_driver import Driver
from tests.core.test_turns import CountedLooks

NO_LOG: Any = None  # not asked while the limits are used up


class Sleeper:
    """A fetch that waits."""

    def __init__(self) -> None:
        self.woken = False

    def wake(self) -> None:
        self.woken = True


def waiting(driver: Driver, sleepers: int = 3) -> tuple[LedSharePartition, list[Sleeper]]:
    led = LedSharePartition(SharePartitionKey("g", "t", 0), driver.machine, "orders", driver.now_ms)
    waiters = [Sleeper() for _ in range(sleepers)]
    for waiter in waiters:
        led.add_waiter(waiter)
    return led, waiters


def woken(waiters: list[Sleeper]) -> list[int]:
    return [index for index, waiter in enumerate(waiters) if waiter.woken]


class CountedName(str):
    """An id that counts how often it is looked at."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        CountedName.looks += 1
        return super().__hash__()


def test_the_fetch_that_waited_longest_is_woken_first() -> None:
    led, waiters = waiting(Driver())
    led.wake()
    assert woken(waiters) == [0]
    led.wake()
    assert woken(waiters) == [0, 1]


def test_a_member_that_holds_less_wakes_its_streams_without_a_look_at_all_others() -> None:
    led, _ = waiting(Driver())
    streams = [Sleeper() for _ in range(1000)]
    for number, stream in enumerate(streams):
        led.add_holder(CountedName(number), stream)
    CountedName.looks = 0
    led.wake_holders({"500"})
    assert woken(streams) == [500]
    assert CountedName.looks < 10


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
    led.wake_turned_away()
    assert not may_acquire(led, NO_LOG, driver.now_ms)
    led.wake_turned_away()
    assert woken(waiters) == []
    driver.ack("5-9 Acc")
    led.wake_turned_away()
    assert woken(waiters) == [0]
    led.wake_turned_away()
    assert woken(waiters) == [0]


def left(
    held: str = "[0-9]", released: str = "5-9 Rel", sleepers: int = 3
) -> tuple[LedSharePartition, list[Sleeper], int]:
    """A share-partition of which a fetch leaves released records, and the fetches that wait for it."""
    driver = Driver()
    driver.fetch(held)
    driver.ack(released)
    led, waiters = waiting(driver, sleepers)
    return led, waiters, driver.now_ms


def test_a_fetch_that_ends_leaves_records_to_the_first_that_waits() -> None:
    led, waiters, now_ms = left()
    pass_on([led], NO_LOG, now_ms)
    assert woken(waiters) == [0]


def test_a_fetch_that_waits_on_leaves_records_to_the_next_one() -> None:
    led, waiters, now_ms = left()
    pass_on([led], NO_LOG, now_ms, waiters[0])
    assert woken(waiters) == [1]


def test_a_fetch_that_waits_on_leaves_records_to_any_that_was_turned_away() -> None:
    led, waiters, now_ms = left()
    led.turned_away = True
    pass_on([led], NO_LOG, now_ms, waiters[1])
    assert woken(waiters) == [0]
    assert not led.turned_away


def test_a_fetch_that_alone_waits_on_wakes_nothing() -> None:
    led, waiters, now_ms = left(sleepers=1)
    pass_on([led], NO_LOG, now_ms, waiters[0])
    assert woken(waiters) == []


def test_the_fetch_that_reads_a_share_partition_passes_it_on() -> None:
    led, waiters, now_ms = left()
    led.reading = True
    pass_on([led], NO_LOG, now_ms)
    assert woken(waiters) == []
    assert led.turned_away
    led.reading = False
    pass_on([led], NO_LOG, now_ms)
    assert woken(waiters) == [0]


def test_an_empty_share_partition_is_not_passed_on() -> None:
    led, waiters, now_ms = left()
    led.empty_until_ms = now_ms + 1
    pass_on([led], NO_LOG, now_ms)
    assert woken(waiters) == []
    led.reading = True
    pass_on([led], NO_LOG, now_ms)
    assert not led.turned_away


def test_an_unloaded_share_partition_wakes_all_that_wait_for_it() -> None:
    led, waiters, _ = left()
    led.wake_all()
    assert woken(waiters) == [0, 1, 2]


class EmptyLog:
    """The known end of a log whose records were all fetched; counts how often it is asked for."""

    def __init__(self) -> None:
        self.reads = 0

    def read_cached(self, *_: Any) -> ReadResult:
        self.reads += 1
        return ReadResult((), 0, 10, 10)


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


# News of the log


def news_of(driver: Driver, sleepers: int = 3) -> tuple[LogNews, LedSharePartition, list[Sleeper]]:
    """A share-partition of group `g` that is led here, and the listener that wakes its fetches."""
    led, waiters = waiting(driver, sleepers)
    led_here, nowhere = LedIndex(), cast(Any, None)
    led_here.add(led)
    news = LogNews(led=led_here, activity=nowhere, cluster=nowhere, append_news=nowhere, clock=Clock(1000))
    return news, led, waiters


def test_an_append_wakes_one_fetch() -> None:
    news, led, waiters = news_of(Driver())
    led.note_empty()
    news.changed("t", 0, -1, 10)
    assert (woken(waiters), led.empty_until_ms) == ([0], 0)
    news.changed("t", 1, -1, 10)
    assert woken(waiters) == [0], "another partition"


def test_a_paused_group_wakes_nothing() -> None:
    news, led, waiters = news_of(driver := Driver(paused=True))
    news.changed("t", 0, -1, 10)
    pass_on([led], NO_LOG, driver.now_ms)
    assert (woken(waiters), led.turned_away) == ([], True)


def test_a_log_start_that_moves_reaches_share_partitions_that_nobody_reads() -> None:
    driver = Driver(partition_max_record_locks=10, partition_max_delayed_records=0)
    news, led, _ = news_of(driver, sleepers=0)
    driver.fetch("[0-9]")
    driver.ack("0-9 Rel", delay_ms=60_000)
    news.changed("t", 0, -1, 11)
    news.changed("t", 0, 10, 11)
    assert (led.machine.start_offset, led.machine.delayed_count) == (10, 0)


def test_an_end_that_is_not_followed_is_asked_for_by_the_next_fetch() -> None:
    driver, led, log = emptied()
    led_here, nowhere = LedIndex(), cast(Any, None)
    led_here.add(led)
    news = LogNews(led=led_here, activity=nowhere, cluster=nowhere, append_news=nowhere, clock=Clock(1000))
    news.forgotten("t", 0)
    assert not may_acquire(led, log, driver.now_ms)
    assert log.reads == 2


def test_a_share_partition_rests_unless_something_is_held_or_under_way() -> None:
    d = Driver()
    d.fetch("[0-9]")
    led, _ = waiting(d, 0)
    assert not led.rests, "records are held"
    d.ack("0-4 Acc", "5-9 Rel", delay_ms=120_000)
    assert led.rests, "a delay needs nobody"
    led.writes = 1
    assert not led.rests, "a write is under way"
    led.writes, led.reading = 0, True
    assert not led.rests, "a fetch reads"
    led.reading = False
    led.add_waiter(Sleeper())
    assert not led.rests, "a fetch waits"


# The index of a topic


def topic_of(partitions: int) -> KnownTopic:
    return cast(KnownTopic, SimpleNamespace(name="orders", topic_id="t", partitions=partitions))


def sought_of(index: LedIndex, partitions: int) -> Sought:
    """A fetch of the whole topic."""
    sought = Sought(index, "g", WholeTopics([topic_of(partitions)], partitions))
    sought.find()
    return sought


def indexed(driver: Driver) -> tuple[LedIndex, LedSharePartition, Sought]:
    """A group that has loaded its topic of one partition, and a fetch of that topic."""
    index, led = LedIndex(), waiting(driver, 0)[0]
    index.add(led)
    return index, led, sought_of(index, 1)


def news_for(index: LedIndex) -> LogNews:
    nowhere = cast(Any, None)
    return LogNews(led=index, activity=nowhere, cluster=nowhere, append_news=nowhere, clock=Clock(1000))


EVENTS: dict[str, Callable[[LedIndex, LedSharePartition], object]] = {
    "an append": lambda index, led: news_for(index).changed("t", 0, -1, 10),
    "a log end that is not followed any more": lambda index, led: news_for(index).forgotten("t", 0),
    "a release, the end of a lock or a delay, a setting": lambda index, led: led.wake(),
    "room for a fetch that was turned away": lambda index, led: led.wake_turned_away(),
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_what_may_bring_records_enters_the_index(
    event: Callable[[LedIndex, LedSharePartition], object],
) -> None:
    index, led, sought = indexed(driver := Driver())
    assert sought.ready(driver.now_ms) == [led], "just loaded"
    led.note_empty()
    assert sought.ready(driver.now_ms) == []
    led.turned_away = True
    event(index, led)
    assert sought.ready(driver.now_ms) == [led]


def test_the_sweep_that_ends_locks_has_their_share_partition_enter_the_index() -> None:
    _, led, sought = indexed(driver := Driver())
    driver.fetch("[0-9]")
    led.note_empty()
    deadline_ms = driver.machine.next_deadline_ms() or 0
    assert sought.ready(deadline_ms) == []
    leader = cast(Any, SimpleNamespace(persist=lambda *_: None))
    Leader._stand(leader, led, led.machine.expire(deadline_ms))
    assert sought.ready(deadline_ms) == [led]


def test_a_deleted_topic_finds_its_share_partitions_without_a_look_at_all_groups() -> None:
    index, driver = LedIndex(), Driver()
    for number in range(1000):
        key = SharePartitionKey(f"g{number}", f"t{number}", 0)
        index.add(LedSharePartition(key, driver.machine, "orders", driver.now_ms))
    gone: list[LedSharePartition] = []
    loads = SimpleNamespace(forget=lambda leds, _: gone.extend(leds))
    CountedName.looks = 0
    Leader.topic_deleted(cast(Any, SimpleNamespace(led=index, _loads=loads)), CountedName("t500"))
    assert [led.key.group_id for led in gone] == ["g500"]
    assert CountedName.looks < 10


def test_a_share_partition_that_was_unloaded_leaves_the_index_and_ends_the_waits_of_its_topic() -> None:
    """Also if it is loaded again before the fetch runs: the index is another one then."""
    index, led, sought = indexed(driver := Driver())
    sought.add_waiter(waiter := Sleeper())
    assert not sought.unloaded()
    Loads.unload(cast(Any, SimpleNamespace(led=index)), led)
    assert waiter.woken
    assert sought.unloaded()
    assert all(led.fenced for led in sought.ready(driver.now_ms))
    led.wake()
    index.add(waiting(driver, 0)[0])
    assert sought.unloaded()
    sought.find()
    assert not sought.unloaded()
    assert len(sought.ready(driver.now_ms)) == 1


def test_fetches_of_a_topic_and_of_its_partition_are_woken_in_the_order_of_arrival() -> None:
    _, led, sought = indexed(Driver())
    waiters = [Sleeper() for _ in range(4)]
    places: list[Any] = [sought, led, sought, led]
    for waiter, place in zip(waiters, places, strict=True):
        place.add_waiter(waiter)
    for number in range(4):
        led.wake()
        assert woken(waiters) == [*range(number + 1)]
    sought.remove_waiter(waiters[0])
    assert list(led.awaiting()) == waiters[1:]


def test_an_index_ends_with_a_new_partition_and_changes_nothing_of_the_next_one() -> None:
    index, led, old = indexed(driver := Driver())
    old.ready(driver.now_ms + 5)
    driver.fetch("[0-9]")
    led.note_empty()
    index.add(LedSharePartition(SharePartitionKey("g", "t", 1), Driver().machine, "orders", driver.now_ms))
    assert old.unloaded()
    assert led.used_at_ms == driver.now_ms + 5
    new = sought_of(index, 2)
    assert old.ready(driver.now_ms) == []
    assert [led.key.partition for led in new.ready(driver.now_ms)] == [1]
    led.wake()
    assert old.ready(driver.now_ms) == []
    assert [led.key.partition for led in new.ready(driver.now_ms)] == [0, 1]


@pytest.mark.parametrize(("topics", "partitions", "has_index"), [(1, 16, False), (1, 17, True), (1000, 1, False)])
def test_topics_of_a_few_partitions_have_no_index(topics: int, partitions: int, *, has_index: bool) -> None:
    """Also many of them: an index costs a fetch more than a look at few."""
    found = all_of([topic_of(partitions)] * topics)
    assert isinstance(found, WholeTopics) is has_index
    assert len(found) == len([*found]) == topics * partitions
    assert found[-1][1] == partitions - 1


@pytest.mark.parametrize("partitions", [1, 16, 17, 500, 1200])
def test_whole_topics_are_divided_like_a_list_of_their_share_partitions(partitions: int) -> None:
    """In turn, each once, with the same bytes, although those of a part have moved behind the others, or have left the
    index, when the next part is found. Those behind 500 are found at once: they are looked at if the others are empty.
    """
    index, driver, served = LedIndex(), Driver(), count(1)
    for partition in range(partitions):
        index.add(LedSharePartition(SharePartitionKey("g", "t", partition), driver.machine, "orders", driver.now_ms))
    sought = sought_of(index, partitions)
    expected = list(parts_of(sought.ready(driver.now_ms), None, 1 << 20))
    topic = cast(Any, sought.topics[0])
    found: list[Any] = []
    topic.members = CountedLooks(topic.members)
    for leds, *rest in parts_in_turn(sought, driver.now_ms, 1 << 20):
        if not found:
            assert topic.members.looks <= 2 * ASKED_ALONE
        found.append((leds, *rest))
        for led in leds:
            if led.key.partition % 2:
                led.note_empty()
            else:
                led.served_turn = next(served)
                topic.note(led)
    assert found[0] == expected[0]
    assert [limits for _, *limits in found] == [limits for _, *limits in expected]
    assert [led for leds, *_ in found for led in leds] == [led for leds, *_ in expected for led in leds]
