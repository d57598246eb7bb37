"""Produce, fetch and acknowledge records, and read them by offset: calls of a gateway."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from sharequeue.protocol import bounds, capabilities
from sharequeue.protocol.access.columns import Access, Need, group, topic, topics
from sharequeue.protocol.errors import GROUP_ERRORS, TOPIC_ERRORS
from sharequeue.protocol.messages import records as messages
from sharequeue_http.forms.api import Api

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
RECORD_RUNS: Final = "application/vnd.sharequeue.record-runs.v1"
"""See `sharequeue.protocol.record_runs`."""

_SESSION_ERRORS = ("SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH")
IDEMPOTENCY_KEY = ("Idempotency-Key", "1 to 128 characters; a repeat within 24 hours gets the first answer again")
IDEMPOTENCY_RETENTION = (
    "Idempotency-Retention-Ms",
    "how long the key is remembered, up to 604800000 (7 days); each repeat must have the same value",
)
_TRANSACTION_ID = (
    "Transaction-Id",
    "the open transaction that the records belong to; the answer repeats it",
)


def _fetched(_: Mapping[str, str], request: messages.FetchRequest) -> Iterable[str]:
    """Topics of a fetch, each of which is served or refused alone; of its acknowledgements too, unless `atomic`."""
    named: Sequence[str] = request.topics or ()
    if request.topic_partitions:
        named = [*named, *dict.fromkeys(each.topic for each in request.topic_partitions)]
    if request.acknowledgements and not request.atomic:
        named = [*named, *dict.fromkeys(each.topic for each in request.acknowledgements)]
    return named


def _acknowledges(request: messages.FetchRequest) -> bool:
    """Return whether a fetch ends work. From then on it acquires nothing."""
    if request.acknowledgements:
        request.max_records = 0
    return bool(request.acknowledgements)


def _fetched_together(_: Mapping[str, str], request: messages.FetchRequest) -> Iterable[str]:
    return {each.topic for each in request.acknowledgements} if request.atomic else ()


def _acknowledged(_: Mapping[str, str], request: messages.AcknowledgeRequest) -> Iterable[str]:
    return () if request.atomic or request.produce else {each.topic for each in request.acknowledgements}


def _acknowledged_together(_: Mapping[str, str], request: messages.AcknowledgeRequest) -> Iterable[str]:
    return {each.topic for each in request.acknowledgements} if request.atomic or request.produce else ()


def _produced(_: Mapping[str, str], request: messages.AcknowledgeRequest) -> Iterable[str]:
    return [each.topic for each in request.produce]


def _asked_about(_: Mapping[str, str], request: messages.ProduceRequest) -> Iterable[str]:
    unique = request.unique
    return () if unique is None or unique.until_group is None else (unique.until_group,)


def _streamed(_: Mapping[str, str], query: messages.StreamQuery) -> Iterable[str]:
    return query.topic.split(",")


UNIQUE_ACCESS: Final = Access((topic("WRITE"), Need("DESCRIBE", "GROUP", _asked_about)), creates="topic")
FETCH_ACCESS: Final = Access(
    (
        group("READ"),
        topics("READ", _fetched_together),
        topics("READ", _fetched, each=True),
    ),
    goes_on=_acknowledges,
)
ACKNOWLEDGE_ACCESS: Final = Access(
    (
        group("READ"),
        topics("READ", _acknowledged_together),
        topics("WRITE", _produced),
        topics("READ", _acknowledged, each=True),
    ),
    creates=_produced,
    goes_on=lambda request: not request.produce,
)

_TRANSACTION_ERRORS = ("INVALID_TXN_STATE", "PRODUCER_FENCED", "TRANSACTIONAL_ID_NOT_FOUND")

_call = partial(Api, tag="Records")
_produces = partial(
    _call,
    errors=(*TOPIC_ERRORS, *_TRANSACTION_ERRORS, "MESSAGE_TOO_LARGE", "KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"),
    headers=(IDEMPOTENCY_KEY, IDEMPOTENCY_RETENTION, _TRANSACTION_ID),
    large=True,
    access=Access((topic("WRITE"),), creates="topic"),
    needs=capabilities.in_produce,
)
PRODUCE_RECORDS = _produces(
    "produceRecords",
    "POST /v1/topics/{topic}/records",
    "Append records, all or none; answered when they are durable.",
    description="A missing topic is created with one partition, unless the service says otherwise. After an answer with "
    "`definite` false, or none, repeat the request with the same `Idempotency-Key`: the records are stored "
    "once. One request appends to at most 1,000 partitions.",
    request=messages.ProduceRequest,
    response=messages.ProduceResponse,
    check_body=bounds.check_records,
    access=UNIQUE_ACCESS,
)
PRODUCE_ARROW = _produces(
    "produceArrow",
    "POST /v1/topics/{topic}/records/arrow",
    "Append records that are rows of an Arrow stream, all or none; answered when they are durable.",
    description="Like produceRecords, for bulk: the cost depends on bytes, not on the number of records. Columns: `value` "
    "(string or binary; null is a tombstone), and optionally `key` (string or binary), `value_is_json` (bool; true: `value` is JSON, kept byte "
    "for byte), `headers` (map of string to string), `partition` and `timestamp_ms` (integers). A string becomes "
    "`key` or `value` of a JSON record, and a binary `key_base64` or `value_base64`. One request has 1 to 10,000 rows. "
    "Its buffers may be compressed with LZ4, and after decompression have at most `max_request_bytes`.",
    response=messages.ProducedBatches,
    raw_body=True,
    media_type=ARROW_STREAM,
)
PRODUCE_RAW_RECORD = _produces(
    "produceRawRecord",
    "POST /v1/topics/{topic}/records/raw",
    "Append one record: the body is its value, of any content type; it is read back as value_base64.",
    description="The header `Content-Type` becomes the record's header `content-type`, and each header "
    "`Record-Header-<name>` the record's header `<name>`, in lower case. No body is an empty value.",
    response=messages.ProduceResponse,
    headers=(
        IDEMPOTENCY_KEY,
        IDEMPOTENCY_RETENTION,
        _TRANSACTION_ID,
        ("Record-Key", "the record's key as text; records of one key go to one partition"),
        ("Record-Partition", "the partition; without it the key's hash or the next partition in turn"),
    ),
    raw_body=True,
)
FETCH_RECORDS = _call(
    "fetchRecords",
    "POST /v1/share-groups/{group}/fetch",
    "Acquire records and read them; acknowledges earlier ones too if it carries any. Waits up to max_wait_ms.",
    description="The records are locked for the member until it acknowledges them, or until the lock ends. A record comes "
    "again after a release or the end of its lock, at most `share.delivery.count.limit` times. A client that "
    "disconnects while it waits acquires nothing. Set the time-out of the client above `max_wait_ms`.",
    request=messages.FetchRequest,
    response=messages.FetchResponse,
    errors=(*GROUP_ERRORS, *TOPIC_ERRORS, *_SESSION_ERRORS, "SHARE_SESSION_LIMIT_REACHED"),
    access=FETCH_ACCESS,
)
STREAM_RECORDS = _call(
    "streamRecords",
    "GET /v1/share-groups/{group}/stream",
    "Acquire records as they come, as Server-Sent Events.",
    description="Send `Accept: text/event-stream`. An event without a name is a FetchResponse in JSON. Acknowledge as "
    "after a fetch; nothing renews the locks by itself. After a lost connection, open the stream again at any gateway with "
    "the last `id` as `Last-Event-ID`: the records behind it that are held come again, with the same `delivery_count`. "
    "`problem`: nothing can be acquired now; the stream continues. `closed`: it ends; open it again if its data are "
    "`retriable`. `replaced`: it ends, because the member has opened it elsewhere; do not open it again. The data of the "
    "first two are a Problem. docs/streams.md has the details.",
    request=messages.StreamQuery,
    response=messages.FetchResponse,
    errors=(*GROUP_ERRORS, *TOPIC_ERRORS),
    headers=(("Last-Event-ID", "the `id` of the last event that the client has, to continue its stream"),),
    unsafe=True,
    streams=True,
    access=Access((group("READ"), topics("READ", _streamed))),
)
ACKNOWLEDGE_RECORDS = _call(
    "acknowledgeRecords",
    "POST /v1/share-groups/{group}/acknowledge",
    "Accept, release, reject or renew records; answered when the outcome is durable.",
    description="An entry of a fetch's `batches` with a `type` added is an acknowledgement. If all acknowledgements "
    "failed, the answer is a Problem with `results`. Send an `unknown` one again: with its `delivery_count` a "
    "repeat is recognised.",
    request=messages.AcknowledgeRequest,
    response=messages.AcknowledgeResponse,
    errors=(
        *GROUP_ERRORS,
        *_SESSION_ERRORS,
        "UNKNOWN_TOPIC_ID",
        "INVALID_RECORD_STATE",
        "CONCURRENT_TRANSACTIONS",
        "MESSAGE_TOO_LARGE",
        "KAFKA_STORAGE_ERROR",
        "REQUEST_TIMED_OUT",
    ),
    headers=(IDEMPOTENCY_KEY, IDEMPOTENCY_RETENTION),
    check_body=bounds.check_values,
    large=True,
    access=ACKNOWLEDGE_ACCESS,
    needs=capabilities.in_acknowledge,
)
READ_RECORDS = _call(
    "readRecords",
    "GET /v1/topics/{topic}/partitions/{partition}/records",
    "Read records by offset, without a group and without locks.",
    description="It shows all records, also those that groups have finished. With `Accept: application/vnd.apache.arrow.stream` "
    "alone, or preferred to JSON, the answer is an Arrow stream; with `Accept: application/vnd.sharequeue.record-runs.v1` it is "
    "the records as stored (docs/api.md).",
    request=messages.ReadRecordsQuery,
    response=messages.RecordPage,
    errors=(*TOPIC_ERRORS, "OFFSET_OUT_OF_RANGE"),
    access=Access((topic("READ"),)),
)
