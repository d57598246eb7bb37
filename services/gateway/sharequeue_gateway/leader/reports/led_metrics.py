"""Metrics of the share-partitions that this gateway leads. Each request for /metrics reads them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from sharequeue.service.series import Family, Labels, most
from sharequeue_gateway import metrics
from sharequeue_gateway.leader.dead_letter_queue import PendingLetters
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.share_partition.bounds import BOUNDS, limited_by
from sharequeue_gateway.share_partition.machine import SharePartition

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
FAMILIES: Final = (IN_FLIGHT_RECORDS, IN_FLIGHT_BATCHES, RECORDS, IN_FLIGHT, LIMITED)
"""As docs/metrics.md lists them."""


def labels_of(led: LedSharePartition) -> Labels:
    """The values of metrics.SHARE_PARTITION."""
    return (led.key.group_id, led.topic_name, str(led.key.partition))


def series(leds: Iterable[LedSharePartition], dead_letters: Iterable[PendingLetters]) -> Iterator[str]:
    """The metrics with many series, in parts. Share-partitions may be loaded and unloaded between two parts."""
    yield from metrics.LOCK_TIMEOUTS.lines()
    for counts in (metrics.RECORD_ACKNOWLEDGEMENTS, *metrics.OF_GROUP, metrics.REMOVED_UNFINISHED, *metrics.OF_TOPIC):
        yield from counts.lines()
    dying = Counter[LedSharePartition]()
    for pending in dead_letters:
        dying[pending.led] += pending.records
    windows: dict[Labels, SharePartition] = {}
    states: dict[Labels, Counter[str]] = {}
    limited = dict.fromkeys(BOUNDS, 0)
    for led in list(leds):
        machine = led.machine
        if not machine.runs:
            continue
        windows[labels_of(led)] = machine
        states.setdefault((led.key.group_id, led.topic_name), Counter()).update(
            held=max(machine.held_count - dying[led], 0),
            delayed=machine.delayed_count,
            retry=machine.waiting_count - machine.delayed_count,
            dying=dying[led],
            finished=machine.delivery_complete_count,
        )
        bound = limited_by(machine)
        if bound is not None:
            limited[bound] += 1
        yield ""
    highest = most([(machine.span, labels) for labels, machine in windows.items()])
    yield from IN_FLIGHT_RECORDS.lines(highest)
    yield from IN_FLIGHT_BATCHES.lines(
        (len({run.batch_first for run in windows[labels].runs}), labels) for _, labels in highest
    )
    yield from RECORDS.lines(
        (records, (*pair, state))
        for _, pair in most([(of_pair.total(), pair) for pair, of_pair in states.items()])
        for state, records in states[pair].items()
        if records
    )
    yield from IN_FLIGHT.lines([(len(windows), ())])
    yield from LIMITED.lines((count, (bound,)) for bound, count in limited.items())
