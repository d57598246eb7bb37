"""The calls that gateways and share coordinators make on their own behalf: metadata, generations, initialisation."""

from sharequeue.protocol.errors import checked_group_id
from sharequeue.protocol.messages import cluster as messages
from sharequeue.protocol.types import MAX_WAIT_MS
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.groups.share_states import failed_partitions
from sharequeue_coordinator.share_group.machine import ShareGroup
from sharequeue_http.application.endpoint import Call


class MetadataApi:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._metadata = coordinator.metadata
        self._gateways = coordinator.metadata.gateways
        self._initializer = coordinator.initializer
        self._configs = coordinator.group_configs
        self._groups = coordinator.groups
        self._states = coordinator.states

    # Metadata

    async def describe_topics(self, call: Call) -> messages.DescribeTopicsResponse:
        request: messages.DescribeTopicsRequest = call.request
        return messages.DescribeTopicsResponse(
            topics=await self._metadata.describe_topics(request.names, request.topic_ids)
        )

    async def metadata_changes(self, call: Call) -> messages.MetadataChangesResponse:
        """Return what changed after a version. Waits if nothing did."""
        query: messages.MetadataChangesQuery = call.request
        feed = self._metadata.feed
        await self._metadata.lead()
        await feed.wait(query.since, min(query.max_wait_ms, MAX_WAIT_MS) / 1000)
        await self._metadata.lead()
        changed = feed.after(query.since)
        response = messages.MetadataChangesResponse(
            version=feed.version,
            generation=self._gateways.generation.number,
            access=self._metadata.access,
            service=dict(self._configs.service),
            reset=changed is None,
        )
        if changed is not None:
            topic_ids, response.group_ids = changed
            response.topics = self._metadata.known((), topic_ids)
            response.deleted_topic_ids = sorted(set(topic_ids) - {topic.topic_id for topic in response.topics})
        return response

    # Gateways

    async def register_gateway(self, call: Call) -> messages.RegisterGatewayResponse:
        return await self._gateways.register(call.request)

    async def renew_gateway(self, call: Call) -> messages.RenewGatewayResponse:
        request: messages.RenewGatewayRequest = call.request
        return await self._gateways.renew(request.gateway, leaving=request.leaving, known=request.generation)

    async def next_leader_epoch(self, call: Call) -> messages.LeaderEpochResponse:
        request: messages.NextLeaderEpochRequest = call.request
        return await self._gateways.next_leader_epoch(request.node_id, request.generation, request.above)

    # Share-partitions

    async def initialize_share_partitions(self, call: Call) -> messages.InitializeSharePartitionsResponse:
        request: messages.InitializeSharePartitionsRequest = call.request
        checked_group_id(request.group_id)
        faults = await self._initializer.initialize(request.group_id, request.partitions)
        config = await self._configs.stored(request.group_id)
        return messages.InitializeSharePartitionsResponse(
            config=config, failed=failed_partitions(faults), service=dict(self._configs.service)
        )

    async def group_summary(self, call: Call) -> messages.GroupSummaryResponse:
        """Start offset, leader epoch and count of a group's share-partitions, in pages by topic name and partition."""
        group_id = checked_group_id(call.path["group"])
        machine = (await self._groups.find(group_id)).machine
        machine.check_exists()
        wanted, more = self._page(machine, call.request)
        summaries = []
        for topic_id, partitions in (await self._states.summaries(group_id, wanted)).items():
            row = self._metadata.by_id.get(topic_id)
            if row is not None:
                summaries.append(messages.GroupTopicSummary(topic=row.name, topic_id=topic_id, partitions=partitions))
        return messages.GroupSummaryResponse(topics=sorted(summaries, key=lambda summary: summary.topic), more=more)

    def _page(self, machine: ShareGroup, query: messages.GroupSummaryQuery) -> tuple[dict[str, list[int]], bool]:
        """The partitions of the page by topic id, and whether more follow."""
        by_name = {
            row.name: (topic_id, topic.initialized)
            for topic_id, topic in machine.topics.items()
            if topic.initialized
            and (row := self._metadata.by_id.get(topic_id)) is not None
            and query.topic in (None, row.name)
        }
        wanted: dict[str, list[int]] = {}
        more = False
        room = query.limit
        for name in sorted(name for name in by_name if name >= query.after_topic):
            topic_id, initialized = by_name[name]
            after = query.after_partition if name == query.after_topic else -1
            following = sorted(partition for partition in initialized if partition > after)
            taken = following if room is None else following[:room]
            if taken:
                wanted[topic_id] = taken
            more = more or len(taken) < len(following)
            if room is not None:
                room -= len(taken)
        return wanted, more
