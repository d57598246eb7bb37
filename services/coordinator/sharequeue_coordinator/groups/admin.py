"""Setting a group's state anew: delete it, have it start elsewhere, forget where it stands in a topic.

Only a group that nobody uses: it has no members, and no gateway knows of open share sessions, waiting fetches or live
locks. `force` ends these first; nobody joins while it lasts. The new state epoch fences whatever an earlier leader
still writes; before the answer every gateway has unloaded what it led, so that none hands out records by the old state
either. Only then is a deletion complete: fetches that asked before are ended by then, and what they still ask for is
refused. Source: KIP-932.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from sharequeue.http.caller import Client
from sharequeue.protocol import apis
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import (
    ApiError,
    CoordinatorNotAvailable,
    NonEmptyGroup,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.internal import (
    AlterShareGroupOffsetsRequest,
    Gateway,
    GroupTopicsRequest,
    GroupUsageResponse,
    InitializedTopic,
    TopicIdPartitions,
    UnloadGroupRequest,
)
from sharequeue_coordinator.groups.owned_group import Group
from sharequeue_coordinator.groups.registry import Groups
from sharequeue_coordinator.groups.share_states import outcomes
from sharequeue_coordinator.metadata.store import TopicRow
from sharequeue_coordinator.share_group import offsets as share_group_offsets
from sharequeue_coordinator.share_group.changes import Changes
from sharequeue_coordinator.share_group.initialization import Initialization
from sharequeue_coordinator.share_group.machine import ShareGroupMembership
from sharequeue_coordinator.share_group.offsets import Deletion
from sharequeue_coordinator.share_group.subscribed_topics import Topics

GATEWAY_DEADLINE_S: Final = 6.0
"""Longer than a gateway's lease: one that does not answer is gone by then, or a reason to give up."""


class GroupAdmin:
    """What administrators do to groups.

    Args:
        topics: all that are known, by name. topic: the topic of an id, if there is one. gateways: those that are live.
    """

    def __init__(
        self,
        groups: Groups,
        topics: Topics,
        topic: Callable[[str], TopicRow | None],
        gateways: Callable[[], Awaitable[Sequence[Gateway]]],
        *,
        cluster_token: str,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._topic = topic
        self._gateways = gateways
        self._cluster_token = cluster_token

    # The three calls

    async def delete(self, group_id: str, *, force: bool) -> None:
        """Delete a group. What is left of it after a failure is deleted by the next call.

        Raises: GroupIdNotFound, NonEmptyGroup; the error of state that could not be deleted.
        """
        async with self._groups.locked(group_id) as group, self._unused(group, force=force):
            try:
                begun: list[Deletion] = []

                def begin(machine: ShareGroupMembership) -> Changes:
                    begun.append(share_group_offsets.delete_group(machine, self._topics))
                    return begun[-1].changes

                await self._groups.decide(group, begin)
                await self._delete_state(group_id, begun[-1].partitions)
            finally:
                await self._unload(group_id, UnloadGroupRequest(end=force))
            with _begun():
                await self._groups.decide(group, share_group_offsets.group_deleted)

    async def delete_offsets(self, group_id: str, topic: TopicRow, *, force: bool) -> None:
        """Forget where a group stands in a topic.

        Raises: GroupIdNotFound, NonEmptyGroup; UnknownTopicOrPartition: it stands nowhere in it.
        """
        async with self._groups.locked(group_id) as group, self._unused(group, force=force):
            begun: list[Deletion] = []

            def begin(machine: ShareGroupMembership) -> Changes:
                begun.append(share_group_offsets.delete_offsets(machine, [topic.name], self._topics))
                for fault in begun[-1].faults.values():
                    raise fault
                return begun[-1].changes

            await self._groups.decide(group, begin)
            try:
                await self._delete_state(group_id, begun[-1].partitions)
            finally:
                await self._unload(group_id, UnloadGroupRequest(topic_ids=[topic.topic_id], end=force))
            with _begun():
                await self._groups.decide(group, lambda machine: share_group_offsets.deleted(machine, [topic.topic_id]))

    async def alter_offsets(self, group_id: str, request: AlterShareGroupOffsetsRequest) -> list[InitializedTopic]:
        """Have a group start at these offsets; a group that is not there comes to be.

        Returns: what became of each partition. Raises: NonEmptyGroup.
        """
        faults: dict[tuple[str, int], ApiError] = {}
        wanted: dict[str, dict[int, int]] = {}
        await self._groups.hear_of(
            {topic.topic_id: [p.partition for p in topic.partitions] for topic in request.topics}
        )
        for topic in request.topics:
            for entry in topic.partitions:
                if self._groups.there(topic.topic_id, entry.partition):
                    wanted.setdefault(topic.topic_id, {})[entry.partition] = entry.start_offset
                else:
                    detail = f"there is no partition {entry.partition} of topic id {topic.topic_id}"
                    faults[topic.topic_id, entry.partition] = UnknownTopicOrPartition(detail)
        async with (
            self._groups.locked(group_id, create=True) as group,
            self._unused(group, force=request.force),
        ):
            if wanted:
                try:
                    faults.update(await self._start_elsewhere(group, wanted))
                finally:
                    await self._unload(group_id, UnloadGroupRequest(topic_ids=list(wanted), end=request.force))
        asked = {topic.topic_id: [entry.partition for entry in topic.partitions] for topic in request.topics}
        return outcomes(asked, faults)

    # State

    async def _start_elsewhere(
        self, group: Group, wanted: Mapping[str, Mapping[int, int]]
    ) -> dict[tuple[str, int], ApiError]:
        """Returns: the partitions that the share coordinator refused."""
        by_name = {row.name: wanted[topic_id] for topic_id in wanted if (row := self._topic(topic_id)) is not None}
        begun = await self._groups.decide(
            group, lambda machine: share_group_offsets.alter(machine, by_name, self._topics).changes
        )
        with _begun():
            faults = await self._groups.states.initialize(group.group_id, begun.state_epoch, wanted)
            done = [
                Initialization(topic_id, frozenset(p for p in partitions if (topic_id, p) not in faults), -1)
                for topic_id, partitions in wanted.items()
            ]
            await self._groups.decide(group, lambda machine: machine.initialized(done))
        return faults

    async def _delete_state(self, group_id: str, partitions: Mapping[str, Collection[int]]) -> None:
        """Have the share coordinator delete a group's state. Raises: ApiError: it may not have deleted all."""
        if not partitions:
            return
        with _begun():
            faults = await self._groups.states.delete(group_id, partitions)
        for fault in faults.values():
            raise fault

    # Use

    @asynccontextmanager
    async def _unused(self, group: Group, *, force: bool) -> AsyncIterator[None]:
        """Make sure that nobody uses a group, and that nobody joins it meanwhile.

        Raises: NonEmptyGroup: somebody does, and `force` is not given.
        """
        if group.machine.exists and not force:
            await self._check_unused(group)
        group.closed = True
        try:
            if group.machine.exists and force:
                await self._end_use(group)
            yield
        finally:
            group.closed = False

    async def _end_use(self, group: Group) -> None:
        if group.machine.members:
            await self._groups.decide(group, lambda machine: machine.remove(list(machine.members), self._topics))
        await self._unload(group.group_id, UnloadGroupRequest(topic_ids=[], end=True))

    async def _check_unused(self, group: Group) -> None:
        """Raises: NonEmptyGroup."""
        counts = {"members": len(group.machine.members)}
        if not group.machine.members:
            has = await self._groups.has(group.group_id)
            topics = [
                TopicIdPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in has.items()
            ]
            usages: list[GroupUsageResponse] = await self._ask_gateways(
                apis.GROUP_USAGE, group.group_id, GroupTopicsRequest(topics=topics)
            )
            counts["open share sessions"] = sum(usage.share_sessions for usage in usages)
            counts["waiting fetches"] = sum(usage.waiting_fetches for usage in usages)
            counts["records held"] = sum(usage.held_records for usage in usages)
        if any(counts.values()):
            told = ", ".join(f"{what}: {count}" for what, count in counts.items() if count)
            raise NonEmptyGroup(
                f"group {group.group_id!r} is in use ({told}); wait, or end that first by force (force=true, --force)"
            )

    async def _unload(self, group_id: str, request: UnloadGroupRequest) -> None:
        """Have every gateway forget what it loaded before now."""
        await self._ask_gateways(apis.UNLOAD_GROUP, group_id, request)

    async def _ask_gateways(self, api: Api, group_id: str, request: Any) -> list[Any]:
        """Ask every live gateway. One that cannot be reached must be gone from their number before the deadline.

        Raises: CoordinatorNotAvailable: a gateway does not answer.
        """
        deadline = time.monotonic() + GATEWAY_DEADLINE_S
        answers: dict[Gateway, Any] = {}
        while True:
            gateways = list(await self._gateways())
            missing = [gateway for gateway in gateways if gateway not in answers]
            asked = await asyncio.gather(
                *(self._ask(gateway, api, group_id, request, deadline) for gateway in missing), return_exceptions=True
            )
            failure: BaseException | None = None
            for gateway, answer in zip(missing, asked, strict=True):
                if isinstance(answer, ApiError):
                    failure = answer
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    answers[gateway] = answer
            if failure is None:
                return [answers[gateway] for gateway in gateways]
            if time.monotonic() >= deadline:
                raise CoordinatorNotAvailable(f"a gateway does not answer: {failure}", definite=False)
            await asyncio.sleep(0.1)

    async def _ask(self, gateway: Gateway, api: Api, group_id: str, request: Any, deadline: float) -> Any:
        client = Client(gateway.url, cluster_token=self._cluster_token)
        try:
            remaining_s = max(deadline - time.monotonic(), 0.1)
            return await client.call(
                api, request, path={"group": group_id}, deadline_s=min(remaining_s, 2), retry=False
            )
        finally:
            await client.close()


@contextmanager
def _begun() -> Iterator[None]:
    """The first stage is stored: whatever goes wrong from now on, it did not surely not happen."""
    try:
        yield
    except ApiError as error:
        error.definite = False
        raise
