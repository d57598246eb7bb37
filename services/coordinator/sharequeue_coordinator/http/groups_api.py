"""The calls about groups, as gateways pass them on."""

from typing import Final
from urllib.parse import unquote

from sharequeue.protocol.configs import PAUSED
from sharequeue.protocol.errors import KAFKA_CODES, GroupIdNotFound, UnknownMemberId, checked_group_id
from sharequeue.protocol.messages import groups as messages
from sharequeue.protocol.messages.cluster import (
    CLIENT_HOST,
    CLIENT_ID,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    LeaveShareGroupResponse,
)
from sharequeue.protocol.messages.operations import Empty
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.groups import store
from sharequeue_coordinator.groups.share_states import failed_partitions
from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.changes import Member, ShareGroupState
from sharequeue_coordinator.share_group.heartbeat import Heartbeat
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.forms.mistakes import quoted

ASSIGNOR_NAME: Final = "simple"
MOST_LISTED: Final = 20_000
"""Topic names and partitions of members on one page. A page ends after the member that exceeds it."""


class GroupsApi:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._query = coordinator.query
        self._metadata = coordinator.metadata
        self._groups = coordinator.groups
        self._members = coordinator.members
        self._configs = coordinator.group_configs
        self._admin = coordinator.group_admin

    # Members

    async def share_group_heartbeat(self, call: Call) -> messages.HeartbeatResult:
        request: messages.ShareGroupHeartbeatRequest = call.request
        names = request.subscribed_topic_names
        heartbeat = Heartbeat(
            request.member_id,
            request.member_epoch,
            request.rack_id,
            None if names is None else frozenset(names),
            unquote(call.header(CLIENT_ID) or ""),
            call.header(CLIENT_HOST) or "",
        )
        answer = await self._members.heartbeat(_group_id(call), heartbeat)
        return messages.HeartbeatResult(
            member_id=answer.member_id,
            member_epoch=answer.member_epoch,
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
            assignment=None if answer.assignment is None else self._assignment(answer.assignment),
        )

    def _assignment(self, assignment: Assignment) -> messages.MemberAssignment:
        assigned = [
            messages.AssignedPartitions(topic=topic.name, topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
            if (topic := self._metadata.by_id.get(topic_id)) is not None
        ]
        return messages.MemberAssignment(topic_partitions=sorted(assigned, key=lambda entry: entry.topic))

    async def leave_group(self, call: Call) -> LeaveShareGroupResponse:
        group_id = _group_id(call)
        error_code = 0
        try:
            await self._members.leave(group_id, call.path["member_id"])
        except (GroupIdNotFound, UnknownMemberId) as error:
            error_code = KAFKA_CODES[error.error]
        has = (await self._groups.find(group_id)).machine.initialized_partitions()
        return LeaveShareGroupResponse(error_code=error_code, partitions=has)

    # Listing

    async def list_share_groups(self, call: Call) -> messages.ShareGroupList:
        query: messages.ListShareGroupsQuery = call.request
        states = _states(query.state)
        listed = await self._query(
            store.page,
            query.page_token,
            query.page_size + 1,
            [state is ShareGroupState.STABLE for state in states if state is not ShareGroupState.DEAD],
        )
        page = listed[: query.page_size]
        return messages.ShareGroupList(
            groups=[
                messages.ShareGroupListing(
                    group_id=group_id,
                    type="share",
                    state=ShareGroupState.STABLE if has_members else ShareGroupState.EMPTY,
                    paused=paused,
                )
                for group_id, has_members, paused in page
            ],
            next_page_token=page[-1][0] if len(listed) > len(page) else None,
        )

    async def describe_share_group(self, call: Call) -> messages.ShareGroupDescription:
        query: messages.DescribeShareGroupQuery = call.request
        group_id = _group_id(call)
        machine = (await self._groups.find(group_id)).machine
        machine.check_exists()
        after = query.page_token or ""
        following = sorted(member_id for member_id in machine.members if member_id > after)
        page: list[Member] = []
        room = MOST_LISTED
        for member_id in following[: query.page_size]:
            page.append(machine.members[member_id])
            room -= len(page[-1].subscribed_topic_names) + sum(map(len, page[-1].assignment.values()))
            if room <= 0:
                break
        return messages.ShareGroupDescription(
            group_id=group_id,
            state=machine.state,
            group_epoch=machine.epochs.group_epoch,
            assignment_epoch=machine.epochs.assignment_epoch,
            assignor_name=ASSIGNOR_NAME,
            member_count=len(machine.members),
            members=[
                messages.ShareGroupMember(
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
            paused=(await self._configs.stored(group_id)).get(PAUSED) == "true",
        )

    # Administration

    async def delete_share_group(self, call: Call) -> Empty:
        query: messages.InUseQuery = call.request
        await self._admin.delete(_group_id(call), force=query.force)
        return Empty()

    async def delete_share_group_offsets(self, call: Call) -> Empty:
        query: messages.InUseQuery = call.request
        topic = self._metadata.topic(call.path["topic"])
        await self._admin.delete_offsets(_group_id(call), topic, force=query.force)
        return Empty()

    async def alter_share_group_offsets(self, call: Call) -> AlterShareGroupOffsetsResponse:
        request: AlterShareGroupOffsetsRequest = call.request
        faults = await self._admin.alter_offsets(_group_id(call), request)
        return AlterShareGroupOffsetsResponse(failed=failed_partitions(faults))

    # Settings

    async def get_share_group_config(self, call: Call) -> dict[str, str]:
        return await self._configs.in_force(_group_id(call))

    async def get_share_group_service_config(self, call: Call) -> messages.ShareGroupServiceConfig:
        return await self._configs.service_config(_group_id(call))

    async def update_share_group_config(self, call: Call) -> dict[str, str]:
        request: messages.UpdateShareGroupConfigRequest = call.request
        return await self._configs.update(_group_id(call), request.config, request.reset)


def _group_id(call: Call) -> str:
    return checked_group_id(call.path["group"])


def _states(text: str | None) -> list[ShareGroupState]:
    """The states that a filter names; without a filter all of them. Raises: InvalidRequest: a name is not a state."""
    if text is None:
        return list(ShareGroupState)
    by_name = {state.lower(): state for state in ShareGroupState}
    named = [name.strip() for name in text.split(",")]
    unknown = [name for name in named if name.lower() not in by_name]
    if unknown:
        raise InvalidRequest(f"state must be one of {', '.join(ShareGroupState)}, not {quoted(unknown[0])!r}")
    return [by_name[name.lower()] for name in named]
