"""The calls about topics, as gateways pass them on."""

from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.topics import (
    CreateTopicRequest,
    ListTopicsQuery,
    Topic,
    TopicList,
    TopicListing,
    UpdateTopicRequest,
)
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_http.application.endpoint import Call


class TopicsApi:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._topics = coordinator.topics
        self._metadata = coordinator.metadata

    async def create_topic(self, call: Call) -> Topic:
        request: CreateTopicRequest = call.request
        return await self._topics.create(request.name, request.partitions, request.config)

    async def list_topics(self, call: Call) -> TopicList:
        query: ListTopicsQuery = call.request
        page, next_page_token = self._metadata.page(query.page_size, query.page_token)
        listed = [TopicListing(name=topic.name, topic_id=topic.topic_id, partitions=topic.partitions) for topic in page]
        return TopicList(topics=listed, next_page_token=next_page_token)

    async def update_topic(self, call: Call) -> Topic:
        request: UpdateTopicRequest = call.request
        return await self._topics.update(call.path["topic"], request.partitions, request.config, request.reset)

    async def delete_topic(self, call: Call) -> Empty:
        await self._topics.delete(call.path["topic"])
        return Empty()
