"""Topics and their partitions: calls of a gateway, which forwards those about a topic itself to the group
coordinator."""

from functools import partial

from sharequeue.protocol import capabilities
from sharequeue.protocol.access.columns import Access, Shown, always, listed, topic, topics
from sharequeue.protocol.errors import TOPIC_ERRORS
from sharequeue.protocol.messages import topics as messages
from sharequeue.protocol.messages.compaction import (
    ListRecordBatchesQuery,
    RecordBatchList,
    ReplacedBatches,
    ReplaceRecordBatchesRequest,
)
from sharequeue_http.forms.api import Api

_DELETE = Access((topic("DELETE"),), audited=always)

_call = partial(Api, tag="Topics")
CREATE_TOPIC = _call(
    "createTopic",
    "POST /v1/topics",
    "Create a topic.",
    description="Producing to a missing topic creates it too, with one partition and the default settings.",
    request=messages.CreateTopicRequest,
    response=messages.Topic,
    status=201,
    errors=("INVALID_TOPIC_EXCEPTION", "INVALID_PARTITIONS", "INVALID_CONFIG", "TOPIC_ALREADY_EXISTS"),
    access=Access((topics("CREATE", lambda _, request: (request.name,)),), audited=always),
    needs=capabilities.in_topic,
)
LIST_TOPICS = _call(
    "listTopics",
    "GET /v1/topics",
    "List topics by name, a page at a time.",
    description="Dead-letter topics (`dlq.<group>`) are among them.",
    request=messages.ListTopicsQuery,
    response=messages.TopicList,
    access=Access((listed("TOPIC"),), (Shown("topics", "TOPIC", "name"),)),
)
DESCRIBE_TOPIC = _call(
    "describeTopic",
    "GET /v1/topics/{topic}",
    "Describe a topic: settings and the offsets of its partitions.",
    description="The offsets are those at the time of the call, whichever gateway answers.",
    response=messages.TopicDescription,
    errors=TOPIC_ERRORS,
    access=Access((topic("DESCRIBE"),)),
)
UPDATE_TOPIC = _call(
    "updateTopic",
    "PATCH /v1/topics/{topic}",
    "Add partitions or change settings.",
    description="New partitions begin empty. Records with a key go to other partitions from then on, so the order within a "
    "key is broken once.",
    request=messages.UpdateTopicRequest,
    response=messages.Topic,
    errors=(*TOPIC_ERRORS, "INVALID_PARTITIONS", "INVALID_CONFIG"),
    idempotent=True,
    access=Access((topic("ALTER"),), audited=always),
    needs=capabilities.in_topic,
)
DELETE_TOPIC = _call(
    "deleteTopic",
    "DELETE /v1/topics/{topic}",
    "Delete a topic, its records and every group's state for it.",
    description="The records and the groups' state go soon after the answer. A topic that is created again under the name "
    "has another id and begins at offset 0.",
    status=204,
    errors=TOPIC_ERRORS,
    access=_DELETE,
)
DELETE_RECORDS = _call(
    "deleteRecords",
    "POST /v1/topics/{topic}/delete-records",
    "Delete records below an offset; -1 is the log end. Every gateway knows it within a second.",
    description="Groups that have not finished the deleted records continue behind them. Disk space is free when the batches "
    "are purged.",
    request=messages.DeleteRecordsRequest,
    response=messages.DeletedRecords,
    errors=(*TOPIC_ERRORS, "UNKNOWN_TOPIC_ID", "OFFSET_OUT_OF_RANGE"),
    idempotent=True,
    access=_DELETE,
)
LIST_RECORD_BATCHES = _call(
    "listRecordBatches",
    "GET /v1/topics/{topic}/partitions/{partition}/batches",
    "List the record batches of a partition: their offsets, how many records each holds, its generation.",
    description="For compaction: it reads no records. A batch that compaction emptied is listed with `record_count` 0.",
    request=ListRecordBatchesQuery,
    response=RecordBatchList,
    errors=(*TOPIC_ERRORS, "OFFSET_OUT_OF_RANGE"),
    access=Access((topic("READ"),)),
    needs=capabilities.always(capabilities.Capability.REPLACE_RECORD_BATCHES),
)
REPLACE_RECORD_BATCHES = _call(
    "replaceRecordBatches",
    "POST /v1/topics/{topic}/partitions/{partition}/replace-batches",
    "Compact: take records out of batches of a topic with cleanup.policy=compact, all or none.",
    description="Offsets stay, so removed records leave gaps. Nothing changes at or above the last stable offset, nor in "
    "the newest batch. A repeat of a finished request is answered like the first.",
    request=ReplaceRecordBatchesRequest,
    response=ReplacedBatches,
    errors=(*TOPIC_ERRORS, "UNKNOWN_TOPIC_ID", "OFFSET_OUT_OF_RANGE", "INVALID_UPDATE_VERSION", "MESSAGE_TOO_LARGE"),
    idempotent=True,
    access=_DELETE,
    needs=capabilities.always(capabilities.Capability.REPLACE_RECORD_BATCHES),
)
