"""Calls of a gateway that the group coordinator and the other gateways make."""

from sharequeue.protocol.apis.records import ACKNOWLEDGE_ACCESS, FETCH_ACCESS
from sharequeue.protocol.messages.in_flight import (
    ChangeRecordRequest,
    InFlightQuery,
    ListInFlightResponse,
    RecordChange,
    Window,
    WindowQuery,
)
from sharequeue.protocol.messages.leaders import (
    AppendHereRequest,
    AppendHereResponse,
    AwaitRecordsRequest,
    ChangeReadersRequest,
    ChangeReadersResponse,
    DeleteTopicRecordsRequest,
    GroupsHereRequest,
    GroupsHereResponse,
    GroupTopicsRequest,
    GroupUsageResponse,
    HeldRequest,
    HoldRequest,
    HoldResponse,
    LeaderAcknowledgeRequest,
    LeaderFetchRequest,
    LeaderFetchResponse,
    ReleaseMemberRequest,
    ReleaseMemberResponse,
    TakeStreamRequest,
    TakeStreamResponse,
    TransactionEndedRequest,
    UnloadGroupRequest,
    YieldRequest,
    YieldResponse,
)
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.records import AcknowledgeRequest, AcknowledgeResponse, FetchRequest, FetchResponse
from sharequeue_http.forms.api import Api

GROUP_USAGE = Api(
    "shareGroupUsage",
    "POST",
    "/v1/led/groups/{group}/usage",
    "Tell how much this gateway is used by a group.",
    request=GroupTopicsRequest,
    response=GroupUsageResponse,
    idempotent=True,
)
RELEASE_MEMBER = Api(
    "releaseMember",
    "POST",
    "/v1/led/groups/{group}/members/{member_id}/release",
    "Close a member's share session, and release its records in the share-partitions that this gateway leads.",
    request=GroupTopicsRequest,
    response=ReleaseMemberResponse,
    idempotent=True,
)
UNLOAD_GROUP = Api(
    "unloadShareGroup",
    "POST",
    "/v1/led/groups/{group}/unload",
    "Unload a group's share-partitions, because their stored state was replaced.",
    request=UnloadGroupRequest,
    response=Empty,
    idempotent=True,
)
CHANGE_READERS = Api(
    "changeReaders",
    "POST",
    "/v1/led/groups/{group}/readers",
    "Change how far the log takes a group to have finished its partitions.",
    request=ChangeReadersRequest,
    response=ChangeReadersResponse,
    idempotent=True,
)
DELETE_TOPIC_RECORDS = Api(
    "deleteTopicRecords",
    "POST",
    "/v1/log/delete-topic",
    "Remove the records of a topic that was deleted.",
    request=DeleteTopicRecordsRequest,
    response=Empty,
    idempotent=True,
)
APPEND_HERE = Api(
    "appendHere",
    "POST",
    "/v1/log/append",
    "Append records that another gateway was sent, because gateways that append to one partition collide.",
    request=AppendHereRequest,
    response=AppendHereResponse,
    idempotent=True,
)
FETCH_FROM_LEADER = Api(
    "fetchFromLeader",
    "POST",
    "/v1/leader/{group}/fetch",
    "Fetch the part of a client's fetch that this gateway leads.",
    request=LeaderFetchRequest,
    response=LeaderFetchResponse,
)
ACKNOWLEDGE_AT_LEADER = Api(
    "acknowledgeAtLeader",
    "POST",
    "/v1/leader/{group}/acknowledge",
    "Apply the acknowledgements of a client's call that concern share-partitions this gateway leads.",
    request=LeaderAcknowledgeRequest,
    response=AcknowledgeResponse,
)
HOLD_AT_LEADER = Api(
    "holdAtLeader",
    "POST",
    "/v1/leader/{group}/hold",
    "Have records of a member wait for a transaction.",
    request=HoldRequest,
    response=HoldResponse,
    idempotent=True,
)
TRANSACTION_ENDED = Api(
    "transactionEnded",
    "POST",
    "/v1/led/transactions/{transaction}/ended",
    "Settle or let go the records here that wait for a transaction.",
    request=TransactionEndedRequest,
    response=Empty,
    idempotent=True,
)
AWAIT_RECORDS = Api(
    "awaitRecords",
    "POST",
    "/v1/leader/{group}/await",
    "Wait until one of these share-partitions may have something to acquire.",
    request=AwaitRecordsRequest,
    response=Empty,
)
HELD_AT_LEADER = Api(
    "heldAtLeader",
    "POST",
    "/v1/leader/{group}/held",
    "Tell what a member holds of some ranges; wait until it is less, or answer the records too.",
    request=HeldRequest,
    response=LeaderFetchResponse,
)
TAKE_STREAM = Api(
    "takeStream",
    "POST",
    "/v1/leader/{group}/take-stream",
    "End a member's stream here, because the member has opened it at another gateway.",
    request=TakeStreamRequest,
    response=TakeStreamResponse,
)
RELEASE_AT_LEADER = Api(
    "releaseAtLeader",
    "POST",
    "/v1/leader/{group}/release",
    "Release a member's records in share-partitions that this gateway leads.",
    request=ReleaseMemberRequest,
    response=Empty,
    idempotent=True,
)
IN_FLIGHT_AT_LEADER = Api(
    "inFlightAtLeader",
    "GET",
    "/v1/leader/{group}/in-flight",
    "List the records in flight of the share-partitions that this gateway leads.",
    request=InFlightQuery,
    response=ListInFlightResponse,
)
WINDOW_AT_LEADER = Api(
    "windowAtLeader",
    "GET",
    "/v1/leader/{group}/{topic}/{partition}/window",
    "Answer describeWindow for a share-partition that this gateway leads.",
    request=WindowQuery,
    response=Window,
)
CHANGE_AT_LEADER = Api(
    "changeAtLeader",
    "POST",
    "/v1/leader/{group}/{topic}/{partition}/records/{offset}",
    "Answer changeRecord for a share-partition that this gateway leads.",
    request=ChangeRecordRequest,
    response=RecordChange,
)
GROUPS_HERE = Api(
    "groupsHere",
    "POST",
    "/v1/leader/groups",
    "Count what groups do at this gateway, and list the members that called it in the last minute.",
    request=GroupsHereRequest,
    response=GroupsHereResponse,
    idempotent=True,
)
YIELD_SHARE_PARTITIONS = Api(
    "yieldSharePartitions",
    "POST",
    "/v1/leader/yield",
    "Finish the writes under way of these share-partitions, unload them, and answer the acquisition locks.",
    request=YieldRequest,
    response=YieldResponse,
    idempotent=True,
)
FETCH_IN_SESSION = Api(
    "fetchInSession",
    "POST",
    "/v1/sessions/{group}/fetch",
    "Fetch for a client in a share session that this gateway keeps.",
    request=FetchRequest,
    response=FetchResponse,
    access=FETCH_ACCESS,
)
ACKNOWLEDGE_IN_SESSION = Api(
    "acknowledgeInSession",
    "POST",
    "/v1/sessions/{group}/acknowledge",
    "Acknowledge for a client in a share session that this gateway keeps.",
    request=AcknowledgeRequest,
    response=AcknowledgeResponse,
    access=ACKNOWLEDGE_ACCESS,
)
