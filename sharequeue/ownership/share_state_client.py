"""Calls about many share-partitions: cut by owner, their answers joined in order."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

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
        states = [
            messages.SharePartitionState(group_id, topic_id, state)
            for topic_id, some in wanted.items()
            for state in some
        ]
        results = await self.results(api, states, deadline_s=deadline_s)
        return {state.key: result for state, result in zip(states, results, strict=True)}

    async def read(
        self, group_id: str, wanted: Iterable[SharePartitionKey], leader_epoch: int, from_offset: int = 0
    ) -> dict[SharePartitionKey, messages.PartitionStateResult]:
        """A page of the states of share-partitions of one group; `next_offset` says where the next one begins.

        All pages of one state have the same `version`, or it was written in between.
        Raises: ApiError: no owner answered.
        """
        states = [
            messages.SharePartitionState(
                group_id,
                key.topic_id,
                messages.PartitionState(partition=key.partition, leader_epoch=leader_epoch, from_offset=from_offset),
            )
            for key in wanted
        ]
        results = await self.results(apis.READ_STATE, states)
        return {state.key: result for state, result in zip(states, results, strict=True)}

    async def write(
        self, states: Sequence[messages.SharePartitionState], *, deadline_s: float | None = None
    ) -> list[messages.PartitionStateResult]:
        """Writes of several groups. The caller repeats those that were refused because their owner has changed.

        Returns: each share-partition's own result, in order. Raises: ApiError: no owner answered.
        """
        if self._only_url is None:
            return await self.results(apis.WRITE_STATE, states, deadline_s=deadline_s, repeat=False)

        def first() -> str:
            return share_key(states[0].key)

        request = messages.ShareStateRequest(states=list(states))
        key = first() if self._others else first
        results = _results(request, await self.exchange(apis.WRITE_STATE, request, key=key, deadline_s=deadline_s))
        for result in results:
            if result.error_code in ELSEWHERE:
                self._start_learning()
        return results

    async def results(
        self,
        api: Api,
        states: Sequence[messages.SharePartitionState],
        *,
        deadline_s: float | None = None,
        repeat: bool = True,
    ) -> list[messages.PartitionStateResult]:
        """As `state`, about any groups; a share-partition may be named more than once. Owners are asked side by side.

        Args:
            repeat: send again, until the deadline, what an instance refused because it is not the owner.
        Raises: ApiError: no owner answered.
        """
        deadline_s = self._deadline_s if deadline_s is None else deadline_s
        deadline, tries = time.monotonic() + deadline_s, Tries(CALL, deadline_s - SHORTEST_ATTEMPT_S)
        results: dict[int, messages.PartitionStateResult] = {}
        waiting: list[int] = list(range(len(states)))
        while True:
            parts = await self._by_owner(states, waiting, deadline)
            seconds = max(deadline - time.monotonic(), SHORTEST_ATTEMPT_S)
            sending = [self._ask(api, [states[place] for place in part], key, seconds) for key, part in parts]
            answers = await asyncio.gather(*sending, return_exceptions=True)
            failures = []
            for (_, places), answer in zip(parts, answers, strict=True):
                if isinstance(answer, ApiError):
                    failures.append(answer)
                    results.update((place, _failed(states[place].state.partition, answer)) for place in places)
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    results.update(zip(places, answer, strict=True))
            if len(failures) == len(parts) and len(waiting) == len(states) and failures:
                raise next((failure for failure in failures if not failure.definite), failures[0])
            waiting = [place for place in waiting if results[place].error_code in ELSEWHERE]
            if waiting:
                self._start_learning()
            if not waiting or not repeat or not await tries.pause():
                return [results[place] for place in range(len(states))]
            await self._learn_before(deadline)

    async def _ask(
        self, api: Api, states: list[messages.SharePartitionState], key: str | None, deadline_s: float
    ) -> list[messages.PartitionStateResult]:
        request = messages.ShareStateRequest(states=states)
        return _results(request, await self.exchange(api, request, key=key, deadline_s=deadline_s))

    async def _by_owner(
        self, states: Sequence[messages.SharePartitionState], places: Sequence[int], deadline: float
    ) -> list[tuple[str | None, Sequence[int]]]:
        """The places of states by owner, cut into parts that are short enough not to delay an owner's other work, each
        part with one of its keys. Without a map: all at any instance."""
        if not self._count or len(self._owners) < self._count:
            await self._learn_before(deadline)
        parts: dict[str | None, tuple[str | None, list[int]]] = {}
        for place in places:
            name = share_key(states[place].key)
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


def _results(request: messages.ShareStateRequest, body: bytes) -> list[messages.PartitionStateResult]:
    """The results of an answer, which must be about exactly the share-partitions of its request, in their order.

    Raises: ApiError, not definite: it is about others, or it has another form, so nothing is known of those of the
    request.
    """
    try:
        answer: messages.ShareStateResponse = decoder_of(messages.ShareStateResponse).decode(body)
    except ValueError as fault:
        raise ApiError(f"the share coordinator's answer cannot be read: {fault}") from None
    asked = [(each.group_id, each.topic_id, each.state.partition) for each in request.states]
    if asked != [(each.group_id, each.topic_id, each.result.partition) for each in answer.results]:
        raise ApiError("the share coordinator answered for other share-partitions than it was asked for")
    return [each.result for each in answer.results]
