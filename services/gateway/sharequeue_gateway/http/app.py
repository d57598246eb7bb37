"""The application of the gateway: every call, and its handler."""

from collections.abc import Awaitable, Callable, Iterator

from sharequeue.http.app import App, create_app, serve
from sharequeue.http.openapi import serve_openapi
from sharequeue.http.origins import Callers
from sharequeue.protocol import apis
from sharequeue.protocol.messages.operations import Readiness
from sharequeue.service.service import serve_operations
from sharequeue_gateway.http.fetch_api import FetchApi
from sharequeue_gateway.http.group_admin_api import GroupAdminApi
from sharequeue_gateway.http.in_flight_api import InFlightApi
from sharequeue_gateway.http.internal.group_use_api import GroupUse
from sharequeue_gateway.http.internal.leader_api import LeaderApi
from sharequeue_gateway.http.jobs.activity_api import ActivityApi
from sharequeue_gateway.http.jobs.audit_api import AuditApi
from sharequeue_gateway.http.jobs.compaction_api import CompactionApi
from sharequeue_gateway.http.members_api import MembershipApi
from sharequeue_gateway.http.offsets_api import GroupsApi
from sharequeue_gateway.http.produce_api import ProduceApi
from sharequeue_gateway.http.records_api import RecordsApi
from sharequeue_gateway.http.redrive_api import Redriving
from sharequeue_gateway.http.topics_api import TopicsApi
from sharequeue_gateway.producing.admission import ProduceAdmission

PRODUCES = (apis.PRODUCE_RECORDS, apis.PRODUCE_RAW_RECORD)
DESCRIPTION = "Kafka share groups over HTTP: per-record locks, acknowledgements and dead letters on a replayable log."


def create_gateway_app(
    fetch: FetchApi,
    records: RecordsApi,
    produce: ProduceApi,
    leader: LeaderApi,
    topics: TopicsApi,
    compaction: CompactionApi,
    groups: GroupsApi,
    in_flight: InFlightApi,
    membership: MembershipApi,
    group_admin: GroupAdminApi,
    redriving: Redriving,
    group_use: GroupUse,
    activity: ActivityApi,
    audit: AuditApi,
    ready: Callable[[], Awaitable[Readiness]],
    series: Callable[[], Iterator[str]],
    *,
    callers: Callers,
    cluster_token: str,
    max_request_bytes: int,
    max_produce_bytes: int,
) -> App:
    """The application of one gateway."""
    admission = ProduceAdmission(max_produce_bytes)
    app = create_app("sharequeue", DESCRIPTION, callers)
    for api, handler in (
        (apis.FETCH_RECORDS, fetch.fetch_records),
        (apis.ACKNOWLEDGE_RECORDS, records.acknowledge_records),
        (apis.PRODUCE_RECORDS, produce.produce_records),
        (apis.FETCH_FROM_LEADER, leader.fetch),
        (apis.ACKNOWLEDGE_AT_LEADER, leader.acknowledge),
        (apis.PRODUCE_RAW_RECORD, produce.produce_raw_record),
        (apis.CREATE_TOPIC, topics.create_topic),
        (apis.LIST_TOPICS, topics.list_topics),
        (apis.DESCRIBE_TOPIC, topics.describe_topic),
        (apis.UPDATE_TOPIC, topics.update_topic),
        (apis.DELETE_TOPIC, topics.delete_topic),
        (apis.DELETE_RECORDS, topics.delete_records),
        (apis.READ_RECORDS, topics.read_records),
        (apis.LIST_RECORD_BATCHES, compaction.list_batches),
        (apis.REPLACE_RECORD_BATCHES, compaction.replace_batches),
        (apis.DELETE_TOPIC_RECORDS, topics.delete_topic_records),
        (apis.GET_SHARE_GROUP_CONFIG, groups.get_config),
        (apis.UPDATE_SHARE_GROUP_CONFIG, groups.update_config),
        (apis.LIST_SHARE_GROUP_OFFSETS, groups.offsets),
        (apis.LIST_IN_FLIGHT_RECORDS, in_flight.in_flight),
        (apis.FETCH_IN_SESSION, fetch.fetch_here),
        (apis.ACKNOWLEDGE_IN_SESSION, records.acknowledge_here),
        (apis.AWAIT_RECORDS, leader.await_records),
        (apis.RELEASE_AT_LEADER, leader.release),
        (apis.IN_FLIGHT_AT_LEADER, in_flight.in_flight_here),
        (apis.YIELD_SHARE_PARTITIONS, leader.yield_share_partitions),
        (apis.SHARE_GROUP_HEARTBEAT, membership.heartbeat),
        (apis.LEAVE_SHARE_GROUP, membership.leave),
        (apis.LIST_SHARE_GROUPS, membership.list_groups),
        (apis.DESCRIBE_SHARE_GROUP, membership.describe),
        (apis.DELETE_SHARE_GROUP, group_admin.delete),
        (apis.DELETE_SHARE_GROUP_OFFSETS, group_admin.delete_offsets),
        (apis.RESET_SHARE_GROUP_OFFSETS, group_admin.reset_offsets),
        (apis.LIST_ACTIVITY, activity.list_activity),
        (apis.REDRIVE_DEAD_LETTERS, redriving.redrive),
        (apis.GROUP_USAGE, group_use.usage),
        (apis.UNLOAD_GROUP, group_use.unload),
        (apis.RELEASE_MEMBER, group_use.release_member),
    ):
        serve(
            app,
            api,
            handler,
            max_request_bytes=max_request_bytes,
            cluster_token=cluster_token,
            admission=admission if api in PRODUCES else None,
        )
    serve(app, apis.AUDIT_SHARE_STATE, audit.share_state, cluster_token=cluster_token, protect=True)
    serve(app, apis.AUDIT_LOG, audit.log, cluster_token=cluster_token, protect=True)
    serve_operations(app, ready, series)
    serve_openapi(app, DESCRIPTION)
    return app
