"""The calls about members of a group: passes them on to the group coordinator, with the client's id and address."""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

import msgspec

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import checked_group_id, error_of
from sharequeue.protocol.messages import groups as messages
from sharequeue.protocol.messages.cluster import CLIENT_HOST, CLIENT_ID, LeaveShareGroupResponse
from sharequeue.protocol.messages.groups import HeartbeatResult
from sharequeue.protocol.messages.leaders import GroupPartitionsRequest, ReleaseMemberResponse
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue.protocol.shards import CLUSTER
from sharequeue.protocol.types import MAX_MEMBER_ID_LENGTH, SharePartitionKey
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.http.access.shown import page_of
from sharequeue_gateway.http.groups.group_work import GroupsAtWork
from sharequeue_gateway.http.internal.group_use_api import GroupUse
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

MAX_CLIENT_ID_LENGTH: Final = 200
GROUP_ID_NOT_FOUND: Final = 69
_heartbeat: Final = msgspec.json.Decoder(HeartbeatResult)
_list: Final = msgspec.json.Decoder(messages.ShareGroupList)
_description: Final = msgspec.json.Decoder(messages.ShareGroupDescription)


@dataclass(eq=False)
class MembershipApi:
    """The handlers of heartbeat, leave, list and describe."""

    _coordinator: CoordinatorClient
    _cluster: Cluster
    _group_use: GroupUse
    _at_work: GroupsAtWork

    async def share_group_heartbeat(self, call: Call) -> Answer:
        client_id = (call.header("client-id") or call.header("user-agent") or "")[:MAX_CLIENT_ID_LENGTH]
        client = call.exchange.client
        headers = {
            CLIENT_ID: quote(client_id.encode("latin-1").decode("utf-8", "replace"), safe=""),
            CLIENT_HOST: client[0] if client else "",
        }
        group_id = checked_group_id(call.path["group"])
        body = await self._coordinator.exchange(
            apis.SHARE_GROUP_HEARTBEAT, call.raw, key=group_id, path={"group": group_id}, headers=headers
        )
        return Answer(body if self._cluster.alone else self._with_leaders(group_id, body))

    def _with_leaders(self, group_id: str, body: bytes) -> bytes:
        """Add the leaders of the assigned partitions to the answer of a heartbeat."""
        answer = _heartbeat.decode(body)
        if answer.assignment is None:
            return body
        for assigned in answer.assignment.topic_partitions:
            for partition in assigned.partitions:
                leader = self._cluster.leader_of(SharePartitionKey(group_id, assigned.topic_id, partition))
                answer.leaders.append(
                    PartitionLeader(topic=assigned.topic, partition=partition, node_id=leader.node_id, url=leader.url)
                )
        return encode(answer)

    async def leave_share_group(self, call: Call) -> Empty:
        """A member leaves. If it only fetched and never joined, close its session and release its records."""
        group_id, member_id = checked_group_id(call.path["group"]), call.path["member_id"]
        if not 1 <= len(member_id) <= MAX_MEMBER_ID_LENGTH:
            raise InvalidRequest(f"a member id has 1 to {MAX_MEMBER_ID_LENGTH} characters")
        path = {"group": group_id, "member_id": member_id}
        left: LeaveShareGroupResponse = await self._coordinator.call(apis.LEAVE_GROUP, key=group_id, path=path)
        request = GroupPartitionsRequest(partitions=left.partitions)
        answers: list[ReleaseMemberResponse | BaseException] = await asyncio.gather(
            self._group_use.release(group_id, member_id, left.partitions),
            *(
                self._cluster.client(node).call(apis.RELEASE_MEMBER, request, path=path)
                for node in self._cluster.others()
            ),
            return_exceptions=True,
        )
        released = [answer for answer in answers if isinstance(answer, ReleaseMemberResponse)]
        for failure in answers:
            if isinstance(failure, ApiError) and not left.error_code:
                log.info(
                    "the records of a member that left stay held",
                    extra=fields(cause=failure.detail),
                )
            elif isinstance(failure, BaseException):
                raise failure
        if left.error_code and not any(answer.share_session or answer.released_records for answer in released):
            no_group = left.error_code == GROUP_ID_NOT_FOUND
            no_member = f"group {group_id!r} has no member {member_id!r}, and that id holds no records"
            raise error_of(left.error_code, f"there is no group {group_id!r}" if no_group else no_member)
        return Empty()

    async def list_share_groups(self, call: Call) -> Answer | messages.ShareGroupList:
        query: messages.ListShareGroupsQuery = call.request
        if query.work:
            query.page_size = min(query.page_size, messages.MOST_AT_WORK)
        ask = partial(self._coordinator.exchange, apis.LIST_SHARE_GROUPS, key=CLUSTER)
        page = await page_of(call, "groups", "group_id", messages.ShareGroupList, ask)
        if not query.work:
            return page  # type: ignore[no-any-return]
        listed: messages.ShareGroupList = _list.decode(page.body) if isinstance(page, Answer) else page
        found = await self._at_work.of([group.group_id for group in listed.groups])
        for group in listed.groups:
            group.work, _ = found[group.group_id]
        return listed

    async def describe_share_group(self, call: Call) -> Answer | messages.ShareGroupDescription:
        group_id = checked_group_id(call.path["group"])
        body = await self._coordinator.exchange(
            apis.DESCRIBE_SHARE_GROUP, call.request, key=group_id, path={"group": group_id}
        )
        if call.request.page_token is not None:
            return Answer(body)
        group = _description.decode(body)
        group.work, group.workers = (await self._at_work.of([group_id]))[group_id]
        return group
