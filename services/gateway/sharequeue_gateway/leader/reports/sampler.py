"""Takes the samples: asks each gateway for its figures, and writes the rows that are due. `backlog` runs it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.messages.reports import Figures, FiguresQuery
from sharequeue.slices import in_slices
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.reports.activity import SHOWN_MS, Totals
from sharequeue_gateway.leader.reports.sampling import CLUSTER, NOTHING, Round, Sampling, of_group, of_topic
from sharequeue_gateway.record_log import sample_store
from sharequeue_gateway.record_log.backlog_store import Backlogs, Oldest
from sharequeue_gateway.record_log.sample_store import BACKLOG, DELAYED, HELD, IN, OLDEST, OPEN, Counts
from sharequeue_gateway.record_log.store import Query

ASK_S: Final = 2.0


@dataclass(eq=False)
class Sampler:
    """`members`: by group, a number of each that was seen lately. `sampling`: None if another gateway samples."""

    _query: Query
    _cluster: Cluster
    _clock: Clock
    _metadata: Metadata
    _leds: Callable[[], Iterable[LedSharePartition]]
    _totals: Mapping[tuple[str, str], Totals]
    _members: Callable[[], dict[str, list[int]]]
    _known: dict[Node, dict[tuple[str, str], Counts]] = field(init=False, default_factory=dict)
    """The counts of the last round, by gateway, group and topic."""
    sampling: Sampling | None = field(init=False, default=None)

    def stop(self) -> None:
        self.sampling, self._known = None, {}

    async def here(self, used_since_ms: int) -> Figures:
        """The figures of this gateway, without pairs whose counts have not changed since a time."""
        pairs: dict[tuple[str, str], Counts] = {}
        paused = set[str]()
        async for names, counts in in_slices(list(self._totals.items())):
            if not counts.used_at_ms or counts.used_at_ms >= used_since_ms:  # 0: too new to have a time
                sums = counts.sums
                failed = sums["released"] + sums["rejected"] + sums["expired"]
                pairs[names] = [
                    sums["produced"],
                    sums["accepted"],
                    failed,
                    counts.dead_letters.total(),
                    *NOTHING[BACKLOG:],
                ]
        async for led in in_slices(list(self._leds())):
            machine = led.machine
            if machine.config.paused:
                paused.add(led.key.group_id)
            if machine.held_count or machine.delayed_count:
                pair = pairs.setdefault(led.key[:2], [*NOTHING])
                pair[HELD] += machine.held_count
                pair[DELAYED] += machine.delayed_count
        counted = [(*names, counts) for names, counts in pairs.items()]
        return Figures(pairs=counted, members=self._members(), paused=sorted(paused))

    async def take(self, backlogs: Backlogs, oldest: Oldest, opened: Backlogs) -> None:
        """Take a sample of all gateways and of what was read. Raises: ApiError: what happened is in the next one."""
        ended = Round(self._clock.now_ms())
        nodes = [self._cluster.me, *self._cluster.others()]
        self._known = {node: pairs for node, pairs in self._known.items() if node in nodes}
        for node, figures in zip(nodes, await asyncio.gather(*map(self._ask, nodes)), strict=True):
            if figures is None:
                continue
            first, known = node not in self._known, self._known.setdefault(node, {})
            ended.paused.update(figures.paused)
            for group_id, members in figures.members.items():
                ended.workers.setdefault(group_id, set()).update(members)
            async for group_id, topic_id, counts in in_slices(figures.pairs):
                before = counts if first else known.get((group_id, topic_id), NOTHING)
                known[group_id, topic_id] = counts
                if self._metadata.name_of(topic_id) is not None:
                    happened = [
                        at - was if at >= was else at for at, was in zip(counts[:BACKLOG], before, strict=False)
                    ]
                    ended.add(group_id, topic_id, [*happened, *counts[BACKLOG:]])
        await self._add_read(ended, backlogs, oldest, opened)
        sampling = self.sampling = self.sampling or Sampling()
        async for _ in in_slices(sampling.note(ended)):
            pass
        rows = sampling.due()
        await self._query(sample_store.write, ended.at_ms, rows)
        sampling.written(rows)

    async def _add_read(self, ended: Round, backlogs: Backlogs, oldest: Oldest, opened: Backlogs) -> None:
        """Add what was read from the log. A group gets what was produced to its topics."""
        read: dict[tuple[str, str], Counts] = {}
        for place, found in ((BACKLOG, backlogs.largest), (OPEN, opened.largest)):
            for group_id, topic_id, records in found:
                read.setdefault((group_id, topic_id), [*NOTHING])[place] = records
        async for (group_id, topic_id), counts in in_slices(read.items()):
            counts[OLDEST] = oldest.get((group_id, topic_id, False), 0)
            if self._metadata.name_of(topic_id) is not None:
                ended.of(of_group(group_id))[IN] += ended.of(of_topic(topic_id))[IN]
                ended.add(group_id, topic_id, counts)
        cluster = ended.of(CLUSTER)
        cluster[BACKLOG], cluster[OPEN] = backlogs.records, opened.records

    async def _ask(self, node: Node) -> Figures | None:
        used_since_ms = self._clock.now_ms() - SHOWN_MS if node in self._known else 0
        if node == self._cluster.me:
            return await self.here(used_since_ms)
        query = FiguresQuery(used_since_ms=used_since_ms)
        figures: Figures | None = await self._cluster.asked(node, apis.FIGURES_HERE, query, ASK_S)
        return figures
