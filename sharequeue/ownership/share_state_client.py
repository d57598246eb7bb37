"""Calls about many share-partitions: cut by owner, their answers joined in order."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import KAFKA_CODES, CoordinatorLoadInProgress, NotCoordinator
from sharequeue.protocol.messages import share_state as messages
from sharequeue.protocol.messages.operations import Readiness
from sharequeue.protocol.shards import share_key
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.repeats import CALL, Tries
from sharequeue_http.calling.caller import SHORTEST_ATTEMPT_S
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import decoder_of
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable

MOST_ASKED: Final = 2000
"""Share-partitions in one call."""
ELSEWHERE: Final = frozenset(KAFKA_CODES[error.error] for error in (CoordinatorLoadInProgress, NotCoordinator))
"""Answered by an instance that is not the owner, before it did anything."""

MIXED_UP: Final = "the share coordinator answered for other share-partitions than it was asked for"


class Entry(NamedTuple):
    key: SharePartitionKey
    state: messages.PartitionState


Send = Callable[[str | None, Sequence[Entry], float], Awaitable[list[messages.PartitionStateResult]]]


class ShareStateClient(CoordinatorClient):
    def __init__(self, urls: str, *, cluster_token: str | None = None, deadline_s: float = 10.0) -> None:
        super().__init__(urls, "share", cluster_token=cluster_token, deadline_s=deadline_s)

    def owner_url(self, key: SharePartitionKey) -> str:
        """Return where a share-partition's owner is; empty while that is not known."""
        if self._only_url is not None:
            return self._only_url
        owner = self.owner(share_key(key))
        return "" if owner is None else owner.url

    def owns_nothing(self, url: str) -> bool:
        """Return whether no share coordinator is known at `url`."""
        return url not in self._known_urls()

    async def check(self, url: str | None = None, *, deadline_s: float) -> None:
        """Ask a share coordinator, or any of them, whether it works. Raises: ApiError: no answer, or it does not."""
        at = self._client(url or self._any_url())
        answer: Readiness = await at.call(apis.READYZ, deadline_s=deadline_s, retry=False)
        if answer.status == "unavailable":
            faults = "; ".join(f"{name} {word}" for name, word in answer.dependencies.items() if word != "ok")
            raise CoordinatorNotAvailable(f"unavailable: {faults}")

    async def state(
        self,
        api: Api,
        group_id: str,
        wanted: Mapping[str, Iterable[messages.PartitionState]],
        *,
        deadline_s: float | None = None,
    ) -> dict[SharePartitionKey, messages.PartitionStateResult]:
        """A state call of one group, about partitions by topic id. Returns: each share-partition's own result, in
        order. Raises: as `results`."""
        entries = [
            Entry(SharePartitionKey(group_id, topic_id, state.partition), state)
            for topic_id, states in wanted.items()
            for state in states
        ]
        results = await self.results(api, group_id, entries, deadline_s=deadline_s)
        return {entry.key: result for entry, result in zip(entries, results, strict=True)}

    async def results(
        self, api: Api, group_id: str, entries: Sequence[Entry], *, deadline_s: float | None = None
    ) -> list[messages.PartitionStateResult]:
        """As `state`, about entries, which may name a share-partition more than once. A partition whose owner has moved
        is asked of the new owner. Raises: ApiError: no owner answered."""

        async def send(key: str | None, part: Sequence[Entry], seconds: float) -> list[messages.PartitionStateResult]:
            request = messages.ShareStateRequest(group_id=group_id, topics=_by_topic(part))
            answer: messages.ShareStateResponse = await self.call(api, request, key=key, deadline_s=seconds)
            return _topic_results(request.topics, answer.results)

        return await self._split(entries, send, deadline_s)

    async def read(
        self, group_id: str, wanted: Iterable[SharePartitionKey], leader_epoch: int, from_offset: int = 0
    ) -> dict[SharePartitionKey, messages.PartitionStateResult]:
        """A page of the states of share-partitions of one group; `next_offset` says where the next one begins.

        All pages of one state have the same `version`, or it was written in between.
        Raises: ApiError: no owner answered.
        """
        entries = [
            Entry(
                key,
                messages.PartitionState(partition=key.partition, leader_epoch=leader_epoch, from_offset=from_offset),
            )
            for key in wanted
        ]
        results = await self.results(apis.READ_STATE, group_id, entries)
        return {entry.key: result for entry, result in zip(entries, results, strict=True)}

    async def write_batch(
        self, request: messages.WriteBatchRequest, *, deadline_s: float | None = None
    ) -> list[messages.PartitionStateResult]:
        """Writes of several groups. The caller repeats those that were refused because their owner has changed.

        Returns: each share-partition's own result, in order. Raises: ApiError: no owner answered.
        """
        if self._only_url is not None:

            def first() -> str:
                return share_key(_entries(request)[0].key)

            key = first() if self._others else first
            body = await self.exchange(apis.WRITE_STATE_BATCH, request, key=key, deadline_s=deadline_s)
            results = _results(request, body)
            for result in results:
                if result.error_code in ELSEWHERE:
                    self._start_learning()
            return results

        async def send(key: str | None, part: Sequence[Entry], seconds: float) -> list[messages.PartitionStateResult]:
            cut = messages.WriteBatchRequest(groups=_groups(part))
            body = await self.exchange(apis.WRITE_STATE_BATCH, cut, key=key, deadline_s=seconds)
            return _results(cut, body)

        return await self._split(_entries(request), send, deadline_s, repeat=False)

    async def _split(
        self, entries: Sequence[Entry], send: Send, deadline_s: float | None, *, repeat: bool = True
    ) -> list[messages.PartitionStateResult]:
        """Send the entries to their owners side by side.

        Args:
            repeat: send again, until the deadline, what an instance refused because it is not the owner.
        """
        deadline_s = self._deadline_s if deadline_s is None else deadline_s
        deadline, tries = time.monotonic() + deadline_s, Tries(CALL, deadline_s - SHORTEST_ATTEMPT_S)
        results: dict[int, messages.PartitionStateResult] = {}
        waiting: list[int] = list(range(len(entries)))
        while True:
            parts = await self._by_owner(entries, waiting, deadline)
            seconds = max(deadline - time.monotonic(), SHORTEST_ATTEMPT_S)
            sending = [send(key, [entries[place] for place in part], seconds) for key, part in parts]
            answers = await asyncio.gather(*sending, return_exceptions=True)
            failures = []
            for (_, places), answer in zip(parts, answers, strict=True):
                if isinstance(answer, ApiError):
                    failures.append(answer)
                    results.update((place, _failed(entries[place].state.partition, answer)) for place in places)
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    results.update(zip(places, answer, strict=True))
            if len(failures) == len(parts) and len(waiting) == len(entries) and failures:
                raise next((failure for failure in failures if not failure.definite), failures[0])
            waiting = [place for place in waiting if results[place].error_code in ELSEWHERE]
            if waiting:
                self._start_learning()
            if not waiting or not repeat or not await tries.pause():
                return [results[place] for place in range(len(entries))]
            await self._learn_before(deadline)

    async def _by_owner(
        self, entries: Sequence[Entry], places: Sequence[int], deadline: float
    ) -> list[tuple[str | None, Sequence[int]]]:
        """The places of entries by owner, cut into parts that are short enough not to delay an owner's other work, each
        part with one of its keys. Without a map: all at any instance."""
        if not self._count or len(self._owners) < self._count:
            await self._learn_before(deadline)
        parts: dict[str | None, tuple[str | None, list[int]]] = {}
        for place in places:
            name = share_key(entries[place].key)
            owner = self.owner(name)
            parts.setdefault(None if owner is None else owner.url, (name, []))[1].append(place)
        return [
            (name, part[start : start + MOST_ASKED])
            for name, part in parts.values()
            for start in range(0, len(part), MOST_ASKED)
        ]

    async def delete_topic_state(self, topic_id: str) -> None:
        """Have every shard's owner forget the state of a topic. Raises: ApiError: some could not; call it again."""
        deadline = time.monotonic() + self._deadline_s
        await self.learn()
        left = set(range(self._count))
        for url in sorted({owner.url for owner in self._owners.values()}):
            answer: messages.TopicDeletedResponse = await self._client(url).call(
                apis.TOPIC_STATE_DELETED,
                messages.TopicDeletedRequest(topic_id=topic_id),
                deadline_s=max(deadline - time.monotonic(), SHORTEST_ATTEMPT_S),
                retry=False,
            )
            left -= set(answer.shards)
        if left:
            raise CoordinatorLoadInProgress(f"the shards {sorted(left)} were being handed over")


def _failed(partition: int, error: ApiError) -> messages.PartitionStateResult:
    """The result of a share-partition whose owner gave none. COORDINATOR_NOT_AVAILABLE: the call may have happened, or
    may still happen."""
    refused = error.definite and not error.error.retriable
    error_code = KAFKA_CODES[(error if refused else CoordinatorNotAvailable).error]
    return messages.PartitionStateResult(partition=partition, error_code=error_code, error_message=error.detail)


def _results(request: messages.WriteBatchRequest, body: bytes) -> list[messages.PartitionStateResult]:
    """The results of an answer, which must be about exactly the share-partitions of its request, in their order.

    Raises: ApiError, not definite: it is about others, or it has another form, so nothing is known of those of the
    request.
    """
    try:
        answer: messages.WriteBatchResponse = decoder_of(messages.WriteBatchResponse).decode(body)
    except ValueError as fault:
        raise ApiError(f"the share coordinator's answer cannot be read: {fault}") from None
    if [group.group_id for group in request.groups] != [group.group_id for group in answer.groups]:
        raise ApiError(MIXED_UP)
    results: list[messages.PartitionStateResult] = []
    for asked, answered in zip(request.groups, answer.groups, strict=True):
        results += _topic_results(asked.topics, answered.results)
    return results


def _topic_results(
    asked: Sequence[messages.TopicState], answered: Sequence[messages.TopicStateResult]
) -> list[messages.PartitionStateResult]:
    """As `_results`, for the topics of one group."""
    wanted = [(topic.topic_id, [state.partition for state in topic.partitions]) for topic in asked]
    if wanted != [(topic.topic_id, [result.partition for result in topic.partitions]) for topic in answered]:
        raise ApiError(MIXED_UP)
    return [result for topic in answered for result in topic.partitions]


def _entries(request: messages.WriteBatchRequest) -> list[Entry]:
    return [
        Entry(SharePartitionKey(group.group_id, topic.topic_id or "", state.partition), state)
        for group in request.groups
        for topic in group.topics
        for state in topic.partitions
    ]


def _by_topic(entries: Iterable[Entry]) -> list[messages.TopicState]:
    """Entries of one group as topics, in order; the same topic comes again where it does in the entries."""
    return [
        messages.TopicState(topic_id=topic_id, partitions=[entry.state for entry in group])
        for topic_id, group in itertools.groupby(entries, key=lambda entry: entry.key.topic_id)
    ]


def _groups(entries: Iterable[Entry]) -> list[messages.GroupState]:
    return [
        messages.GroupState(group_id=group_id, topics=_by_topic(group))
        for group_id, group in itertools.groupby(entries, key=lambda entry: entry.key.group_id)
    ]
