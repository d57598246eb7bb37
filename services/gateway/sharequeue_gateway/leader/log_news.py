"""Passes appends and moved log ends on: to the share-partitions led here, to the reports, to the other gateways."""

from dataclasses import dataclass

from sharequeue.clock import Clock
from sharequeue_gateway.cluster.append_news import AppendNews
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.reports.activity import Activity


@dataclass(eq=False)
class LogNews:
    """The gateway's `LogListener`."""

    led: LedIndex
    activity: Activity
    cluster: Cluster
    append_news: AppendNews
    clock: Clock

    def appended(self, topic_id: str, partition: int, log_end_offset: int, records: int) -> None:
        """Count the records, wake a fetch of each group here, and announce the append to the other gateways."""
        if records:
            self.activity.produced(topic_id, partition, records)
        if not self.cluster.alone:
            self.append_news.gather(topic_id, partition, log_end_offset)
        self.changed(topic_id, partition, -1, log_end_offset)

    def changed(self, topic_id: str, partition: int, log_start_offset: int, log_end_offset: int) -> None:
        """Wake a fetch of each group. The share-partitions follow the log start: deleted records take no room."""
        now_ms = 0
        for led in self.led.by_topic.get(topic_id, {}).get(partition, ()):
            if led.machine.start_offset < log_start_offset:
                now_ms = now_ms or self.clock.now_ms()
                led.machine.move_log_start(log_start_offset, now_ms)
            led.empty_until_ms = 0
            if (led.waiters or led.of_topic is not None) and not led.machine.config.paused:
                led.wake()

    def forgotten(self, topic_id: str, partition: int) -> None:
        """The log end is not followed any more: the next fetch reads it."""
        for led in self.led.by_topic.get(topic_id, {}).get(partition, ()):
            led.empty_until_ms = 0
            if led.of_topic is not None:
                led.of_topic.note(led)
