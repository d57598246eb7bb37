"""Administration of a group: delete it, set its start offsets, delete its offsets of a topic. Source: KIP-932.

The group must not be in use: it has no members, and no gateway has open share sessions, waiting fetches or live locks
of it. `force` ends these first. No member can join before the call is done.

    not in use ─▶ persist the intent ─▶ ask the share coordinator ─▶ have every gateway unload ─▶ persist ─▶ answer

The log's readers (a table beside the records, which retention goes by) change around it: a reset moves the group's rows
to the new state epoch and the lower floor before the state is set, and raises them after it; a deletion removes them
when every gateway has unloaded. A step that fails in between leaves a floor that is too low,
until the call is repeated.

The share coordinator fences later writes of an earlier leader: by the new state epoch, or because the state is deleted.
Before the answer every gateway has unloaded the state, so none delivers records by the old one. Fetches that came
before have ended by then, and their late requests to the group coordinator are refused.
So a deleted group stays deleted.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from sharequeue.protocol.errors import NonEmptyGroup
from sharequeue.protocol.messages.cluster import AlterShareGroupOffsetsRequest
from sharequeue.protocol.messages.leaders import GroupPartitionsRequest, GroupUsageResponse, UnloadGroupRequest
from sharequeue_coordinator.groups.initializer import Initializer, no_partition
from sharequeue_coordinator.groups.owned_group import OwnedGroup
from sharequeue_coordinator.groups.registry import GroupRegistry
from sharequeue_coordinator.groups.share_states import ShareStates
from sharequeue_coordinator.metadata.gateway_calls import GatewayCalls
from sharequeue_coordinator.metadata.metadata import Metadata
from sharequeue_coordinator.metadata.store import TopicRow
from sharequeue_coordinator.share_group import offsets
from sharequeue_coordinator.share_group.changes import Changes
from sharequeue_coordinator.share_group.initialization import Initialization
from sharequeue_coordinator.share_group.machine import ShareGroup
from sharequeue_coordinator.share_group.offsets import Deletion
from sharequeue_http.forms.errors import ApiError, in_parts


@dataclass(eq=False)
class GroupAdmin:
    """Deletes groups, and alters and deletes their offsets."""

    _metadata: Metadata
    _groups: GroupRegistry
    _initializer: Initializer
    _states: ShareStates
    _gateways: GatewayCalls

    # The three calls

    async def delete(self, group_id: str, *, force: bool, unused_ms: int | None = None) -> None:
        """Delete a group. If this fails in between, the next call deletes the rest.

        Args:
            unused_ms: delete its settings too, and only a group that was not used for this time.
        Raises: GroupIdNotFound, NonEmptyGroup. ApiError: some state could not be deleted.
        """
        async with self._groups.locked(group_id) as group, self._unused(group, force=force, since_ms=unused_ms):
            await self._delete(
                group,
                lambda machine: offsets.delete_group(machine, self._metadata.by_name),
                UnloadGroupRequest(end=force),
                partial(offsets.group_deleted, unused_ms=unused_ms),
            )

    async def delete_offsets(self, group_id: str, topic: TopicRow, *, force: bool) -> None:
        """Delete a group's offsets of a topic.

        Raises: GroupIdNotFound, NonEmptyGroup. UnknownTopicOrPartition: it has none.
        """
        async with self._groups.locked(group_id) as group, self._unused(group, force=force):
            await self._delete(
                group,
                lambda machine: offsets.delete_offsets(machine, self._metadata.topic(topic.name)),
                UnloadGroupRequest(topic_ids=[topic.topic_id], end=force),
                partial(offsets.deleted, topic_ids=[topic.topic_id]),
            )

    async def alter_offsets(
        self, group_id: str, request: AlterShareGroupOffsetsRequest
    ) -> dict[tuple[str, int], ApiError]:
        """Set the start offsets of a group. The group is created if it does not exist.

        Returns: the partitions whose offsets are not set. Raises: NonEmptyGroup.
        """
        faults: dict[tuple[str, int], ApiError] = {}
        wanted: dict[str, dict[int, int]] = {}
        await self._initializer.learn_of((await self._groups.find(group_id)).machine, request.offsets)
        for topic_id, partitions in request.offsets.items():
            for partition, start_offset in partitions.items():
                if self._metadata.has_partition(topic_id, partition):
                    wanted.setdefault(topic_id, {})[partition] = start_offset
                else:
                    faults[topic_id, partition] = no_partition(topic_id, partition)
        async with (
            self._groups.locked(group_id, create=True) as group,
            self._unused(group, force=request.force),
        ):
            if wanted:
                try:
                    faults.update(await self._set_start_offsets(group, wanted))
                finally:
                    await self._gateways.unload(group_id, UnloadGroupRequest(topic_ids=list(wanted), end=request.force))
        return faults

    # State

    async def _set_start_offsets(
        self, group: OwnedGroup, wanted: Mapping[str, Mapping[int, int]]
    ) -> dict[tuple[str, int], ApiError]:
        """Returns: the partitions that the share coordinator refused."""
        await self._groups.decide(group, lambda machine: offsets.alter(machine, wanted, self._metadata.by_name))
        group_id, state_epoch = group.group_id, group.machine.epochs.group_epoch
        with in_parts(lambda: 1):  # the first stage is stored
            wanted = await self._gateways.change_readers(group_id, "reserve", state_epoch, wanted)
            asked = [
                Initialization(topic_id, frozenset((partition,)), start_offset, state_epoch)
                for topic_id, partitions in wanted.items()
                for partition, start_offset in partitions.items()
            ]
            faults = await self._states.initialize(group_id, asked, partial(self._groups.is_current, group))
            done = [one for one in asked if faults.keys().isdisjoint((one.topic_id, p) for p in one.partitions)]
            await self._groups.decide(group, lambda machine: machine.initialized(done))
        with suppress(ApiError):  # the next leader raises the floors too
            await self._gateways.change_readers(group_id, "raise", state_epoch, _without(wanted, faults))
        return faults

    async def _delete(
        self,
        group: OwnedGroup,
        begin: Callable[[ShareGroup], Deletion],
        unload: UnloadGroupRequest,
        end: Callable[[ShareGroup], Changes],
    ) -> None:
        """Delete state of a group, as the page says: `begin` and `end` are what is persisted.

        Raises: ApiError: some of it may not be deleted.
        """
        partitions = (await self._groups.decide(group, begin)).partitions
        with in_parts(lambda: 1):  # the first stage is stored
            try:
                faults = await self._states.delete(group.group_id, partitions)
            finally:
                await self._gateways.unload(group.group_id, unload)
            for fault in faults.values():
                raise fault
            gone = {topic_id: dict.fromkeys(some, 0) for topic_id, some in partitions.items()}
            await self._gateways.change_readers(group.group_id, "remove", group.machine.epochs.group_epoch, gone)
            await self._groups.decide(group, end)

    # Use

    @asynccontextmanager
    async def _unused(self, group: OwnedGroup, *, force: bool, since_ms: int | None = None) -> AsyncIterator[None]:
        """Make sure that nobody uses a group, or has used it for `since_ms`, and that no member joins before the block
        ends.

        Raises: NonEmptyGroup: it is in use, and `force` is not given.
        """
        if group.machine.exists and not force and since_ms is None:
            await self._check_unused(group)
        group.closed = True
        try:
            if since_ms is not None and await self.unused_ms(group.group_id) < since_ms:
                raise NonEmptyGroup(f"group {group.group_id!r} was used lately")
            if group.machine.exists and force:
                await self._end_use(group)
            yield
        finally:
            group.closed = False

    async def _end_use(self, group: OwnedGroup) -> None:
        if group.machine.members:
            await self._groups.decide(
                group, lambda machine: machine.remove(list(machine.members), self._metadata.by_name)
            )
        await self._gateways.unload(group.group_id, UnloadGroupRequest(topic_ids=[], end=True))

    async def unused_ms(self, group_id: str) -> int:
        """For how long the group was not used, as the gateways know at least; below 0: it may be in use."""
        return min((usage.unused_ms for usage in await self._usages(group_id)), default=-1)

    async def _usages(self, group_id: str) -> list[GroupUsageResponse]:
        has = (await self._groups.find(group_id)).machine.initialized_partitions()
        return await self._gateways.usage(group_id, GroupPartitionsRequest(partitions=has))

    async def _check_unused(self, group: OwnedGroup) -> None:
        """Ask the machine, then every gateway. Raises: NonEmptyGroup."""
        counts = {"members": len(group.machine.members)}
        if not group.machine.members:
            usages = await self._usages(group.group_id)
            counts["open share sessions"] = sum(usage.share_sessions for usage in usages)
            counts["waiting fetches"] = sum(usage.waiting_fetches for usage in usages)
            counts["records held"] = sum(usage.held_records for usage in usages)
        if any(counts.values()):
            uses = ", ".join(f"{what}: {count}" for what, count in counts.items() if count)
            raise NonEmptyGroup(
                f"group {group.group_id!r} is in use ({uses}); wait until it is not, or end this use (force=true, --force)"
            )


def _without(
    wanted: Mapping[str, Mapping[int, int]], faults: Collection[tuple[str, int]]
) -> Mapping[str, Mapping[int, int]]:
    return {
        topic_id: {partition: offset for partition, offset in partitions.items() if (topic_id, partition) not in faults}
        for topic_id, partitions in wanted.items()
    }
