"""Metrics of the share-partitions that this gateway leads. Each request for /metrics reads them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from sharequeue.service.series import Labels, head, line, most
from sharequeue_gateway import metrics
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.share_partition.bounds import BOUNDS, limited_by
from sharequeue_gateway.share_partition.runs import ACQUIRED, ARCHIVING, AVAILABLE, Run

IN_FLIGHT_RECORDS = "sharequeue_in_flight_message_count"
IN_FLIGHT_BATCHES = "sharequeue_in_flight_batch_count"
IN_FLIGHT = "sharequeue_in_flight_share_partitions"
RECORDS = "sharequeue_group_in_flight_records"
UNSERVED = "sharequeue_share_partition_unserved_seconds"
LIMITED = "sharequeue_limited_share_partitions"
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
        first_offsets = set()
        for run in led.machine.in_flight():
            first_offsets.add(run.batch_first)
            of_pair[_state_of(run)] += run.size
        batches[labels] = len(first_offsets)
        bound = limited_by(led.machine)
        if bound is not None:
            limited[bound] += 1
        yield ""
    highest = most(spans)
    yield head(IN_FLIGHT_RECORDS, "Offsets from start to end (InFlightMessageCount).", "gauge")
    for span, labels in highest:
        yield line(IN_FLIGHT_RECORDS, metrics.SHARE_PARTITION, labels, span)
    yield head(IN_FLIGHT_BATCHES, "Batches in flight (InFlightBatchCount).", "gauge")
    for _, labels in highest:
        yield line(IN_FLIGHT_BATCHES, metrics.SHARE_PARTITION, labels, batches[labels])
    yield head(RECORDS, "Records in flight by their state, of the share-partitions that this gateway leads.", "gauge")
    of_pairs = [(of_pair.total(), pair) for pair, of_pair in states.items()]
    for _, pair in most(of_pairs):
        for state, records in states[pair].items():
            yield line(RECORDS, ("group", "topic", "state"), (*pair, state), records)
    yield head(IN_FLIGHT, "Share-partitions with anything in flight.", "gauge")
    yield f"{IN_FLIGHT} {float(len(spans))}\n"
    yield head(LIMITED, "Share-partitions in which new records wait, by the bound that is reached.", "gauge")
    for bound, count in limited.items():
        yield line(LIMITED, ("bound",), (bound,), count)
    yield head(
        UNSERVED,
        "Time since a share-partition with records last gave any, the longest of the group's; from a second on.",
        "gauge",
    )
    for longest_ms, group in most(unserved):
        yield line(UNSERVED, ("group",), group, longest_ms / 1000)


def _state_of(run: Run) -> str:
    """The word for the state of records in flight."""
    if run.state is AVAILABLE:
        return "delayed" if run.available_at_ms else "retry"
    if run.state is ACQUIRED:
        return "held"
    return "dying" if run.state is ARCHIVING else "finished"


def longest_unserved_ms(leds: Iterable[LedSharePartition], now_ms: int) -> Mapping[str, int]:
    """By group: the longest time for which one of its share-partitions has had records that no fetch acquired."""
    since_ms: dict[str, int] = {}
    for led in leds:
        if led.unserved_since_ms:
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
