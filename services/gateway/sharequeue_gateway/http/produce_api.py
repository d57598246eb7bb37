"""The calls that produce records."""

from dataclasses import dataclass
from typing import Final

import msgspec

from sharequeue.protocol.apis import ARROW_STREAM
from sharequeue.protocol.messages.leaders import AppendHereResponse
from sharequeue.protocol.messages.records import ProduceRequest, Unique
from sharequeue.protocol.types import MAX_INT32
from sharequeue_gateway.http.access.owners import Owners
from sharequeue_gateway.http.answers import arrow_answer
from sharequeue_gateway.producing.arrow_producer import ArrowProducer
from sharequeue_gateway.producing.producer import LARGE_BYTES, Producer, aside
from sharequeue_gateway.producing.record_tails import raw_record
from sharequeue_gateway.producing.unique_producer import UniqueRules, answer_of, digests_of, unique_records
from sharequeue_gateway.record_log.owner import ANYBODY
from sharequeue_gateway.record_log.unique_log import UniqueLog
from sharequeue_gateway.routing.appends import RoutedAppends
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.forms.mistakes import quoted
from sharequeue_http.forms.texts import whole_number

RECORD_HEADER_PREFIX: Final = "record-header-"


@dataclass(eq=False)
class ProduceApi:
    """The handlers of produceRecords, produceArrow, produceRawRecord and appendHere."""

    _producer: Producer
    _arrow_producer: ArrowProducer
    _unique: UniqueLog
    _rules: UniqueRules
    _routed: RoutedAppends
    _owners: Owners

    async def produce_records(self, call: Call) -> Answer:
        request: ProduceRequest = call.request
        if request.unique is not None:
            return await self._produce_unique(call, request, request.unique)
        producing = self._producer.produce(
            call.path["topic"],
            request.records,
            call.raw,
            call.exchange.path,
            call.header("idempotency-key"),
            call.header("idempotency-retention-ms"),
            transaction_id=call.header("transaction-id"),
            owner=self._owners.of(principal) if (principal := call.caller.principal) else ANYBODY,
        )
        call.raw, call.request = b"", None  # a large request is not kept until it is durable
        del request
        return await producing

    async def _produce_unique(self, call: Call, request: ProduceRequest, unique: Unique) -> Answer:
        if call.header("transaction-id") is not None:
            raise InvalidRequest(
                "unique must not come with Transaction-Id: its records would be unique before their commit",
                pointers=[("/unique", "with Transaction-Id")],
            )
        records, body = request.records, call.raw
        prepared = await self._producer.prepare(call.path["topic"], records, len(body))
        digests = await aside(len(body) > LARGE_BYTES, digests_of, records)
        key = self._owners.key_of(call, prepared, body)
        topic_id, timestamp_ms = prepared.topic.topic_id, max(append.max_timestamp_ms for append in prepared.appends)
        rule = await self._rules.rule(topic_id, digests, unique)
        new = unique_records(digests, prepared)
        return Answer(await self._unique.append(topic_id, new, rule, timestamp_ms, key, answer_of))

    async def produce_arrow(self, call: Call) -> Answer:
        media_type = (call.header("content-type") or "").partition(";")[0].strip().lower()
        if media_type != ARROW_STREAM:
            raise InvalidRequest(
                f"send an Arrow stream with the header Content-Type: {ARROW_STREAM}, not {quoted(media_type)!r}",
                status=415,
            )
        if not arrow_answer.AVAILABLE:
            raise InvalidRequest(
                "this gateway takes no Arrow: send JSON to /records, or install it with the extra [arrow]", status=415
            )
        producing = self._arrow_producer.produce(
            call.path["topic"],
            call.raw,
            call.exchange.path,
            call.header("idempotency-key"),
            call.header("idempotency-retention-ms"),
            call.header("transaction-id"),
            self._owners.of(principal) if (principal := call.caller.principal) else ANYBODY,
        )
        call.raw = b""  # a large request is not kept until it is durable
        return await producing

    async def produce_raw_record(self, call: Call) -> Answer:
        headers = {}
        for name, value in call.exchange.headers:
            text = name.decode("latin-1")
            if text.startswith(RECORD_HEADER_PREFIX):
                headers[text.removeprefix(RECORD_HEADER_PREFIX)] = _utf8(text, value)
        content_type = call.header("content-type")
        if content_type:
            headers["content-type"] = content_type
        partition = call.header("record-partition")
        number = None if partition is None else whole_number(partition, MAX_INT32)
        if number is None and partition is not None:
            raise InvalidRequest(f"Record-Partition must be a partition's number, not {quoted(partition)!r}")
        key = call.header("record-key")
        key = None if key is None else _utf8("record-key", key.encode("latin-1"))
        record = raw_record(key, number, headers)
        producing = self._producer.produce(
            call.path["topic"],
            [record],
            msgspec.json.encode([key, partition, headers]),
            call.exchange.path,
            call.header("idempotency-key"),
            call.header("idempotency-retention-ms"),
            call.raw,
            transaction_id=call.header("transaction-id"),
            owner=self._owners.of(principal) if (principal := call.caller.principal) else ANYBODY,
        )
        call.raw = b""  # a large request is not kept until it is durable
        return await producing

    async def append_here(self, call: Call) -> AppendHereResponse:
        appending = self._routed.append_here(call.request)
        call.raw, call.request = b"", None
        return await appending


def _utf8(name: str, value: bytes) -> str:
    """The text of a header that becomes part of a record. Raises: InvalidRequest: it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"the header {name} must be UTF-8", status=400) from None
