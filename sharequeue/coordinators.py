"""Calling coordinators that run as several instances: each call goes to the owner of its key's shard.

Any instance tells who owns what; that is kept until an owner is elsewhere, does not answer, or takes long. Requests
about many share-partitions are cut by owner here, and their answers joined in order.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from sharequeue.protocol import apis
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import ApiError, CoordinatorLoadInProgress, CoordinatorNotAvailable, RequestTimedOut
from sharequeue.protocol.internal import (
    CoordinatorLocation,
    GroupState,
    GroupStateResult,
    PartitionState,
    PartitionStateResult,
    ShardOwner,
    ShardsResponse,
    ShareStateRequest,
    ShareStateResponse,
    TopicDeletedRequest,
    TopicDeletedResponse,
    TopicState,
    TopicStateResult,
    WriteBatchRequest,
    WriteBatchResponse,
)
from sharequeue.protocol.shards import shard_of, share_key
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.wire import SHORTEST_ATTEMPT_S, Client, encode

PATIENCE_S: Final = 0.75
"""Who takes longer to answer may be paused: the others are asked who the owner is, time and again."""
MAP_DEADLINE_S: Final = 1.0
MOVED: Final = frozenset({14, 15, 16})
"""Answers of a coordinator that may not be the owner, or not the one to ask any more."""


class Entry(NamedTuple):
    """One share-partition of a request."""

    key: SharePartitionKey
    state: PartitionState


Send = Callable[[str | None, Sequence[Entry], float], Awaitable[list[PartitionStateResult]]]


class CoordinatorClient:
    """Calls the group coordinators, or the share coordinators, whichever instance owns what a call is about."""

    def __init__(
        self,
        urls: str,
        kind: Literal["group", "share"],
        *,
        cluster_token: str | None = None,
        deadline_s: float = 10.0,
    ) -> None:
        """`urls`: of one instance or more, separated by commas; they tell of all others."""
        self.kind = kind
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._cluster_token = cluster_token
        self._deadline_s = deadline_s
        self._clients: dict[str, Client] = {}
        self._owners: dict[int, ShardOwner] = {}
        self._only_url: str | None = None
        """Where everything is, if it is all at one instance."""
        self._count = 0
        self._learning: asyncio.Task[None] | None = None
        self._turns = itertools.count()
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}

    async def close(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
        for client in self._clients.values():
            await client.close()

    # Who owns what

    def owner(self, key: str) -> ShardOwner | None:
        """Who owns a key, as far as is known."""
        return self._owners.get(shard_of(key, self._count)) if self._count else None

    def owner_url(self, key: SharePartitionKey) -> str:
        """Where a share-partition's owner is, as far as is known."""
        if self._only_url is not None:
            return self._only_url
        owner = self.owner(share_key(key))
        return "" if owner is None else owner.url

    async def find(self, key: str) -> CoordinatorLocation:
        """Who owns a key, for findCoordinator; error 15 while nobody does."""
        try:
            await self.learn()
        except ApiError as error:
            return CoordinatorLocation(key=key, node_id="", url="", error_code=15, error_message=error.detail)
        return location(key, self.owner(key))

    async def learn(self) -> None:
        """Ask who owns what. Raises: ApiError: nobody answered."""
        await asyncio.shield(self._start_learning())

    def _start_learning(self) -> "asyncio.Task[None]":
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._learn())
            self._learning.add_done_callback(lambda task: task.cancelled() or task.exception())  # whoever still waits
        return self._learning

    async def _learn(self) -> None:
        """Ask all at once: one may be paused, and the first answer is as good as any; epochs tell what is newer."""
        asking = {asyncio.create_task(self._ask_for_shards(url)) for url in self._known_urls()}
        failure: ApiError = CoordinatorNotAvailable(f"no {self.kind} coordinator is configured")
        try:
            while asking:
                answered, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                faults = {task: task.exception() for task in answered}  # of all: one that nobody reads is complained of
                for task, fault in faults.items():
                    if fault is None:
                        self._merge(task.result())
                        return
                    if not isinstance(fault, ApiError):
                        raise fault
                    failure = fault
            raise failure
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _ask_for_shards(self, url: str) -> ShardsResponse:
        answer: ShardsResponse = await self._client(url).call(apis.SHARDS, deadline_s=MAP_DEADLINE_S, retry=False)
        return answer

    def _merge(self, answer: ShardsResponse) -> None:
        self._count = answer.count
        for owner in answer.shards:
            known = self._owners.get(owner.shard)
            if known is None or known.owner_epoch <= owner.owner_epoch:
                self._owners[owner.shard] = owner
        urls = {owner.url for owner in self._owners.values()}
        self._only_url = urls.pop() if len(urls) == 1 and len(self._owners) >= self._count else None

    def _client(self, url: str) -> Client:
        client = self._clients.get(url)
        if client is None:
            client = self._clients[url] = Client(url, cluster_token=self._cluster_token)
        return client

    async def _url_for(self, key: str | None) -> str:
        """Where to send a call. Raises: ApiError, definite: that is not known now."""
        if key is None:
            return self._any_url()
        owner = self.owner(key)
        if owner is None:
            await self.learn()
            owner = self.owner(key)
        if owner is None:
            raise CoordinatorLoadInProgress(f"no {self.kind} coordinator owns {key!r} now")
        return owner.url

    def _known_urls(self) -> set[str]:
        return {*self._urls, *(owner.url for owner in self._owners.values())}

    def _any_url(self) -> str:
        urls = sorted({owner.url for owner in self._owners.values()}) or self._urls
        return urls[next(self._turns) % len(urls)]

    # Calls

    async def call(
        self,
        api: Api,
        request: Any = None,
        *,
        key: str | None = None,
        path: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        retry: bool = True,
    ) -> Any:
        """As `Client.call`, at the owner of `key`: a group id, `group:topic_id:partition` or CLUSTER; None: at any."""
        body = await self.exchange(
            api, request, key=key, path=path, headers=headers, deadline_s=deadline_s, retry=retry
        )
        if api.response is None:
            return None
        decoder = self._decoders.get(api.operation_id)
        if decoder is None:
            decoder = self._decoders[api.operation_id] = msgspec.json.Decoder(api.response)
        return decoder.decode(body)

    async def exchange(
        self,
        api: Api,
        request: Any = None,
        *,
        key: str | None = None,
        path: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        retry: bool = True,
    ) -> bytes:
        """As `call`, but the answer's body stays bytes."""
        deadline = time.monotonic() + (self._deadline_s if deadline_s is None else deadline_s)
        if request is not None and not isinstance(request, bytes) and not api.query_parameters:
            request = encode(request)

        async def attempt() -> bytes:
            url = await self._url_for(key)
            asking = self._client(url).exchange(
                api,
                request,
                path=path,
                headers=headers,
                deadline_s=max(deadline - time.monotonic(), SHORTEST_ATTEMPT_S),
                retry=False,
            )
            return await self._while_owned(key, url, asking)

        answer: bytes = await self._repeated(api, attempt, deadline, retry=retry)
        return answer

    async def _repeated(self, api: Api, attempt: Callable[[], Awaitable[Any]], deadline: float, *, retry: bool) -> Any:
        """Try until the deadline, as `Client` does; before a repeat find out who is to be asked now."""
        pause_s = 0.05
        definite = True
        while True:
            try:
                return await attempt()
            except ApiError as error:
                definite = error.definite = definite and error.definite
                may_repeat = error.error.retriable and (definite or api.idempotent)
                pause = max(pause_s * random.uniform(0.5, 1.0), error.retry_after_s or 0)
                last = not retry or not may_repeat or time.monotonic() + pause + SHORTEST_ATTEMPT_S >= deadline
                if error.problem is None or error.error.kafka_code in MOVED:
                    await self._learn_before(time.monotonic() + pause if last else deadline)
                if last or time.monotonic() + pause + SHORTEST_ATTEMPT_S >= deadline:
                    raise
                await asyncio.sleep(pause)
                pause_s = min(pause_s * 2, 0.5)

    async def _learn_before(self, deadline: float) -> None:
        """Ask who owns what, but go on without an answer at the deadline."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await self.learn()
        except (TimeoutError, ApiError):
            return

    async def _while_owned(self, key: str | None, url: str, asking: Coroutine[Any, Any, bytes]) -> bytes:
        """The answer of the instance at `url`, given up once another one owns the key: this one may be paused."""
        if len(self._known_urls()) == 1:
            return await asking
        attempt = asyncio.create_task(asking)
        try:
            while True:
                done, _ = await asyncio.wait({attempt}, timeout=PATIENCE_S)
                if done:
                    return attempt.result()
                if key is not None:
                    await self._learn_before(time.monotonic() + PATIENCE_S)
                    owner = self.owner(key)
                    if owner is not None and owner.url != url and not attempt.done():
                        raise RequestTimedOut(f"{url} did not answer before {owner.url} took over")
        finally:
            if not attempt.done():
                attempt.cancel()
                await asyncio.gather(attempt, return_exceptions=True)

    # Calls about many share-partitions

    async def state(
        self, api: Api, request: ShareStateRequest, *, deadline_s: float | None = None
    ) -> ShareStateResponse:
        """A state call of one group. Every share-partition has its own result; what an owner that moved refused is
        asked of the new one. Raises: ApiError: no owner answered."""
        entries = [
            Entry(SharePartitionKey(request.group_id, topic.topic_id or "", state.partition), state)
            for topic in request.topics
            for state in topic.partitions
        ]

        async def send(key: str | None, part: Sequence[Entry], seconds: float) -> list[PartitionStateResult]:
            body = request if len(part) == len(entries) else _state_request(part)
            answer: ShareStateResponse = await self.call(api, body, key=key, deadline_s=seconds)
            return [result for topic in answer.results for result in topic.partitions]

        results = iter(await self._split(entries, send, deadline_s))
        return ShareStateResponse(
            results=[
                TopicStateResult(topic_id=topic.topic_id, partitions=[next(results) for _ in topic.partitions])
                for topic in request.topics
            ]
        )

    async def write_batch(self, request: WriteBatchRequest, *, deadline_s: float | None = None) -> WriteBatchResponse:
        """Writes of several groups, each share-partition with its own result: 14 and 16 too, for whoever repeats these
        by themselves. Raises: ApiError: no owner answered."""
        if self._only_url is not None:  # nothing to split; this is on the way of every acknowledgement
            first = request.groups[0]
            key = SharePartitionKey(
                first.group_id, first.topics[0].topic_id or "", first.topics[0].partitions[0].partition
            )
            whole: WriteBatchResponse = await self.call(
                apis.WRITE_STATE_BATCH, request, key=share_key(key), deadline_s=deadline_s
            )
            if any(result.error_code in (14, 16) for result in _results(whole)):
                self._start_learning()
            return whole
        entries = [
            Entry(SharePartitionKey(group.group_id, topic.topic_id or "", state.partition), state)
            for group in request.groups
            for topic in group.topics
            for state in topic.partitions
        ]

        async def send(key: str | None, part: Sequence[Entry], seconds: float) -> list[PartitionStateResult]:
            body = request if len(part) == len(entries) else WriteBatchRequest(groups=_groups(part))
            answer: WriteBatchResponse = await self.call(apis.WRITE_STATE_BATCH, body, key=key, deadline_s=seconds)
            return _results(answer)

        results = iter(await self._split(entries, send, deadline_s, repeat=False))
        return WriteBatchResponse(
            groups=[
                GroupStateResult(
                    group_id=group.group_id,
                    results=[
                        TopicStateResult(topic_id=topic.topic_id, partitions=[next(results) for _ in topic.partitions])
                        for topic in group.topics
                    ],
                )
                for group in request.groups
            ]
        )

    async def _split(
        self, entries: Sequence[Entry], send: Send, deadline_s: float | None, *, repeat: bool = True
    ) -> list[PartitionStateResult]:
        """Send the entries to their owners side by side.

        Args:
            repeat: send what was refused as not owned once more, until the deadline.
        """
        deadline = time.monotonic() + (self._deadline_s if deadline_s is None else deadline_s)
        results: dict[int, PartitionStateResult] = {}
        waiting: list[int] = list(range(len(entries)))
        pause_s = 0.05
        while True:
            parts = await self._by_owner([entries[place].key for place in waiting], deadline)
            seconds = max(deadline - time.monotonic(), SHORTEST_ATTEMPT_S)
            sending = [send(key, [entries[waiting[at]] for at in part], seconds) for key, part in parts]
            answers = await asyncio.gather(*sending, return_exceptions=True)
            failures = []
            for (_, part), answer in zip(parts, answers, strict=True):
                places = [waiting[at] for at in part]
                if isinstance(answer, ApiError):
                    failures.append(answer)
                    results.update((place, _failed(entries[place].state.partition, answer)) for place in places)
                elif isinstance(answer, BaseException):
                    raise answer
                elif len(answer) != len(part):
                    raise ApiError("the share coordinator answered for other share-partitions than it was asked for")
                else:
                    results.update(zip(places, answer, strict=True))
            if len(failures) == len(parts) and len(waiting) == len(entries) and failures:
                raise next((failure for failure in failures if not failure.definite), failures[0])
            waiting = [place for place in waiting if results[place].error_code in (14, 16)]
            if waiting:
                self._start_learning()
            if not waiting or not repeat or time.monotonic() + pause_s + SHORTEST_ATTEMPT_S >= deadline:
                return [results[place] for place in range(len(entries))]
            await asyncio.sleep(pause_s)
            await self._learn_before(deadline)
            pause_s = min(pause_s * 2, 0.5)

    async def _by_owner(self, keys: Sequence[SharePartitionKey], deadline: float) -> list[tuple[str | None, list[int]]]:
        """The places of keys by their owner, each part with one of its keys. Without a map: all at any instance."""
        if not self._count or len(self._owners) < self._count:
            await self._learn_before(deadline)
        if self._only_url is not None and keys:
            return [(share_key(keys[0]), list(range(len(keys))))]
        parts: dict[str | None, tuple[str | None, list[int]]] = {}
        for place, key in enumerate(keys):
            name = share_key(key)
            owner = self.owner(name)
            parts.setdefault(None if owner is None else owner.url, (name, []))[1].append(place)
        return list(parts.values())

    async def delete_topic_state(self, topic_id: str, *, deadline_s: float | None = None) -> None:
        """Have every shard's owner forget the state of a topic. Raises: ApiError: some could not."""
        deadline = time.monotonic() + (self._deadline_s if deadline_s is None else deadline_s)

        async def attempt() -> None:
            await self.learn()
            left = set(range(self._count))
            for url in sorted({owner.url for owner in self._owners.values()}):
                answer: TopicDeletedResponse = await self._client(url).call(
                    apis.TOPIC_STATE_DELETED,
                    TopicDeletedRequest(topic_id=topic_id),
                    deadline_s=max(deadline - time.monotonic(), SHORTEST_ATTEMPT_S),
                    retry=False,
                )
                left -= set(answer.shards)
            if left:
                raise CoordinatorLoadInProgress(f"the shards {sorted(left)} were being handed over")

        await self._repeated(apis.TOPIC_STATE_DELETED, attempt, deadline, retry=True)


def location(key: str, owner: ShardOwner | None) -> CoordinatorLocation:
    """An entry of findCoordinator's answer."""
    if owner is None:
        return CoordinatorLocation(key=key, node_id="", url="", error_code=15, error_message="nobody owns it now")
    return CoordinatorLocation(key=key, node_id=owner.node_id, url=owner.url, error_code=0)


def _failed(partition: int, error: ApiError) -> PartitionStateResult:
    """The result where an owner gave none: 15 where it may have happened, or may yet."""
    refused = error.definite and not error.error.retriable
    error_code = error.error.kafka_code if refused else 15
    return PartitionStateResult(partition=partition, error_code=error_code, error_message=error.detail)


def _results(answer: WriteBatchResponse) -> list[PartitionStateResult]:
    return [result for group in answer.groups for topic in group.results for result in topic.partitions]


def _by_topic(entries: Iterable[Entry]) -> list[TopicState]:
    """Entries of one group as topics, in order; the same topic comes again where it does in the entries."""
    return [
        TopicState(topic_id=topic_id, partitions=[entry.state for entry in group])
        for topic_id, group in itertools.groupby(entries, key=lambda entry: entry.key.topic_id)
    ]


def _groups(entries: Iterable[Entry]) -> list[GroupState]:
    return [
        GroupState(group_id=group_id, topics=_by_topic(group))
        for group_id, group in itertools.groupby(entries, key=lambda entry: entry.key.group_id)
    ]


def _state_request(entries: Sequence[Entry]) -> ShareStateRequest:
    return ShareStateRequest(group_id=entries[0].key.group_id, topics=_by_topic(entries))
