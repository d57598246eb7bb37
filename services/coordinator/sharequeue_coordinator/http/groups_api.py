"""The calls about groups, as gateways pass them on."""

from typing import Final
from urllib.parse import unquote

from sharequeue.http.serving import Call, Handler
from sharequeue.protocol import apis, group_messages
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import GroupIdNotFound, InvalidGroupId, InvalidRequest, UnknownMemberId
from sharequeue.protocol.internal import (
    CLIENT_HOST,
    CLIENT_ID,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    LeaveShareGroupResponse,
    TopicIdPartitions,
)
from sharequeue.protocol.messages import Empty
from sharequeue.protocol.types import group_id_fault
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.groups import store as groups_store
from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.changes import GroupState, Heartbeat, Member

ASSIGNOR_NAME: Final = "simple"
MOST_LISTED: Final = 20_000
"""Names and partitions of the members on one page; the last member is listed whole."""


def group_of(call: Call) -> str:
    """The group id in the path. Raises: InvalidGroupId."""
    group_id = call.path["group"]
    fault = group_id_fault(group_id)
    if fault:
        raise InvalidGroupId(fault)
    return group_id


class GroupsApi:
    """The handlers of the group calls."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._groups = coordinator.groups
        self._admin = coordinator.group_admin

    def calls(self) -> list[tuple[Api, Handler]]:
        return [
            (apis.SHARE_GROUP_HEARTBEAT, self.heartbeat),
            (apis.LEAVE_GROUP, self.leave),
            (apis.LIST_SHARE_GROUPS, self.list_groups),
            (apis.DESCRIBE_SHARE_GROUP, self.describe),
            (apis.DELETE_SHARE_GROUP, self.delete),
            (apis.DELETE_SHARE_GROUP_OFFSETS, self.delete_offsets),
            (apis.ALTER_SHARE_GROUP_OFFSETS, self.alter_offsets),
        ]

    # Members

    async def heartbeat(self, call: Call) -> group_messages.ShareGroupHeartbeatResponse:
        request: group_messages.ShareGroupHeartbeatRequest = call.request
        names = request.subscribed_topic_names
        heartbeat = Heartbeat(
            request.member_id,
            request.member_epoch,
            request.rack_id,
            None if names is None else frozenset(names),
            unquote(call.header(CLIENT_ID) or ""),
            call.header(CLIENT_HOST) or "",
        )
        answer = await self._groups.heartbeat(group_of(call), heartbeat)
        return group_messages.ShareGroupHeartbeatResponse(
            member_id=answer.member_id,
            member_epoch=answer.member_epoch,
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
            assignment=None if answer.assignment is None else self._assignment(answer.assignment),
        )

    def _assignment(self, assignment: Assignment) -> group_messages.MemberAssignment:
        assigned = [
            group_messages.AssignedPartitions(topic=topic.name, topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
            if (topic := self._coordinator.topic_by_id(topic_id)) is not None
        ]
        return group_messages.MemberAssignment(topic_partitions=sorted(assigned, key=lambda entry: entry.topic))

    async def leave(self, call: Call) -> LeaveShareGroupResponse:
        group_id = group_of(call)
        error_code = 0
        try:
            await self._groups.leave(group_id, call.path["member_id"])
        except (GroupIdNotFound, UnknownMemberId) as error:
            error_code = error.error.kafka_code
        has = await self._groups.has(group_id)
        topics = [TopicIdPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in has.items()]
        return LeaveShareGroupResponse(error_code=error_code, topics=topics)

    # Looking

    async def list_groups(self, call: Call) -> group_messages.ListShareGroupsResponse:
        query: group_messages.ListShareGroupsQuery = call.request
        states = _states(query.state)
        listed = await self._coordinator.query(
            groups_store.page,
            query.page_token,
            query.page_size + 1,
            [state is GroupState.STABLE for state in states if state is not GroupState.DEAD],
        )
        page = listed[: query.page_size]
        return group_messages.ListShareGroupsResponse(
            groups=[
                group_messages.ShareGroupListing(
                    group_id=group_id,
                    type="share",
                    state=GroupState.STABLE if has_members else GroupState.EMPTY,
                )
                for group_id, has_members in page
            ],
            next_page_token=page[-1][0] if len(listed) > len(page) else None,
        )

    async def describe(self, call: Call) -> group_messages.DescribeShareGroupResponse:
        query: group_messages.DescribeShareGroupQuery = call.request
        group_id = group_of(call)
        machine = (await self._groups.find(group_id)).machine
        if not machine.exists:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        after = query.page_token or ""
        following = sorted(member_id for member_id in machine.members if member_id > after)
        page: list[Member] = []
        room = MOST_LISTED
        for member_id in following[: query.page_size]:
            page.append(machine.members[member_id])
            room -= len(page[-1].subscribed_topic_names) + sum(map(len, page[-1].assignment.values()))
            if room <= 0:
                break
        return group_messages.DescribeShareGroupResponse(
            group_id=group_id,
            state=machine.state,
            group_epoch=machine.epochs.group_epoch,
            assignment_epoch=machine.epochs.assignment_epoch,
            assignor_name=ASSIGNOR_NAME,
            member_count=len(machine.members),
            members=[
                group_messages.ShareGroupMember(
                    member_id=member.member_id,
                    member_epoch=member.member_epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.subscribed_topic_names),
                    assignment=self._assignment(member.assignment),
                    rack_id=member.rack_id,
                )
                for member in page
            ],
            next_page_token=page[-1].member_id if len(following) > len(page) else None,
        )

    # Administration

    async def delete(self, call: Call) -> Empty:
        query: group_messages.InUseQuery = call.request
        await self._admin.delete(group_of(call), force=query.force)
        return Empty()

    async def delete_offsets(self, call: Call) -> Empty:
        query: group_messages.InUseQuery = call.request
        topic = self._coordinator.topic(call.path["topic"])
        await self._admin.delete_offsets(group_of(call), topic, force=query.force)
        return Empty()

    async def alter_offsets(self, call: Call) -> AlterShareGroupOffsetsResponse:
        request: AlterShareGroupOffsetsRequest = call.request
        return AlterShareGroupOffsetsResponse(topics=await self._admin.alter_offsets(group_of(call), request))


def _states(text: str | None) -> list[GroupState]:
    """The states that a filter names; without one all. Raises: InvalidRequest: one is no state."""
    if text is None:
        return list(GroupState)
    by_name = {state.lower(): state for state in GroupState}
    named = [name.strip() for name in text.split(",")]
    unknown = [name for name in named if name.lower() not in by_name]
    if unknown:
        raise InvalidRequest(f"state is one of {', '.join(GroupState)}, not {unknown[0]!r}")
    return [by_name[name.lower()] for name in named]
