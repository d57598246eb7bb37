"""Takes the samples: asks each gateway for its figures, and writes the rows that are due. `backlog` runs it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.messages.reports import Figures
from sharequeue.slices import in_slices
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.reports.activity import Totals
from sharequeue_gateway.leader.reports.sampling import CLUSTER, NOTHING, Round, Sampling, alone, of_group, of_topic
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
    _leds: Iterable[LedSharePartition]
    _totals: Mapping[tuple[str, str], Totals]
    _members: Callable[[], dict[str, list[int]]]
    sampling: Sampling | None = field(init=False, default=None)

    async def here(self) -> Figures:
        """The figures of this gateway. Each count is in one answer: if that is lost, the samples do not have it."""
        pairs: dict[tuple[str, str], Counts] = {}
        paused = set[str]()
        async for names, totals in in_slices(list(self._totals.items())):
            if any(happened := totals.happened()):
                pairs[names] = [*happened, *NOTHING[BACKLOG:]]
        async for led in in_slices(list(self._leds)):
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
        others = [self._cluster.asked(node, apis.FIGURES_HERE, None, ASK_S) for node in self._cluster.others()]
        answers: list[Figures | None] = await asyncio.gather(self.here(), *others)
        for figures in filter(None, answers):
            ended.paused.update(figures.paused)
            for group_id, members in figures.members.items():
                ended.workers[group_id].update(members)
            await self._add(ended, figures.pairs)
        ready = [(group_id, topic_id, at_ms) for (group_id, topic_id, delayed), at_ms in oldest.items() if not delayed]
        for place, found in ((BACKLOG, backlogs.largest), (OPEN, opened.largest), (OLDEST, ready)):
            await self._add(ended, ((group_id, topic_id, alone(place, count)) for group_id, topic_id, count in found))
        async for group_id, topic_id, _ in in_slices(backlogs.largest):  # a group gets what its topics get
            ended.series[of_group(group_id)][IN] += ended.series[of_topic(topic_id)][IN]
        cluster = ended.series[CLUSTER]
        cluster[BACKLOG], cluster[OPEN] = backlogs.records, opened.records
        sampling = self.sampling = self.sampling or Sampling()
        async for _ in in_slices(sampling.note(ended)):
            pass
        rows = sampling.due()
        await self._query(sample_store.write, ended.at_ms, rows)
        sampling.written(rows)

    async def _add(self, ended: Round, pairs: Iterable[tuple[str, str, Counts]]) -> None:
        """Add counts of groups and topics, but for topics that are deleted."""
        async for group_id, topic_id, counts in in_slices(pairs):
            if self._metadata.name_of(topic_id) is not None:
                ended.add(group_id, topic_id, counts)
