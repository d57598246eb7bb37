"""An acknowledgement that carries records: both happen, or neither."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from sharequeue.protocol.errors import checked_group_id
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import (
    AcknowledgeRequest,
    AcknowledgeResponse,
    ProducedTo,
    ProduceResponse,
    ProduceTo,
)
from sharequeue.protocol.types import MAX_RECORDS
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import APPLIED
from sharequeue_gateway.http.access.owners import Owners
from sharequeue_gateway.producing.producer import Prepared, Producer, check_partitions
from sharequeue_gateway.routing.settled_commits import SettledCommits
from sharequeue_gateway.routing.settling import Wanted
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, InvalidRequest, TooLarge

_decode: Final = msgspec.json.Decoder(ProduceResponse).decode


@dataclass(eq=False)
class SettleApi:
    """Handles acknowledgeRecords with `produce`."""

    _commits: SettledCommits
    _producer: Producer
    _metadata: Metadata
    _admission: Ceiling
    _owners: Owners

    async def acknowledge_and_produce(self, call: Call) -> Answer:
        """Raises: InvalidRecordState: a record is not held by the member; InvalidRequest; TooLarge; Throttled;
        StorageError and others, as an append."""
        size = len(call.raw)
        principal = call.caller.principal
        self._admission.check(principal, self._admission.used, size=size)
        self._admission.take(principal, size)
        try:
            return await self._admitted(call)
        finally:
            self._admission.give(principal, size)

    async def _admitted(self, call: Call) -> Answer:
        request: AcknowledgeRequest = call.request
        group_id = checked_group_id(call.path["group"])
        _check(request)
        prepared = await self._prepare(request.produce, len(call.raw))
        appends = [append for each in prepared for append in each.appends]
        check_partitions(appends)
        lock_ms = self._metadata.lock_duration_ms(group_id)
        count = len(request.acknowledgements)

        def answer(base_offsets: Sequence[int]) -> bytes:
            return _answer(count, lock_ms, prepared, base_offsets)

        key = self._owners.key_of(call, prepared[0]._replace(body=answer, plain=False), call.raw)
        owner = self._owners.of(call.caller.principal)
        wanted = [Wanted(group_id, request.member_id, request.acknowledgements)]
        call.raw = b""  # a large request is not kept until it is durable
        request.produce = []  # its values are views of the request
        result = await self._commits.append(wanted, appends, key, owner)
        return Answer(answer(result.base_offsets) if result.answer is None else result.answer)

    async def _prepare(self, produce: Sequence[ProduceTo], size: int) -> list[Prepared]:
        prepared = []
        for index, each in enumerate(produce):
            try:
                prepared.append(await self._producer.prepare(each.topic, each.records, size))
            except ApiError as error:
                error.pointers = tuple((f"/produce/{index}{pointer}", detail) for pointer, detail in error.pointers)
                raise
        return prepared


def _check(request: AcknowledgeRequest) -> None:
    if request.share_session_epoch is not None:
        raise InvalidRequest("produce must not come with share_session_epoch: send them in two requests")
    records = sum(len(each.records) for each in request.produce)
    if records > MAX_RECORDS:
        raise TooLarge(f"{records} records; one request has {MAX_RECORDS} at most", limit=MAX_RECORDS)
    named: set[str] = set()
    for index, each in enumerate(request.produce):
        if each.topic in named:
            raise InvalidRequest(
                f"the topic {each.topic!r} is named twice in produce: put its records into one entry",
                pointers=[(f"/produce/{index}/topic", "named twice")],
            )
        named.add(each.topic)


def _answer(count: int, lock_ms: int, prepared: Sequence[Prepared], base_offsets: Sequence[int]) -> bytes:
    """The body of the answer, in which everything has happened."""
    produced, position = [], 0
    for each in prepared:
        bases = base_offsets[position : position + len(each.appends)]
        position += len(each.appends)
        places = _decode(each.body(bases)).records
        produced.append(ProducedTo(topic=each.topic.name, records=places))
    results: list[AcknowledgementResult] = [APPLIED] * count
    return encode(
        AcknowledgeResponse(results=results, failed_count=0, acquisition_lock_timeout_ms=lock_ms, produced=produced)
    )
