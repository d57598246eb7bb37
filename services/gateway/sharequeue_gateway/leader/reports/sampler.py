"""Takes the samples: asks each gateway for its figures, and writes the rows that are due. `backlog` runs it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.messages.reports import Figures, FiguresRequest
from sharequeue.slices import in_slices
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.reports.activity import Totals
from sharequeue_gateway.leader.reports.sampling import CLUSTER, NOTHING, Round, Sampling, alone, of_group, of_topic
from sharequeue_gateway.record_log import sample_store
from sharequeue_gateway.record_log.backlog_store import Backlogs, Oldest
from sharequeue_gateway.record_log.sample_store import BACKLOG, DELAYED, HELD, IN, OLDEST, OPEN, Counts
from sharequeue_gateway.record_log.store import Query

ASK_S: Final = 2.0


def _new_asker() -> str:
    return uuid4().hex


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
    _answering: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _asker: str = field(init=False, default_factory=_new_asker)
    _number: int = field(init=False, default=0)
    _taken: dict[str, int] = field(init=False, default_factory=dict)
    """By gateway, the number of its last answer that a sample has."""

    async def here(self, asked: FiguresRequest) -> Figures:
        """The figures of this gateway. Each answer has all counts that are in no sample yet."""
        pairs: dict[tuple[str, str], Counts] = {}
        paused = set[str]()
        async with self._answering:
            async for names, totals in in_slices(list(self._totals.items())):
                if any(happened := totals.happened(asked)):
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

    async def asked(self) -> dict[str, Figures]:
        """The figures of the gateways, by node id. They come before the log is read, which then has their topics."""
        self._number += 1
        nodes = [self._cluster.me, *self._cluster.others()]
        answers = await asyncio.gather(*map(self._ask, nodes))
        return {node.node_id: figures for node, figures in zip(nodes, answers, strict=True) if figures is not None}

    async def _ask(self, node: Node) -> Figures | None:
        taken = self._taken.get(node.node_id, 0)
        request = FiguresRequest(asker=self._asker, number=self._number, taken=taken)
        if node == self._cluster.me:
            return await self.here(request)
        figures: Figures | None = await self._cluster.asked(node, apis.FIGURES_HERE, request, ASK_S)
        return figures

    def forget(self) -> None:
        """Another gateway takes the samples."""
        self.sampling = None
        self._asker = _new_asker()

    async def take(self, answers: Mapping[str, Figures], backlogs: Backlogs, oldest: Oldest, opened: Backlogs) -> None:
        """Take a sample of what gateways answered and of what was read. Raises: ApiError: the next one has the rows."""
        ended = Round(self._clock.now_ms())
        for figures in answers.values():
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
        self._taken.update(dict.fromkeys(answers, self._number))
        rows = sampling.due()
        await self._query(sample_store.write, ended.at_ms, rows)
        sampling.written(rows)

    async def _add(self, ended: Round, pairs: Iterable[tuple[str, str, Counts]]) -> None:
        """Add counts of groups and topics, but for topics that are deleted."""
        async for group_id, topic_id, counts in in_slices(pairs):
            if self._metadata.name_of(topic_id) is not None:
                ended.add(group_id, topic_id, counts)
