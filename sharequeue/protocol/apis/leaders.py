"""Calls of a gateway that the group coordinator and the other gateways make."""

from functools import partial

from sharequeue.protocol.apis.groups import CHANGE_RECORD, DESCRIBE_WINDOW, LIST_IN_FLIGHT_RECORDS
from sharequeue.protocol.apis.operations import LIST_ATTENTION
from sharequeue.protocol.apis.records import ACKNOWLEDGE_ACCESS, FETCH_ACCESS
from sharequeue.protocol.messages import leaders as messages
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.records import AcknowledgeRequest, AcknowledgeResponse, FetchRequest, FetchResponse
from sharequeue.protocol.messages.reports import Figures, FiguresRequest
from sharequeue_http.forms.api import Api


def _at_leader(operation_id: str, of: Api) -> Api:
    """A client's call, as the gateway that was sent it calls the one that leads."""
    route = f"{of.method} {of.path.replace('/v1', '/v1/leader', 1)}"
    summary = f"Answer {of.operation_id} for what this gateway leads."
    return Api(operation_id, route, summary, request=of.request, response=of.response)


_repeatable = partial(Api, idempotent=True)
GROUP_USAGE = _repeatable(
    "shareGroupUsage",
    "POST /v1/led/groups/{group}/usage",
    "Tell how much this gateway is used by a group.",
    request=messages.GroupPartitionsRequest,
    response=messages.GroupUsageResponse,
)
RELEASE_MEMBER = _repeatable(
    "releaseMember",
    "POST /v1/led/groups/{group}/members/{member_id}/release",
    "Close a member's share session, and release its records in the share-partitions that this gateway leads.",
    request=messages.GroupPartitionsRequest,
    response=messages.ReleaseMemberResponse,
)
UNLOAD_GROUP = _repeatable(
    "unloadShareGroup",
    "POST /v1/led/groups/{group}/unload",
    "Unload a group's share-partitions, because their stored state was replaced.",
    request=messages.UnloadGroupRequest,
    response=Empty,
)
CHANGE_READERS = _repeatable(
    "changeReaders",
    "POST /v1/led/groups/{group}/readers",
    "Change how far the log takes a group to have finished its partitions.",
    request=messages.ChangeReadersRequest,
    response=messages.ChangeReadersResponse,
)
DELETE_TOPIC_RECORDS = _repeatable(
    "deleteTopicRecords",
    "POST /v1/log/delete-topic",
    "Remove the records of a topic that was deleted.",
    request=messages.DeleteTopicRecordsRequest,
    response=Empty,
)
APPEND_HERE = _repeatable(
    "appendHere",
    "POST /v1/log/append",
    "Append records that another gateway was sent, because gateways that append to one partition collide.",
    request=messages.AppendHereRequest,
    response=messages.AppendHereResponse,
)
FETCH_FROM_LEADER = Api(
    "fetchFromLeader",
    "POST /v1/leader/{group}/fetch",
    "Fetch the part of a client's fetch that this gateway leads.",
    request=messages.LeaderFetchRequest,
    response=messages.LeaderFetchResponse,
)
ACKNOWLEDGE_AT_LEADER = Api(
    "acknowledgeAtLeader",
    "POST /v1/leader/{group}/acknowledge",
    "Apply the acknowledgements of a client's call that concern share-partitions this gateway leads.",
    request=messages.LeaderAcknowledgeRequest,
    response=AcknowledgeResponse,
)
HOLD_AT_LEADER = _repeatable(
    "holdAtLeader",
    "POST /v1/leader/{group}/hold",
    "Have records of a member wait for a transaction.",
    request=messages.HoldRequest,
    response=messages.HoldResponse,
)
TRANSACTION_ENDED = _repeatable(
    "transactionEnded",
    "POST /v1/led/transactions/{transaction}/ended",
    "Settle or let go the records here that wait for a transaction, which has ended: the log says how.",
    request=messages.SharePartitions,
    response=Empty,
)
AWAIT_RECORDS = Api(
    "awaitRecords",
    "POST /v1/leader/{group}/await",
    "Wait until one of these share-partitions may have something to acquire.",
    request=messages.AwaitRecordsRequest,
    response=Empty,
)
HELD_AT_LEADER = Api(
    "heldAtLeader",
    "POST /v1/leader/{group}/held",
    "Tell what a member holds of some ranges; wait until it is less, or answer the records too.",
    request=messages.HeldRequest,
    response=messages.LeaderFetchResponse,
)
TAKE_STREAM = Api(
    "takeStream",
    "POST /v1/leader/{group}/take-stream",
    "End a member's stream here, because the member has opened it at another gateway.",
    request=messages.TakeStreamRequest,
    response=messages.TakeStreamResponse,
)
RELEASE_AT_LEADER = _repeatable(
    "releaseAtLeader",
    "POST /v1/leader/{group}/release",
    "Release a member's records in share-partitions that this gateway leads.",
    request=messages.ReleaseMemberRequest,
    response=Empty,
)
IN_FLIGHT_AT_LEADER = _at_leader("inFlightAtLeader", LIST_IN_FLIGHT_RECORDS)
WINDOW_AT_LEADER = _at_leader("windowAtLeader", DESCRIBE_WINDOW)
CHANGE_AT_LEADER = _at_leader("changeAtLeader", CHANGE_RECORD)
ATTENTION_AT_LEADER = _at_leader("attentionAtLeader", LIST_ATTENTION)
FIGURES_HERE = Api(
    "figuresHere",
    "POST /v1/leader/figures",
    "Count, by group and topic, what happened at this gateway and is in no sample yet, and what is in flight here.",
    request=FiguresRequest,
    response=Figures,
)
GROUPS_HERE = _repeatable(
    "groupsHere",
    "POST /v1/leader/groups",
    "Count what groups do at this gateway, and list the members that called it in the last minute.",
    request=messages.GroupsHereRequest,
    response=messages.GroupsHereResponse,
)
YIELD_SHARE_PARTITIONS = _repeatable(
    "yieldSharePartitions",
    "POST /v1/leader/yield",
    "Finish the writes under way of these share-partitions, unload them, and answer the acquisition locks.",
    request=messages.SharePartitions,
    response=messages.YieldResponse,
)
FETCH_IN_SESSION = Api(
    "fetchInSession",
    "POST /v1/sessions/{group}/fetch",
    "Fetch for a client in a share session that this gateway keeps.",
    request=FetchRequest,
    response=FetchResponse,
    access=FETCH_ACCESS,
)
ACKNOWLEDGE_IN_SESSION = Api(
    "acknowledgeInSession",
    "POST /v1/sessions/{group}/acknowledge",
    "Acknowledge for a client in a share session that this gateway keeps.",
    request=AcknowledgeRequest,
    response=AcknowledgeResponse,
    access=ACKNOWLEDGE_ACCESS,
)
