"""The group coordinator's calls. Those that clients make too come through a gateway, with the cluster token."""

from prometheus_client import Gauge

from sharequeue.http.serving import App, Call, create_app, serve
from sharequeue.ownership.endpoints import serve_ownership
from sharequeue.ownership.leases import Ownership
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis, messages
from sharequeue.protocol.errors import InvalidGroupId
from sharequeue.protocol.internal import (
    DescribeTopicsRequest,
    DescribeTopicsResponse,
    Gateway,
    GroupSummaryResponse,
    InitializeSharePartitionsRequest,
    InitializeSharePartitionsResponse,
    LeaderEpochResponse,
    MetadataChangesQuery,
    MetadataChangesResponse,
    NextLeaderEpochRequest,
    RegisterGatewayRequest,
    RegisterGatewayResponse,
    RenewGatewayRequest,
    RenewGatewayResponse,
)
from sharequeue.protocol.messages import Empty, Readiness
from sharequeue.protocol.types import MAX_WAIT_MS, group_id_fault
from sharequeue.service.readiness import CHECK_S, Check, faults
from sharequeue.service.service import serve_operations
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.http.groups_api import GroupsApi, group_of
from sharequeue_coordinator.metadata import store

TOPICS = Gauge("sharequeue_coordinator_topics", "Topics.")
METADATA_VERSION = Gauge("sharequeue_coordinator_metadata_version", "Version of the metadata change feed.")


def create_group_coordinator_app(
    coordinator: GroupCoordinator, ownership: Ownership, share_coordinators: ShareStateClient, *, cluster_token: str
) -> App:
    """The application of one group coordinator."""
    app = create_app("sharequeue group coordinator", "Topics, group settings, initialisation of share-partitions.")
    TOPICS.set_function(lambda: coordinator.topic_count)
    METADATA_VERSION.set_function(lambda: coordinator.changes.version)

    async def create_topic(call: Call) -> messages.Topic:
        request: messages.CreateTopicRequest = call.request
        return await coordinator.create_topic(request.name, request.partitions, request.config)

    async def list_topics(call: Call) -> messages.ListTopicsResponse:
        query: apis.ListTopicsQuery = call.request
        page, following = coordinator.page(query.page_size, query.page_token)
        listed = [
            messages.TopicListing(name=topic.name, topic_id=topic.topic_id, partitions=topic.partitions)
            for topic in page
        ]
        return messages.ListTopicsResponse(topics=listed, next_page_token=following)

    async def update_topic(call: Call) -> messages.Topic:
        request: messages.UpdateTopicRequest = call.request
        return await coordinator.update_topic(call.path["topic"], request.partitions, request.config, request.reset)

    async def delete_topic(call: Call) -> Empty:
        await coordinator.delete_topic(call.path["topic"])
        return Empty()

    async def describe_topics(call: Call) -> DescribeTopicsResponse:
        request: DescribeTopicsRequest = call.request
        return DescribeTopicsResponse(topics=await coordinator.describe_topics(request.names, request.topic_ids))

    async def metadata_changes(call: Call) -> MetadataChangesResponse:
        query: MetadataChangesQuery = call.request
        await coordinator.lead()
        await coordinator.changes.wait(query.since, min(query.max_wait_ms, MAX_WAIT_MS) / 1000)
        await coordinator.lead()
        changed = coordinator.changes.after(query.since)
        version = coordinator.changes.version
        generation = coordinator.gateways.generation.number
        if changed is None:
            return MetadataChangesResponse(version=version, generation=generation, reset=True)
        topic_ids, group_ids = changed
        known = coordinator.known((), topic_ids)
        gone = set(topic_ids) - {topic.topic_id for topic in known}
        return MetadataChangesResponse(
            version=version,
            generation=generation,
            topics=known,
            deleted_topic_ids=sorted(gone),
            group_ids=group_ids,
        )

    async def get_group_config(call: Call) -> dict[str, str]:
        return await coordinator.group_config(group_of(call))

    async def update_group_config(call: Call) -> dict[str, str]:
        return await coordinator.update_group_config(group_of(call), call.request)

    async def initialize(call: Call) -> InitializeSharePartitionsResponse:
        request: InitializeSharePartitionsRequest = call.request
        fault = group_id_fault(request.group_id)
        if fault:
            raise InvalidGroupId(fault)
        asked = {topic.topic_id: topic.partitions for topic in request.topics}
        initialized = await coordinator.groups.initialize(request.group_id, asked)
        config = await coordinator.query(store.group_config, request.group_id)
        return InitializeSharePartitionsResponse(config=config, topics=initialized)

    async def group_summary(call: Call) -> GroupSummaryResponse:
        return await coordinator.groups.summary(group_of(call), call.request)

    async def register_gateway(call: Call) -> RegisterGatewayResponse:
        request: RegisterGatewayRequest = call.request
        return await coordinator.gateways.register(Gateway(node_id=request.node_id, url=request.url))

    async def renew_gateway(call: Call) -> RenewGatewayResponse:
        request: RenewGatewayRequest = call.request
        gateway = Gateway(node_id=request.node_id, url=request.url)
        return await coordinator.gateways.renew(gateway, leaving=request.leaving)

    async def next_leader_epoch(call: Call) -> LeaderEpochResponse:
        request: NextLeaderEpochRequest = call.request
        epoch = await coordinator.gateways.next_leader_epoch(request.node_id, request.generation)
        return LeaderEpochResponse(leader_epoch=epoch)

    async def ask_share_coordinator() -> None:
        await share_coordinators.call(apis.LIVEZ, deadline_s=CHECK_S, retry=False)

    postgres_check = Check(coordinator.health.check)
    share_check = Check(ask_share_coordinator)

    async def ready() -> Readiness:
        found = await faults(**{"postgresql": postgres_check, "share coordinator": share_check})
        missing = ownership.missing()
        dependencies = {"postgresql": "ok", "share coordinator": "ok", "shards": missing or "ok", **found}
        status = "unavailable" if "postgresql" in found else "degraded" if found or missing else "ready"
        return Readiness(status=status, dependencies=dependencies)

    for api, handler in (
        (apis.CREATE_TOPIC, create_topic),
        (apis.LIST_TOPICS, list_topics),
        (apis.UPDATE_TOPIC, update_topic),
        (apis.DELETE_TOPIC, delete_topic),
        (apis.GET_SHARE_GROUP_CONFIG, get_group_config),
        (apis.UPDATE_SHARE_GROUP_CONFIG, update_group_config),
        (apis.DESCRIBE_TOPICS, describe_topics),
        (apis.METADATA_CHANGES, metadata_changes),
        (apis.INITIALIZE_SHARE_PARTITIONS, initialize),
        (apis.GROUP_SUMMARY, group_summary),
        (apis.REGISTER_GATEWAY, register_gateway),
        (apis.RENEW_GATEWAY, renew_gateway),
        (apis.NEXT_LEADER_EPOCH, next_leader_epoch),
        *GroupsApi(coordinator).calls(),
    ):
        serve(app, api, handler, cluster_token=cluster_token, protect=True)
    serve_ownership(app, ownership, "group", share_coordinators, cluster_token=cluster_token)
    serve_operations(app, ready)
    return app
