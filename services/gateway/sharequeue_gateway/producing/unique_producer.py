"""Produce requests with `unique`: a record whose key was sent before, and still counts, is not appended again.

A key counts for a time; with `until_group` it counts no longer when the group has finished the record. That is asked
before the append, of the state that share coordinators store. What is finished stays so. A record that another request
appends between question and append is new, and counts.
"""

from collections.abc import Sequence

from sharequeue.ownership.share_state_client import Entry, ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.records import ProducedRecord, ProduceRecord, ProduceResponse, Unique
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import MAX_UNIQUE_MS, SharePartitionKey
from sharequeue_gateway.producing.producer import LARGE_BYTES, Producer, aside, bytes_of_key, key_of
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_gateway.producing.scheduler import digest_of, placed
from sharequeue_gateway.record_log.unique_log import Kept, Rule, UniqueLog, UniquePlace, UniqueRecord
from sharequeue_http.answer import Answer
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable


class UniqueProducer:
    """Appends the records of such requests. Any other request passes it by."""

    def __init__(self, producer: Producer, unique: UniqueLog, states: ShareStateClient) -> None:
        self._producer = producer
        self._unique = unique
        self._states = states

    async def produce(
        self,
        topic_name: str,
        records: Sequence[ProduceRecord],
        unique: Unique,
        body: bytes,
        path: str,
        idempotency_key: str | None,
        retention: str | None,
        principal: str,
    ) -> Answer:
        """Append the records whose keys are new, all or none. Args, Raises: as `Producer.produce` and `_finished`."""
        prepared = await self._producer.prepare(topic_name, records, len(body))
        digests = await aside(len(body) > LARGE_BYTES, _digests, records)
        new = [
            UniqueRecord(partition, digest, tail)
            for digest, (partition, tail) in zip(digests, placed(len(records), prepared), strict=True)
        ]
        topic_id = prepared.topic.topic_id
        key = key_of(principal, prepared, path, idempotency_key, retention, digest_of(body))
        timestamp_ms = max(append.max_timestamp_ms for append in prepared.appends)
        finished = await self._finished(topic_id, digests, unique.until_group) if unique.until_group else []
        rule = Rule(unique.within_ms or MAX_UNIQUE_MS, finished)
        return Answer(await self._unique.append(topic_id, new, rule, timestamp_ms, key, _answer))

    async def _finished(self, topic_id: str, digests: Sequence[bytes], group_id: str) -> list[Kept]:
        """Return which rows of these keys are of records that a group has finished durably.

        Raises: CoordinatorNotAvailable: that cannot be learned for each of them.
        """
        kept = await self._unique.look(topic_id, digests)
        there = [row for row in kept if not row.removed]
        entries = [
            Entry(
                SharePartitionKey(group_id, topic_id, row.partition),
                PartitionState(partition=row.partition, start_offset=row.offset),
            )
            for row in there
        ]
        try:
            results = await self._states.results(apis.READ_STATE_SUMMARY, group_id, entries) if entries else []
        except ApiError as error:
            raise _unknown(group_id, error.detail) from error
        for result in results:
            if result.error_code:
                raise _unknown(group_id, result.error_message or "")
        return [row for row in kept if row.removed] + [
            row for row, result in zip(there, results, strict=True) if (result.unfinished_offset or 0) > row.offset
        ]


def _unknown(group_id: str, cause: str) -> ApiError:
    return CoordinatorNotAvailable(
        f"nothing was appended: what the group {group_id} has finished cannot be learned: {cause}", definite=True
    )


def _digests(records: Sequence[ProduceRecord]) -> list[bytes]:
    """The digest of each key. Raises: InvalidRequest (422): a record has none."""
    found = []
    for index, record in enumerate(records):
        if (key := bytes_of_key(record)) is None:
            raise unfit(f"/records/{index}/key", "with unique, each record needs a key")
        found.append(digest_of(key))
    return found


def _answer(places: Sequence[UniquePlace]) -> bytes:
    return encode(
        ProduceResponse(records=[ProducedRecord(place.partition, place.offset, place.duplicate) for place in places])
    )
