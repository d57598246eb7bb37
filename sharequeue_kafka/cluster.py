"""A cluster of Kafka as an administrator sees it: topics, their settings and partitions, and the ends of logs."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

from aiokafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
)

from sharequeue_kafka import requests
from sharequeue_kafka.connections import Address, Connections, Patience
from sharequeue_kafka.errors import NOT_LEADER, UNKNOWN_TOPIC_ID, KafkaError
from sharequeue_kafka.settings import KafkaSettings

K = TypeVar("K")
T = TypeVar("T")
Row = tuple[str, int, int, T]
"""The answer of a broker for one partition: its topic's name, its number, the error code, and what was found."""
MOST_NAMED: Final = 3
"""The brokers without an answer that an error names."""
TOPIC: Final = 2
"""The type of a resource with settings."""
SET: Final = 0
UNSET: Final = 1
OF_TOPIC: Final = 1
"""The source of a setting that the topic has itself."""


class Place(NamedTuple):
    """One partition. `topic_id` is the canonical text of a uuid."""

    topic_id: str
    partition: int


class KafkaPartition(NamedTuple):
    partition: int
    leader: int  # -1: none at present
    leader_epoch: int


class KafkaTopic(NamedTuple):
    name: str
    id: str  # canonical text of a uuid
    internal: bool
    partitions: tuple[KafkaPartition, ...]  # ascending


class Leader(NamedTuple):
    """The leader of a partition, with its topic's name for requests that know no ids."""

    node: int
    epoch: int
    name: str


class LogOffset(NamedTuple):
    """An end of a log, or the first record at or after a time: offset -1 when there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Config(NamedTuple):
    value: str | None
    is_default: bool


class KafkaCluster:
    """Answer for one cluster. A call tries again while its error is retriable, up to the settings' timeout."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self._connections = Connections(settings)
        self._brokers: dict[int, Address] = {}
        self._controller = -1
        self.cluster_id = ""
        self._topics: dict[str, KafkaTopic] = {}
        self._stale: set[str] = set()
        self._refreshing = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        """The refresh that has not asked yet."""

    async def start(self) -> None:
        """Reach a broker and learn the others. Raises: KafkaError when none answers."""
        await self.again(self.check)

    async def check(self) -> None:
        """Ask one broker after the other, once, until one answers. Raises: KafkaError when none does."""
        await self._metadata([])

    @property
    def trouble(self) -> str:
        """The brokers of the cluster that did not answer when they were asked last, each with its error; or ""."""
        known = {*self._brokers.values(), *(() if self._brokers else self._connections.bootstrap)}
        faults = (str(fault) for address, fault in self._connections.failing.items() if address in known)
        return "; ".join(itertools.islice(faults, MOST_NAMED))

    async def close(self) -> None:
        await self._connections.close()

    async def send(self, node: int, request: Any, purpose: str = "") -> Any:
        """Send a request to a broker. A purpose has a connection of its own. Raises: KafkaError."""
        address = self._brokers.get(node)
        if address is None:
            raise KafkaError.unreached(f"with id {node}", "no broker names it")
        return await self._connections.send(address, request, purpose)

    async def send_any(self, request: Any) -> Any:
        """Send a request to some broker that answers. Raises: KafkaError: none does."""
        known = random.sample([*self._brokers.values()], len(self._brokers))
        known.sort(key=self._connections.failing.__contains__)
        fault = KafkaError.unreached(self.settings.bootstrap_servers, "none is named")
        for address in (*known, *(each for each in self._connections.bootstrap if each not in known)):
            try:
                return await self._connections.send(address, request)
            except KafkaError as error:
                if not error.retriable:
                    raise
                fault = error
        raise fault

    async def again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call, and call again after an error that is retriable, up to the settings' timeout."""
        patience = Patience(self.settings.call_timeout_ms)
        try:
            async with asyncio.timeout_at(patience.ends):
                return await patience.again(call)
        except TimeoutError:
            raise self.silent() from None

    def silent(self) -> KafkaError:
        """Make the error of a call whose time ended while a request was under way."""
        return KafkaError.silent(self.settings.bootstrap_servers, self.trouble or "its time has ended")

    # Topics

    async def _metadata(self, wanted: Sequence[tuple[str, str | None]] | None) -> list[KafkaTopic]:
        """Ask once for topics by (id, name), and learn where they are led."""
        request = requests.METADATA(None if wanted is None else [(*each, {}) for each in wanted], False, False, {})
        _, brokers, self.cluster_id, self._controller, topics, _ = await self.send_any(request)
        self._brokers = {node: (host, port) for node, host, port, *_ in brokers} or self._brokers
        found = []
        for error, name, topic_id, internal, partitions, *_ in topics:
            if error == 0:
                led = tuple(
                    sorted(KafkaPartition(number, leader, epoch) for _, number, leader, epoch, *_ in partitions)
                )
                found.append(KafkaTopic(name, topic_id, internal, led))
            elif error not in NOT_LEADER | {17, UNKNOWN_TOPIC_ID}:
                raise KafkaError.of(error, at=f"topic {name or topic_id}")
        gone = set(self._topics) if wanted is None else {topic_id for topic_id, _ in wanted}
        for topic_id in gone:
            self._topics.pop(topic_id, None)
        self._topics.update((topic.id, topic) for topic in found)
        return found

    async def topics(self, names: Sequence[str] | None = None) -> list[KafkaTopic]:
        """Ask for topics by name (absent ones are left out), or for all."""
        wanted = None if names is None else [(requests.NO_ID, name) for name in names]
        return await self.again(lambda: self._metadata(wanted))

    async def refresh(self, topic_ids: Iterable[str]) -> None:
        """Learn again where topics are led, in one try. Those who ask while an answer is awaited share the next one."""
        self._stale.update(topic_ids)
        if self._next is None:
            self._next = asyncio.create_task(self._refresh())
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())  # its callers may have left
        await asyncio.shield(self._next)

    async def _refresh(self) -> None:
        async with self._refreshing:
            self._next = None
            asked, self._stale = self._stale, set()
            await self._metadata([(topic_id, None) for topic_id in asked])

    def known_leader(self, place: Place) -> Leader | None:
        """Say where a partition is led, as far as it was learned."""
        topic = self._topics.get(place.topic_id)
        if topic is None or place.partition >= len(topic.partitions):
            return None
        _, node, epoch = topic.partitions[place.partition]
        return Leader(node, epoch, topic.name) if node >= 0 else None

    async def leader(self, place: Place) -> Leader:
        """Find where a partition is led. Raises: KafkaError UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, ..."""
        known = self.known_leader(place)
        if known is None:
            await self.refresh([place.topic_id])
            known = self.known_leader(place)
        if known is not None:
            return known
        topic = self._topics.get(place.topic_id)
        if topic is None:
            raise KafkaError.of(UNKNOWN_TOPIC_ID, f"the cluster has no topic with the id {place.topic_id}")
        if place.partition >= len(topic.partitions):
            fault = f"{topic.name} has {len(topic.partitions)} partitions, and none with the number {place.partition}"
            raise KafkaError(3, "UNKNOWN_TOPIC_OR_PARTITION", fault, retriable=False, definite=True)
        raise KafkaError.of(5, at=f"{topic.name}-{place.partition}")

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int = -1, configs: Mapping[str, str] | None = None
    ) -> KafkaTopic:
        """Create a topic, and wait until its partitions have leaders. Raises: KafkaError TOPIC_ALREADY_EXISTS, ...

        An error that is not definite may have created it. A broker takes up the partitions that it leads one after
        another, and refuses appends until then: this waits for all of them, for at most half the time of a call.
        """
        wanted: Any = (name, partitions, replication_factor, [], [*(configs or {}).items()])
        request = CreateTopicsRequest([wanted], self.settings.request_timeout_ms, False)
        return await self._grow(name, partitions, request)

    async def _grow(self, name: str, partitions: int, request: Any) -> KafkaTopic:
        for _, code, message in (await self._ask_controller(request)).topic_errors:
            if code:
                raise KafkaError.of(code, message)
        topic = await self.again(lambda: self._complete(name, partitions))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.call_timeout_ms / 2000):
                await self.list_offsets([Place(topic.id, each.partition) for each in topic.partitions], "earliest")
        return topic

    async def _complete(self, name: str, partitions: int) -> KafkaTopic:
        """Raises: KafkaError LEADER_NOT_AVAILABLE: not all partitions have leaders yet."""
        for topic in await self.topics([name]):
            if len(topic.partitions) >= partitions and all(each.leader >= 0 for each in topic.partitions):
                return topic
        raise KafkaError.of(5, at=f"topic {name}")

    async def delete_topic(self, topic_id: str) -> None:
        """Delete a topic; one that is gone is no error."""

        async def delete() -> None:
            request = requests.DELETE_TOPICS([(None, topic_id, {})], self.settings.request_timeout_ms, {})
            for _, _, code, message, _ in (await self._ask_controller(request))[1]:
                if code not in (0, UNKNOWN_TOPIC_ID):
                    raise KafkaError.of(code, message)

        await self.again(delete)
        self._topics.pop(topic_id, None)

    async def add_partitions(self, name: str, total: int) -> KafkaTopic:
        """Raise the number of partitions to `total`, and wait until all have leaders."""
        request = CreatePartitionsRequest([(name, (total, None))], self.settings.request_timeout_ms, False)
        return await self._grow(name, total, request)

    async def _ask_controller(self, request: Any) -> Any:
        """In KRaft every broker passes such requests on; an older cluster wants its controller."""
        if self._controller in self._brokers:
            return await self.send(self._controller, request)
        return await self.send_any(request)

    # Settings

    async def describe_configs(self, names: Sequence[str]) -> dict[str, dict[str, Config]]:
        """Answer each setting of topics that is no secret; a topic that is absent is left out."""
        request = DescribeConfigsRequest([(TOPIC, name, None) for name in names])
        found = {}
        for code, message, _, name, entries in (await self.again(lambda: self.send_any(request))).resources:
            if code == 0:
                found[name] = {key: Config(value, source != OF_TOPIC) for key, value, _, source, *_ in entries}
            elif code != 3:
                raise KafkaError.of(code, message)
        return found

    async def incremental_alter_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set what `changes` names; None takes a setting back to its default. Raises: KafkaError INVALID_CONFIG, ..."""
        wanted = [(key, UNSET if value is None else SET, value) for key, value in changes.items()]
        request = requests.INCREMENTAL_ALTER_CONFIGS([(TOPIC, name, wanted)], False)
        _, ((code, message, *_),) = await self.again(lambda: self._ask_controller(request))
        if code:
            raise KafkaError.of(code, message)

    # Logs

    async def list_offsets(
        self, places: Sequence[Place], which: Literal["earliest", "latest"] | int, committed: bool = False
    ) -> dict[Place, LogOffset | KafkaError]:
        """Find the earliest or latest offset, or (an int) the first record at or after a time in ms.

        With `committed`, latest is the last stable offset.
        """
        timestamp = {"earliest": -2, "latest": -1}.get(which, which) if isinstance(which, str) else which

        async def ask(node: int, led: Mapping[Place, Leader]) -> Iterable[Row[LogOffset]]:
            topics = _by_name(led, lambda place, leader: (place.partition, leader.epoch, timestamp))
            answer = await self.send(node, requests.LIST_OFFSETS(-1, int(committed), topics))
            return (
                (name, partition, error, LogOffset(offset, time, epoch))
                for name, partitions in answer[1]
                for partition, error, time, offset, epoch in partitions
            )

        return await self.at_leaders(places, ask)

    async def delete_records(self, before: Mapping[Place, int]) -> dict[Place, int | KafkaError]:
        """Remove the records below an offset (-1: all); answers the new log starts."""

        async def ask(node: int, led: Mapping[Place, Leader]) -> Iterable[Row[int]]:
            topics = _by_name(led, lambda place, _: (place.partition, before[place]))
            answer = await self.send(node, DeleteRecordsRequest(topics, self.settings.request_timeout_ms))
            return (
                (name, partition, error, start)
                for name, partitions, *_ in answer.topics
                for partition, start, error, *_ in partitions
            )

        return await self.at_leaders(list(before), ask)

    async def end_of_epoch(self, place: Place, epoch: int) -> tuple[int, int]:
        """Answer (the largest leader epoch that is not above `epoch`, where its records end); (-1, -1): unknown."""

        async def ask(node: int, led: Mapping[Place, Leader]) -> Iterable[Row[tuple[int, int]]]:
            topics = _by_name(led, lambda place, leader: (place.partition, leader.epoch, epoch))
            answer = await self.send(node, requests.OFFSET_FOR_LEADER_EPOCH(-1, topics))
            return (
                (name, partition, error, (found, end))
                for name, partitions in answer[1]
                for error, partition, found, end in partitions
            )

        return sure(await self.at_leaders([place], ask))[place]

    async def at_leaders(
        self,
        places: Sequence[Place],
        ask: Callable[[int, Mapping[Place, Leader]], Awaitable[Iterable[Row[T]]]],
        patience: Patience | None = None,
        *,
        together: bool = False,
    ) -> dict[Place, T | KafkaError]:
        """Ask the leaders of places, each for its own, and again after a retriable error, up to the end of `patience`;
        without one, up to the settings' timeout. `together`: not after an error of one place that is not retriable."""
        results: dict[Place, T | KafkaError] = {}
        patience = patience or Patience(self.settings.call_timeout_ms)

        async def at(node: int, led: Mapping[Place, Leader]) -> None:
            by_name = {(leader.name, place.partition): place for place, leader in led.items()}
            try:
                for name, partition, error, found in await ask(node, led):
                    place = by_name[name, partition]
                    results[place] = KafkaError.of(error, at=f"{name}-{partition}") if error else found
            except KafkaError as error:
                results.update(dict.fromkeys(led, error))

        async def turn(asked: Sequence[Place]) -> None:
            by_node: dict[int, dict[Place, Leader]] = {}
            for place in asked:
                try:
                    leader = await self.leader(place)
                    by_node.setdefault(leader.node, {})[place] = leader
                except KafkaError as error:
                    results[place] = error
            await asyncio.gather(*(at(node, led) for node, led in by_node.items()))

        left, moved = places, [place for place in places if place.topic_id not in self._topics]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(patience.ends):
                while True:
                    if moved:
                        try:
                            await self.refresh(place.topic_id for place in moved)
                        except KafkaError as error:
                            results.update(dict.fromkeys(moved, error))
                    await turn(left)
                    faults = {each: found for each, found in results.items() if isinstance(found, KafkaError)}
                    left = moved = [each for each, fault in faults.items() if fault.retriable]
                    if not left or (together and len(left) < len(faults)) or not await patience.pause():
                        break
        return {**dict.fromkeys(places, self.silent()), **results}


def sure(found: Mapping[K, T | KafkaError]) -> dict[K, T]:
    """Return what was found everywhere. Raises: KafkaError: the first error among it that is not retriable, or else the
    first."""
    faults = [each for each in found.values() if isinstance(each, KafkaError)]
    if faults:
        raise min(faults, key=lambda each: each.retriable)
    return cast("dict[K, T]", found)


def _by_name(led: Mapping[Place, Leader], row: Callable[[Place, Leader], tuple[Any, ...]]) -> list[tuple[str, Any]]:
    topics: dict[str, list[tuple[Any, ...]]] = {}
    for place, leader in led.items():
        topics.setdefault(leader.name, []).append(row(place, leader))
    return list(topics.items())
