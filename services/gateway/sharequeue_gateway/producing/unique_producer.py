"""Makes the records of requests with `unique`: a record whose key was sent before, and still counts, is not stored.

A key counts for a time; with `until_group` it counts no longer when the group has finished the record. That is asked
before the record is stored, of the state that share coordinators store. What is finished stays so. A record that
another request stores between question and answer is new, and counts.
"""

from collections.abc import Sequence

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.records import ProducedRecord, ProduceRecord, ProduceResponse, Unique
from sharequeue.protocol.messages.share_state import PartitionState, SharePartitionState
from sharequeue.protocol.types import MAX_UNIQUE_MS
from sharequeue_gateway.producing.producer import Prepared, bytes_of_key
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_gateway.producing.scheduler import digest_of, placed
from sharequeue_gateway.record_log.unique_log import Rule, UniqueLog, UniquePlace, UniqueRecord
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable


class UniqueRules:
    """Makes the rules of such requests."""

    def __init__(self, unique: UniqueLog, states: ShareStateClient) -> None:
        self._unique = unique
        self._states = states

    async def rule(self, topic_id: str, digests: Sequence[bytes], unique: Unique) -> Rule:
        """Return which keys count, of these. Raises: CoordinatorNotAvailable: what the group has finished cannot be
        learned for each of them."""
        rule = Rule(unique.within_ms or MAX_UNIQUE_MS)
        if (group_id := unique.until_group) is None:
            return rule
        kept = await self._unique.look(topic_id, digests)
        there = [row for row in kept if not row.removed]
        states = [
            SharePartitionState(group_id, topic_id, PartitionState(partition=row.partition, start_offset=row.offset))
            for row in there
        ]
        try:
            results = await self._states.results(apis.READ_STATE_SUMMARY, states) if states else []
        except ApiError as error:
            raise _unknown(group_id, error.detail) from error
        for result in results:
            if result.error_code:
                raise _unknown(group_id, result.error_message or "")
        finished = [
            row for row, result in zip(there, results, strict=True) if (result.unfinished_offset or 0) > row.offset
        ]
        return rule._replace(finished=[row for row in kept if row.removed] + finished)


def _unknown(group_id: str, cause: str) -> ApiError:
    return CoordinatorNotAvailable(
        f"nothing was stored: what the group {group_id} has finished cannot be learned: {cause}", definite=True
    )


def digests_of(records: Sequence[ProduceRecord]) -> list[bytes]:
    """The digest of each key. Raises: InvalidRequest (422): a record has none."""
    found = []
    for index, record in enumerate(records):
        if (key := bytes_of_key(record)) is None:
            raise unfit(f"/records/{index}/key", "with unique, each record needs a key")
        found.append(digest_of(key))
    return found


def unique_records(digests: Sequence[bytes], prepared: Prepared) -> list[UniqueRecord]:
    """The records, in the order of the request. `digests`: of their keys."""
    places = placed(len(digests), prepared)
    return [UniqueRecord(partition, digest, tail) for digest, (partition, tail) in zip(digests, places, strict=True)]


def answer_of(places: Sequence[UniquePlace]) -> bytes:
    return encode(
        ProduceResponse(records=[ProducedRecord(place.partition, place.offset, place.duplicate) for place in places])
    )
