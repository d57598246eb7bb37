"""Share groups: calls of a gateway, which forwards most of them to the group coordinator."""

from sharequeue.protocol import bounds
from sharequeue.protocol.apis.api import GROUP_ERRORS, TOPIC_ERRORS, Api
from sharequeue.protocol.messages.groups import (
    DescribeShareGroupQuery,
    HeartbeatResult,
    InUseQuery,
    ListShareGroupsQuery,
    RedriveDeadLettersRequest,
    RedriveResult,
    ResetOffsetsResult,
    ResetShareGroupOffsetsRequest,
    ShareGroupConfigResponse,
    ShareGroupDescription,
    ShareGroupHeartbeatRequest,
    ShareGroupList,
    ShareGroupOffsets,
    UpdateShareGroupConfigRequest,
)
from sharequeue.protocol.messages.in_flight import InFlightQuery, ListInFlightResponse

GET_SHARE_GROUP_CONFIG = Api(
    "getShareGroupConfig",
    "GET",
    "/v1/share-groups/{group}/config",
    "Get the settings of a group in force.",
    response=ShareGroupConfigResponse,
    tag="Groups",
    errors=GROUP_ERRORS,
    idempotent=True,
)
UPDATE_SHARE_GROUP_CONFIG = Api(
    "updateShareGroupConfig",
    "PATCH",
    "/v1/share-groups/{group}/config",
    "Change settings of a group; the group need not exist yet.",
    request=UpdateShareGroupConfigRequest,
    response=ShareGroupConfigResponse,
    tag="Groups",
    errors=(*GROUP_ERRORS, "INVALID_CONFIG"),
    idempotent=True,
)
LIST_SHARE_GROUP_OFFSETS = Api(
    "listShareGroupOffsets",
    "GET",
    "/v1/share-groups/{group}/offsets",
    "List the start offset and the lag of every share-partition of a group.",
    response=ShareGroupOffsets,
    tag="Groups",
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND"),
    idempotent=True,
)
LIST_IN_FLIGHT_RECORDS = Api(
    "listInFlightRecords",
    "GET",
    "/v1/share-groups/{group}/in-flight",
    "List the records that a group has in flight, with their holders, lock ends and delivery counts.",
    request=InFlightQuery,
    response=ListInFlightResponse,
    tag="Groups",
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION"),
    idempotent=True,
)
SHARE_GROUP_HEARTBEAT = Api(
    "shareGroupHeartbeat",
    "POST",
    "/v1/share-groups/{group}/heartbeat",
    "Join a group, stay in it, learn the assignment, or leave.",
    request=ShareGroupHeartbeatRequest,
    response=HeartbeatResult,
    tag="Groups",
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_MAX_SIZE_REACHED"),
    headers=(("Client-Id", "the name of this client in describeShareGroup; User-Agent is used without it"),),
    check_body=bounds.check_names,
    idempotent=True,
)
LEAVE_SHARE_GROUP = Api(
    "leaveShareGroup",
    "DELETE",
    "/v1/share-groups/{group}/members/{member_id}",
    "Leave a group: the member's share session is closed, and its records are released.",
    status=204,
    tag="Groups",
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID"),
    idempotent=True,
)
LIST_SHARE_GROUPS = Api(
    "listShareGroups",
    "GET",
    "/v1/share-groups",
    "List groups by id, a page at a time.",
    request=ListShareGroupsQuery,
    response=ShareGroupList,
    tag="Groups",
    idempotent=True,
)
DESCRIBE_SHARE_GROUP = Api(
    "describeShareGroup",
    "GET",
    "/v1/share-groups/{group}",
    "Describe a group: its state, epochs and members, and the assignment of each member.",
    request=DescribeShareGroupQuery,
    response=ShareGroupDescription,
    tag="Groups",
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND"),
    idempotent=True,
)
DELETE_SHARE_GROUP = Api(
    "deleteShareGroup",
    "DELETE",
    "/v1/share-groups/{group}",
    "Delete a group that is not in use, with its offsets in every topic.",
    request=InUseQuery,
    status=204,
    tag="Groups",
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP"),
)
RESET_SHARE_GROUP_OFFSETS = Api(
    "resetShareGroupOffsets",
    "POST",
    "/v1/share-groups/{group}/offsets/reset",
    "Set the start offsets of a group that is not in use; a group that does not exist is created.",
    request=ResetShareGroupOffsetsRequest,
    response=ResetOffsetsResult,
    tag="Groups",
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP", *TOPIC_ERRORS),
)
DELETE_SHARE_GROUP_OFFSETS = Api(
    "deleteShareGroupOffsets",
    "DELETE",
    "/v1/share-groups/{group}/offsets/{topic}",
    "Delete the offsets of a group that is not in use in a topic.",
    request=InUseQuery,
    status=204,
    tag="Groups",
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP", *TOPIC_ERRORS),
)
REDRIVE_DEAD_LETTERS = Api(
    "redriveDeadLetters",
    "POST",
    "/v1/share-groups/{group}/dead-letters/redrive",
    "Send a group's dead letters back to their topics, each once.",
    request=RedriveDeadLettersRequest,
    response=RedriveResult,
    tag="Groups",
    errors=(*GROUP_ERRORS, *TOPIC_ERRORS),
    idempotent=True,
)
