"""Produce requests with `unique`: a record whose key was sent before, within a time, is not appended again."""

import hashlib
from collections.abc import Sequence

from sharequeue.protocol.messages.records import ProducedRecord, ProduceRecord, ProduceResponse
from sharequeue_gateway.producing.producer import LARGE_BYTES, Producer, aside, bytes_of_key, key_of
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_gateway.producing.scheduler import digest_of, placed
from sharequeue_gateway.record_log.unique_log import UniqueLog, UniquePlace, UniqueRecord
from sharequeue_http.answer import Answer
from sharequeue_http.forms.codec import encode


class UniqueProducer:
    """Appends the records of such requests. Any other request passes it by."""

    def __init__(self, producer: Producer, unique: UniqueLog) -> None:
        self._producer = producer
        self._unique = unique

    async def produce(
        self,
        topic_name: str,
        records: Sequence[ProduceRecord],
        within_ms: int,
        body: bytes,
        path: str,
        idempotency_key: str | None,
        retention: str | None,
        principal: str,
    ) -> Answer:
        """Append the records whose keys are new, all or none. Args, Raises: as `Producer.produce`."""
        digests = await aside(len(body) > LARGE_BYTES, _digests, records)
        prepared = await self._producer.prepare(topic_name, records, len(body))
        unique = [
            UniqueRecord(partition, digest, tail)
            for digest, (partition, tail) in zip(digests, placed(len(records), prepared), strict=True)
        ]
        key = key_of(principal, prepared, path, idempotency_key, retention, hashlib.sha256(body).digest())
        timestamp_ms = max(append.max_timestamp_ms for append in prepared.appends)
        return Answer(await self._unique.append(prepared.topic.topic_id, unique, timestamp_ms, within_ms, key, _answer))


def _digests(records: Sequence[ProduceRecord]) -> list[bytes]:
    """The digest of each key. Raises: InvalidRequest (422): a record has none."""
    found = []
    for index, record in enumerate(records):
        if record.key and not bytes(record.key).startswith((b'"', b"null")):
            raise unfit(f"/records/{index}/key", "the key must be a string")
        if (key := bytes_of_key(record)) is None:
            raise unfit(f"/records/{index}/key", "with unique, each record needs a key")
        found.append(digest_of(key))
    return found


def _answer(places: Sequence[UniquePlace]) -> bytes:
    return encode(ProduceResponse(records=[ProducedRecord(**place._asdict()) for place in places]))
