"""The application of the gateway: every call, and its handler."""

from typing import Any, NamedTuple

from sharequeue.openapi import serve_openapi
from sharequeue.protocol import apis, capabilities
from sharequeue.protocol.messages.operations import ServiceDescription
from sharequeue_gateway.http.fetch_api import FetchApi
from sharequeue_gateway.http.groups.group_admin_api import GroupAdminApi
from sharequeue_gateway.http.groups.members_api import MembershipApi
from sharequeue_gateway.http.groups.offsets_api import GroupsApi
from sharequeue_gateway.http.internal.group_use_api import GroupUse
from sharequeue_gateway.http.internal.leader_api import LeaderApi
from sharequeue_gateway.http.jobs.activity_api import ActivityApi
from sharequeue_gateway.http.jobs.compaction_api import CompactionApi
from sharequeue_gateway.http.pages import serve_pages
from sharequeue_gateway.http.produce_api import ProduceApi
from sharequeue_gateway.http.records_api import RecordsApi
from sharequeue_gateway.http.scheduled_api import ScheduledApi
from sharequeue_gateway.http.stream_api import StreamApi
from sharequeue_gateway.http.topics_api import TopicsApi
from sharequeue_gateway.http.transactions_api import TransactionsApi
from sharequeue_http.application.app import App, create_app, serve
from sharequeue_http.application.endpoint import Admission, Call, Guard, Handler
from sharequeue_http.forms.api import Api
from sharequeue_http.origins import Callers

BOUNDED = (
    apis.PRODUCE_RECORDS,
    apis.PRODUCE_ARROW,
    apis.PRODUCE_RAW_RECORD,
    apis.SCHEDULE_RECORDS,
    apis.COMMIT_TRANSACTION,
    apis.APPEND_HERE,
)
"""The calls whose bytes in hand are bounded together. A commit may have 10,000 acknowledgements."""
Calls = tuple[tuple[Api, Handler], ...]
DESCRIPTION = "Kafka share groups over HTTP: per-record locks, acknowledgements and dead letters on a replayable log."


class GatewayApis(NamedTuple):
    """The handlers of all calls, by subject."""

    fetch: FetchApi
    stream: StreamApi
    records: RecordsApi
    produce: ProduceApi
    scheduled: ScheduledApi
    transactions: TransactionsApi
    leader: LeaderApi
    topics: TopicsApi
    compaction: CompactionApi
    groups: GroupsApi
    membership: MembershipApi
    group_admin: GroupAdminApi
    single_records: Calls
    group_use: GroupUse
    activity: ActivityApi
    access: tuple[tuple[Api, Handler], ...]

    def calls(self) -> Calls:
        """Return each call that clients and other services make, and its handler."""
        return (
            (apis.FETCH_RECORDS, self.fetch.fetch_records),
            (apis.STREAM_RECORDS, self.stream.stream),
            (apis.ACKNOWLEDGE_RECORDS, self.records.acknowledge_records),
            (apis.PRODUCE_RECORDS, self.produce.produce_records),
            (apis.FETCH_FROM_LEADER, self.leader.fetch),
            (apis.ACKNOWLEDGE_AT_LEADER, self.leader.acknowledge),
            (apis.PRODUCE_ARROW, self.produce.produce_arrow),
            (apis.PRODUCE_RAW_RECORD, self.produce.produce_raw_record),
            (apis.APPEND_HERE, self.produce.append_here),
            *self.scheduled.calls(),
            (apis.BEGIN_TRANSACTION, self.transactions.begin),
            (apis.COMMIT_TRANSACTION, self.transactions.commit),
            (apis.ABORT_TRANSACTION, self.transactions.abort),
            (apis.TERMINATE_TRANSACTION, self.transactions.terminate),
            (apis.DESCRIBE_TRANSACTION, self.transactions.describe),
            (apis.LIST_TRANSACTIONS, self.transactions.list_some),
            (apis.CREATE_TOPIC, self.topics.create_topic),
            (apis.LIST_TOPICS, self.topics.list_topics),
            (apis.DESCRIBE_TOPIC, self.topics.describe_topic),
            (apis.UPDATE_TOPIC, self.topics.update_topic),
            (apis.DELETE_TOPIC, self.topics.delete_topic),
            (apis.DELETE_RECORDS, self.topics.delete_records),
            (apis.READ_RECORDS, self.topics.read_records),
            (apis.LIST_RECORD_BATCHES, self.compaction.list_batches),
            (apis.REPLACE_RECORD_BATCHES, self.compaction.replace_batches),
            (apis.DELETE_TOPIC_RECORDS, self.topics.delete_topic_records),
            (apis.GET_SHARE_GROUP_CONFIG, self.groups.get_config),
            (apis.GET_SHARE_GROUP_SERVICE_CONFIG, self.groups.get_service_config),
            (apis.UPDATE_SHARE_GROUP_CONFIG, self.groups.update_config),
            (apis.LIST_SHARE_GROUP_OFFSETS, self.groups.offsets),
            (apis.FETCH_IN_SESSION, self.fetch.fetch_here),
            (apis.ACKNOWLEDGE_IN_SESSION, self.records.acknowledge_here),
            (apis.HOLD_AT_LEADER, self.leader.hold),
            (apis.TRANSACTION_ENDED, self.leader.transaction_ended),
            (apis.AWAIT_RECORDS, self.leader.await_records),
            (apis.HELD_AT_LEADER, self.leader.held),
            (apis.TAKE_STREAM, self.leader.take_stream),
            (apis.RELEASE_AT_LEADER, self.leader.release),
            (apis.GROUPS_HERE, self.membership.at_work.here),
            (apis.YIELD_SHARE_PARTITIONS, self.leader.yield_share_partitions),
            (apis.SHARE_GROUP_HEARTBEAT, self.membership.heartbeat),
            (apis.LEAVE_SHARE_GROUP, self.membership.leave),
            (apis.LIST_SHARE_GROUPS, self.membership.list_groups),
            (apis.DESCRIBE_SHARE_GROUP, self.membership.describe),
            (apis.DELETE_SHARE_GROUP, self.group_admin.delete),
            (apis.DELETE_SHARE_GROUP_OFFSETS, self.group_admin.delete_offsets),
            (apis.RESET_SHARE_GROUP_OFFSETS, self.group_admin.reset_offsets),
            *self.activity.calls(),
            *self.single_records,
            (apis.GROUP_USAGE, self.group_use.usage),
            (apis.UNLOAD_GROUP, self.group_use.unload),
            (apis.CHANGE_READERS, self.group_use.change_readers),
            (apis.RELEASE_MEMBER, self.group_use.release_member),
            *self.access,
        )


def create_gateway_app(
    handlers: GatewayApis,
    *,
    callers: Callers,
    cluster_token: str,
    max_request_bytes: int,
    admission: Admission,
    guard: Guard | None,
    service: ServiceDescription,
    kafka_defaults: bool = False,
) -> App:
    """The application of one gateway. `guard`: of the calls that clients make; None: everybody may make them.
    `service`: the answer of describeService.
    Raises: ValueError: a row does not say what its callers need."""
    app = create_app("sharequeue", DESCRIPTION, callers)
    for api, handler in handlers.calls():
        serve(
            app,
            api,
            within(api, handler, service),
            max_request_bytes=max_request_bytes,
            cluster_token=cluster_token,
            admission=admission if api in BOUNDED else None,
            guard=None if api.internal and api.access is None else guard,
        )

    async def describe(_: Call) -> ServiceDescription:
        return service

    serve(app, apis.DESCRIBE_SERVICE, describe, guard=guard)
    serve_openapi(app, DESCRIPTION)
    serve_pages(app, kafka_defaults)
    return app


def within(api: Api, handler: Handler, service: ServiceDescription) -> Handler:
    """The handler of a call; if the service lacks capabilities, it refuses the requests that need one of them first."""
    offered, needs = frozenset(service.capabilities), api.needs
    if needs is None or offered == capabilities.ALL:
        return handler

    async def checked(call: Call) -> Any:
        capabilities.check(needs, call, offered)
        return await handler(call)

    return checked
