"""Metrics of the share-partitions that this gateway leads. Each request for /metrics reads them."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Final

from sharequeue.service.series import Family, Labels, most
from sharequeue_gateway import metrics
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.share_partition.bounds import BOUNDS, limited_by
from sharequeue_gateway.share_partition.runs import ACQUIRED, ARCHIVING, AVAILABLE, Run

IN_FLIGHT_RECORDS: Final = Family(
    "sharequeue_in_flight_message_count",
    "gauge",
    "Offsets from the start to the end of the window, finished ones included (InFlightMessageCount).",
    metrics.SHARE_PARTITION,
)
IN_FLIGHT_BATCHES: Final = Family(
    "sharequeue_in_flight_batch_count",
    "gauge",
    "Batches in flight (InFlightBatchCount).",
    metrics.SHARE_PARTITION,
)
RECORDS: Final = Family(
    "sharequeue_group_in_flight_records",
    "gauge",
    "Records in flight at their leaders: `held`, `delayed`, `retry` (ready again), `dying` (their dead letters are being "
    "written), `finished` (behind one that is not).",
    ("group", "topic", "state"),
)
IN_FLIGHT: Final = Family(
    "sharequeue_in_flight_share_partitions",
    "gauge",
    "Share-partitions with anything in flight, also those without a series of their own.",
)
LIMITED: Final = Family(
    "sharequeue_limited_share_partitions",
    "gauge",
    "Share-partitions in which new records wait because a bound is reached: `share.partition.max.record.locks`, "
    "`share.partition.max.delayed.records`, `runs`, `span` or `max_delayed_runs`.",
    ("bound",),
)
UNSERVED: Final = Family(
    "sharequeue_share_partition_unserved_seconds",
    "gauge",
    "How long a share-partition led here has had records for a fetch and gave none: the longest time in the group. "
    "Groups below a second have no series.",
    ("group",),
)
FAMILIES: Final = (IN_FLIGHT_RECORDS, IN_FLIGHT_BATCHES, RECORDS, IN_FLIGHT, LIMITED, UNSERVED)
"""As docs/metrics.md lists them."""
RUNS_AT_ONCE = 2000
UNSERVED_FROM_MS = 1000
"""The shortest wait with a series: a shorter one is only the pause between two fetches."""


def labels_of(led: LedSharePartition) -> Labels:
    """The values of metrics.SHARE_PARTITION."""
    return (led.key.group_id, led.topic_name, str(led.key.partition))


def series(leds: Callable[[], Iterable[LedSharePartition]], now_ms: Callable[[], int]) -> Iterator[str]:
    """The metrics with many series, in parts. Share-partitions may be loaded and unloaded between two parts."""
    yield from metrics.LOCK_TIMEOUTS.lines()
    for counts in (metrics.RECORD_ACKNOWLEDGEMENTS, *metrics.OF_GROUP, metrics.REMOVED_UNFINISHED, *metrics.OF_TOPIC):
        yield from counts.lines()
    spans: list[tuple[int, Labels]] = []
    batches: dict[Labels, int] = {}
    states: dict[Labels, Counter[str]] = {}
    limited = dict.fromkeys(BOUNDS, 0)
    led_now = list(leds())
    unserved = [
        (longest_ms, (group_id,))
        for group_id, longest_ms in longest_unserved_ms(led_now, now_ms()).items()
        if longest_ms >= UNSERVED_FROM_MS
    ]
    for led in led_now:
        if led.machine.window_empty:
            continue
        labels = labels_of(led)
        spans.append((led.machine.span, labels))
        of_pair = states.setdefault((led.key.group_id, led.topic_name), Counter())
        batches[labels] = yield from _counted(led, of_pair)
        bound = limited_by(led.machine)
        if bound is not None:
            limited[bound] += 1
        yield ""
    highest = most(spans)
    yield IN_FLIGHT_RECORDS.head
    for span, labels in highest:
        yield IN_FLIGHT_RECORDS.line(span, labels)
    yield IN_FLIGHT_BATCHES.head
    for _, labels in highest:
        yield IN_FLIGHT_BATCHES.line(batches[labels], labels)
    yield RECORDS.head
    of_pairs = [(of_pair.total(), pair) for pair, of_pair in states.items()]
    for _, pair in most(of_pairs):
        for state, records in states[pair].items():
            yield RECORDS.line(records, (*pair, state))
    yield IN_FLIGHT.head
    yield IN_FLIGHT.line(len(spans))
    yield LIMITED.head
    for bound, count in limited.items():
        yield LIMITED.line(count, (bound,))
    yield UNSERVED.head
    for longest_ms, group in most(unserved):
        yield UNSERVED.line(longest_ms / 1000, group)


def _counted(led: LedSharePartition, states: Counter[str]) -> Generator[str, None, int]:
    """Count the records of a share-partition by their state. Returns: its in-flight batches.

    Runs come and go in the pauses: a few are then missed, or counted twice.
    """
    batches, batch_first = 0, -1
    for number, run in enumerate(led.machine.in_flight()):
        if run.batch_first != batch_first:
            batches, batch_first = batches + 1, run.batch_first
        states[_state_of(run)] += run.size
        if number % RUNS_AT_ONCE == RUNS_AT_ONCE - 1:
            yield ""
    return batches


def _state_of(run: Run) -> str:
    """The word for the state of records in flight."""
    if run.state is AVAILABLE:
        return "delayed" if run.available_at_ms else "retry"
    if run.state is ACQUIRED:
        return "held"
    return "dying" if run.state is ARCHIVING else "finished"


def longest_unserved_ms(leds: Iterable[LedSharePartition], now_ms: int) -> Mapping[str, int]:
    """By group: the longest time for which one of its share-partitions has had records that no fetch acquired.
    A paused group gives none, and is left out."""
    since_ms: dict[str, int] = {}
    for led in leds:
        if led.unserved_since_ms and not led.config.paused:
            group_id = led.key.group_id
            since_ms[group_id] = min(since_ms.get(group_id, led.unserved_since_ms), led.unserved_since_ms)
    return {group_id: now_ms - earliest_ms for group_id, earliest_ms in since_ms.items()}


def watch(
    leds: Callable[[], Iterable[LedSharePartition]], waiting: Callable[[], int], dead_letters: Callable[[], int]
) -> None:
    """Connect the gauges to their sources. `dead_letters`: the number of records whose dead letters are not written."""
    metrics.WAITING_FETCHES.set_function(waiting)
    metrics.DEAD_LETTERS_PENDING.set_function(dead_letters)
    metrics.LED_SHARE_PARTITIONS.set_function(lambda: sum(1 for _ in leds()))


def forget_share_partition(led: LedSharePartition) -> None:
    """Drop the series of an unloaded share-partition, so that series do not pile up."""
    metrics.LOCK_TIMEOUTS.forget(labels_of(led))
