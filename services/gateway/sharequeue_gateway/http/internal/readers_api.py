"""The call of the group coordinator that changes the log's readers: before and after a group's state is set or deleted.

reset    reserve ─▶ the state is set ─▶ raise         a crash in between leaves a floor that is too low
delete   the state is deleted ─▶ every gateway unloads ─▶ remove
"""

from sharequeue.protocol.messages.cluster import StartOffsets
from sharequeue.protocol.messages.leaders import ChangeReadersRequest, ChangeReadersResponse
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_gateway.record_log.removing.readers_store import Floor
from sharequeue_http.application.endpoint import Call


class ReadersApi:
    """The handler of changeReaders."""

    def __init__(self, metadata: Metadata, readers: Readers) -> None:
        self._metadata = metadata
        self._readers = readers

    async def change(self, call: Call) -> ChangeReadersResponse:
        request: ChangeReadersRequest = call.request
        group_id = call.path["group"]
        floors = [
            Floor(SharePartitionKey(group_id, topic_id, partition), request.state_epoch, start_offset)
            for topic_id, partitions in request.offsets.items()
            for partition, start_offset in partitions.items()
        ]
        if request.step == "reserve":
            config = self._metadata.config(group_id) or await self._metadata.learn_config(group_id)
            floors = await self._readers.reserve(floors, config.hold_ms)
        elif request.step == "raise":
            await self._readers.raise_floors(floors)
        else:
            await self._readers.remove(floors)
        offsets: StartOffsets = {}
        for key, _, start_offset, *_ in floors:
            offsets.setdefault(key.topic_id, {})[key.partition] = start_offset
        return ChangeReadersResponse(offsets=offsets)
