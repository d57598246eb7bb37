"""Share groups: calls of a gateway, which forwards most of them to the group coordinator."""

from collections.abc import Iterable, Mapping
from functools import partial

from sharequeue.protocol import bounds
from sharequeue.protocol.access.columns import Access, Need, Shown, always, given, group, listed, topic, topics
from sharequeue.protocol.access.rights import CLUSTER_NAME
from sharequeue.protocol.configs import DEAD_LETTER_CONSUMER, DEAD_LETTER_TOPIC
from sharequeue.protocol.errors import GROUP_ERRORS, TOPIC_ERRORS
from sharequeue.protocol.messages import groups as messages
from sharequeue.protocol.messages import in_flight
from sharequeue_http.forms.api import Api

_DESCRIBE = Access((group("DESCRIBE"),))


def _changes_dead_letter_topic(_: Mapping[str, str], request: messages.UpdateShareGroupConfigRequest) -> Iterable[str]:
    """A group's dead letters are copies of other topics' records, so where they go is decided for the cluster."""
    return (CLUSTER_NAME,) if DEAD_LETTER_TOPIC in request.config or DEAD_LETTER_TOPIC in request.reset else ()


def _tells_about(_: Mapping[str, str], request: messages.UpdateShareGroupConfigRequest) -> Iterable[str]:
    """Return the group that is to work on the dead letters: which of them are open then tells how far it is."""
    return filter(None, [request.config.get(DEAD_LETTER_CONSUMER)])


_DEAD_LETTER_TOPIC = Need("ALTER", "CLUSTER", _changes_dead_letter_topic)
_DEAD_LETTER_CONSUMER = Need("DESCRIBE", "GROUP", _tells_about)

_call = partial(Api, tag="Groups")
GET_SHARE_GROUP_CONFIG = _call(
    "getShareGroupConfig",
    "GET /v1/share-groups/{group}/config",
    "Get the settings of a group in force.",
    description="A setting that was never changed has its default. A group that does not exist has settings too.",
    response=messages.ShareGroupConfigResponse,
    errors=GROUP_ERRORS,
    access=_DESCRIBE,
)
UPDATE_SHARE_GROUP_CONFIG = _call(
    "updateShareGroupConfig",
    "PATCH /v1/share-groups/{group}/config",
    "Change settings of a group; the group need not exist yet.",
    description="Settings that are not named stay. Locks that are held keep the duration they began with. Every gateway "
    "follows within a second.",
    request=messages.UpdateShareGroupConfigRequest,
    response=messages.ShareGroupConfigResponse,
    errors=(*GROUP_ERRORS, "INVALID_CONFIG"),
    idempotent=True,
    access=Access((group("ALTER"), _DEAD_LETTER_TOPIC, _DEAD_LETTER_CONSUMER), audited=always),
)
GET_SHARE_GROUP_SERVICE_CONFIG = _call(
    "getShareGroupServiceConfig",
    "GET /v1/share-groups/{group}/config/service",
    "Get the service-wide settings of groups, and which of a group's own they clamp.",
    description="The operator sets them at the group coordinators. getShareGroupConfig has what is in force.",
    response=messages.ShareGroupServiceConfig,
    errors=GROUP_ERRORS,
    access=_DESCRIBE,
)
LIST_SHARE_GROUP_OFFSETS = _call(
    "listShareGroupOffsets",
    "GET /v1/share-groups/{group}/offsets",
    "List the start offset and the lag of every share-partition of a group, a page at a time.",
    description="They are the stored offsets. `lag` counts from the log start if that is higher. After compaction, or a "
    "redrive for another group, it is too high until about ten seconds after the group's next fetch.",
    request=messages.ListOffsetsQuery,
    response=messages.ShareGroupOffsets,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND"),
    access=Access((group("DESCRIBE"),), (Shown("topics", "TOPIC", "topic"),)),
)
LIST_IN_FLIGHT_RECORDS = _call(
    "listInFlightRecords",
    "GET /v1/share-groups/{group}/in-flight",
    "List the records that a group has in flight, with their holders, lock ends and delivery counts.",
    description="Each page shows the state at the time of its own call. A page holds whole partitions.",
    request=in_flight.InFlightQuery,
    response=in_flight.ListInFlightResponse,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION"),
    access=Access(
        (group("DESCRIBE"), topics("DESCRIBE", given("topic"))),
        tuple(Shown(place, "TOPIC", "topic") for place in ("partitions", "errors")),
    ),
)
LOOK_UP_RECORD = _call(
    "lookUpRecord",
    "GET /v1/share-groups/{group}/topics/{topic}/partitions/{partition}/records/{offset}",
    "Look up what a group has done with one record: not fetched, held, delayed, finished, dead, redriven.",
    description="The leader of the share-partition is asked. Of a finished record the group keeps neither the member nor "
    "the time.",
    response=in_flight.RecordLife,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", *TOPIC_ERRORS, "OFFSET_OUT_OF_RANGE"),
    access=Access((group("DESCRIBE"), topic("READ"))),
)
FIND_RECORDS = _call(
    "findRecords",
    "GET /v1/share-groups/{group}/topics/{topic}/records",
    "Find the records with a key, the newest first, and what a group has done with each.",
    description="The partition of the key is read backwards, at most 100,000 records or for a second in a call.",
    request=in_flight.FindRecordsQuery,
    response=in_flight.FoundRecords,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", *TOPIC_ERRORS),
    access=Access((group("DESCRIBE"), topic("READ"))),
)
DESCRIBE_WINDOW = _call(
    "describeWindow",
    "GET /v1/share-groups/{group}/topics/{topic}/partitions/{partition}/window",
    "Count what a group does with the offsets of a partition, in up to 1,000 buckets of equal size.",
    description="The leader counts what it has in memory. The call loads nothing: of a share-partition that no gateway "
    "has in memory, it shows the stored start offset.",
    request=in_flight.WindowQuery,
    response=in_flight.Window,
    errors=(*GROUP_ERRORS, *TOPIC_ERRORS),
    access=Access((group("DESCRIBE"), topic("DESCRIBE"))),
)
CHANGE_RECORD = _call(
    "changeRecord",
    "POST /v1/share-groups/{group}/topics/{topic}/partitions/{partition}/records/{offset}",
    "Release, reject or extend a held record by hand; deliver a delayed one now, or reject it.",
    description="`delivery_count` names the delivery, so a record that has changed since you looked stays as it is. The "
    "worker of a held record is not stopped: its own acknowledgement is refused later.",
    request=in_flight.ChangeRecordRequest,
    response=in_flight.RecordChange,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", *TOPIC_ERRORS, "INVALID_RECORD_STATE"),
    access=Access((group("ALTER"), topic("READ")), audited=always),
)
SHARE_GROUP_HEARTBEAT = _call(
    "shareGroupHeartbeat",
    "POST /v1/share-groups/{group}/heartbeat",
    "Join a group, stay in it, learn the assignment, or leave.",
    description="Fetching needs no membership: members divide the partitions of their topics among themselves. Send a "
    "heartbeat every `heartbeat_interval_ms`; a member that sends none for `share.session.timeout.ms` is "
    "evicted. A new group's first assignment comes with the second heartbeat.",
    request=messages.ShareGroupHeartbeatRequest,
    response=messages.HeartbeatResult,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_MAX_SIZE_REACHED"),
    headers=(("Client-Id", "the name of this client in describeShareGroup; User-Agent is used without it"),),
    check_body=bounds.check_names,
    idempotent=True,
    access=Access(
        (
            group("READ"),
            topics("DESCRIBE", lambda _, request: request.subscribed_topic_names or ()),
        ),
        tuple(Shown(place, "TOPIC", "topic") for place in ("assignment.topic_partitions", "leaders")),
        audited=lambda request: request.member_epoch < 0,  # it leaves
    ),
)
LEAVE_SHARE_GROUP = _call(
    "leaveShareGroup",
    "DELETE /v1/share-groups/{group}/members/{member_id}",
    "Leave a group: the member's waiting fetches end, its share session is closed, and its records are released.",
    description="It is the same as a heartbeat with `member_epoch` −1, and works for members that only fetch, too.",
    status=204,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID"),
    idempotent=True,
    access=Access((group("READ"),), goes_on=always, audited=always),
)
LIST_SHARE_GROUPS = _call(
    "listShareGroups",
    "GET /v1/share-groups",
    "List groups by id, a page at a time.",
    description="The first fetch or heartbeat of a group creates it. With `work` each gateway is asked what the groups have "
    "to do now: ready, held, delayed and dying records, and workers.",
    request=messages.ListShareGroupsQuery,
    response=messages.ShareGroupList,
    access=Access((listed("GROUP"),), (Shown("groups", "GROUP", "group_id"),)),
)
DESCRIBE_SHARE_GROUP = _call(
    "describeShareGroup",
    "GET /v1/share-groups/{group}",
    "Describe a group: its state and its members, what it has to do now, and who works on it.",
    description="`members` have joined by heartbeats. Fetching needs no membership: `workers` are the members that fetched, "
    "acknowledged or renewed in the last minute, or read a stream. listInFlightRecords names the holders of records.",
    request=messages.DescribeShareGroupQuery,
    response=messages.ShareGroupDescription,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND"),
    access=Access(
        (group("DESCRIBE"),),
        (
            Shown("members.subscribed_topic_names", "TOPIC"),
            Shown("members.assignment.topic_partitions", "TOPIC", "topic"),
        ),
    ),
)
DELETE_SHARE_GROUP = _call(
    "deleteShareGroup",
    "DELETE /v1/share-groups/{group}",
    "Delete a group that is not in use, with its offsets in every topic.",
    description="Every gateway has unloaded the group before the answer. Its settings stay, for the next group of its "
    "name. A group in use is refused unless `force` is true.",
    request=messages.InUseQuery,
    status=204,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP"),
    access=Access((group("DELETE"),), audited=always),
)
RESET_SHARE_GROUP_OFFSETS = _call(
    "resetShareGroupOffsets",
    "POST /v1/share-groups/{group}/offsets/reset",
    "Set the start offsets of a group that is not in use; a group that does not exist is created.",
    description="Locks, releases and rejections are forgotten: the group begins at the new offsets with a "
    "delivery count of 0. After the answer no gateway serves the old state.",
    request=messages.ResetShareGroupOffsetsRequest,
    response=messages.ResetOffsetsResult,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP", *TOPIC_ERRORS),
    access=Access(
        (
            group("ALTER"),
            topics("READ", lambda _, request: [each.topic for each in request.topics or ()], each=True),
        ),
        audited=always,
    ),
)
DELETE_SHARE_GROUP_OFFSETS = _call(
    "deleteShareGroupOffsets",
    "DELETE /v1/share-groups/{group}/offsets/{topic}",
    "Delete the offsets of a group that is not in use in a topic.",
    description="The group begins the topic again by its `share.auto.offset.reset`. A group in use is refused unless "
    "`force` is true.",
    request=messages.InUseQuery,
    status=204,
    errors=(*GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP", *TOPIC_ERRORS),
    access=Access((group("ALTER"), topic("READ")), audited=always),
)
