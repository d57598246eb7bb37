"""Metrics of queues: what happened to the records of a group and a topic, at this gateway.

A pair of group and topic has series while it was used in the last ten minutes. At most `most_pairs` have series of
their own, those with the most deliveries; the others are added up under the names `other`.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.service.series import Family, Labels
from sharequeue_gateway.leader.reports.activity import SHOWN_MS, Totals

PAIR: Final = ("group", "topic")
PRODUCED: Final = Family(
    "sharequeue_topic_records_produced_total", "counter", "Records produced to a topic at this gateway.", ("topic",)
)
RECORDS: Final = Family(
    "sharequeue_group_records_total",
    "counter",
    "What happened to records at this gateway: delivered, accepted, released, rejected, expired (their lock ended).",
    (*PAIR, "event"),
)
DEAD_LETTERS: Final = Family(
    "sharequeue_group_dead_letters_total",
    "counter",
    "Dead letters written: `rejected`, `delivery_limit`.",
    (*PAIR, "cause"),
)
MEMBERS: Final = Family(
    "sharequeue_group_fetching_members",
    "gauge",
    "Members that fetched, acknowledged or renewed at this gateway in the last minute, or read a stream, joined or not. "
    "A member without a `member_id` is not counted.",
    ("group",),
)
PAUSED: Final = Family(
    "sharequeue_group_paused",
    "gauge",
    "1 for a group that is paused (`share.paused`), at each gateway that serves it. Other groups have no series.",
    ("group",),
)
DROPPED: Final = Family(
    "sharequeue_metric_pairs_dropped",
    "gauge",
    "Pairs of group and topic without series of their own (`max_metric_pairs`): they are added up under the names "
    "`other`.",
)
FAMILIES: Final = (PRODUCED, RECORDS, DEAD_LETTERS, MEMBERS, PAUSED, DROPPED)
EVENTS: Final = ("delivered", "accepted", "released", "rejected", "expired")
USUAL: Final = frozenset({"delivered", "accepted"})
"""The other events have a series once there was one: most pairs have none."""
OTHER: Final = "other"


@dataclass(eq=False)
class QueueSeries:
    """The families of this file. `topic_name`: the name of a topic id, if there is such a topic."""

    _totals: Mapping[tuple[str, str], Totals]
    _topic_name: Callable[[str], str | None]
    _members: Callable[[], Mapping[str, Sequence[int]]]
    """By group, a number of each member that fetched at this gateway in the last minute."""
    _configs: Mapping[str, ShareGroupConfig]
    """By group, the settings that are known here."""
    _now_ms: Callable[[], int]
    most_pairs: int

    def series(self) -> Iterator[str]:
        """The lines of /metrics, in parts."""
        topics, pairs = self._shown()
        most_produced = self._most(topics, "produced")
        yield from PRODUCED.lines((totals.sums["produced"], topic) for topic, totals in most_produced)
        most = self._most(pairs, "delivered")
        yield from RECORDS.lines(
            (records, (*names, event))
            for names, totals in most
            for event in EVENTS
            if (records := totals.sums[event]) or event in USUAL
        )
        yield from DEAD_LETTERS.lines(
            (records, (*names, cause)) for names, totals in most for cause, records in totals.dead_letters.items()
        )
        largest = heapq.nlargest(self.most_pairs, self._members().items(), key=lambda seen: len(seen[1]))
        yield from MEMBERS.lines((len(members), (group_id,)) for group_id, members in largest)
        paused = (group_id for group_id, config in self._configs.items() if config.paused)
        yield from PAUSED.lines((1, (group_id,)) for group_id in itertools.islice(paused, self.most_pairs))
        yield from DROPPED.lines([(max(0, len(pairs) - self.most_pairs), ())])

    def _shown(self) -> tuple[dict[Labels, Totals], dict[Labels, Totals]]:
        """The topics, and the pairs of group and topic, that were used lately."""
        topics: dict[Labels, Totals] = {}
        pairs: dict[Labels, Totals] = {}
        used_since_ms = self._now_ms() - SHOWN_MS
        for (group_id, topic_id), totals in self._totals.items():
            topic = self._topic_name(topic_id)
            if topic is None or totals.used_at_ms < used_since_ms:
                continue
            if group_id:
                pairs[group_id, topic] = totals
            else:
                topics[(topic,)] = totals
        return topics, pairs

    def _most(self, shown: dict[Labels, Totals], event: str) -> list[tuple[Labels, Totals]]:
        """The entries with series of their own, those with most of an event, and the sum of the others."""
        if len(shown) <= self.most_pairs:
            return list(shown.items())
        ranked = sorted(shown.items(), key=lambda entry: entry[1].sums[event], reverse=True)
        others = Totals()
        for _, totals in ranked[self.most_pairs :]:
            others.add(totals)
        names = (OTHER,) * len(ranked[0][0])
        return [*ranked[: self.most_pairs], (names, others)]
