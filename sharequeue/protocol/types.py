"""The basic types of the protocol: states, acknowledgement types, state batches, names and limits. Source: KIP-932."""

import functools
import re
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from sharequeue_http.forms.codec import Utf8Text

Int32 = Annotated[int, msgspec.Meta(extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, msgspec.Meta(extra_json_schema={"format": "int64"})]


class DeliveryState(IntEnum):
    """State of a record for one group. ACQUIRED is never persisted; ACKNOWLEDGED and ARCHIVED are terminal."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


TopicIdPartition = tuple[str, int]
"""A partition of the log: topic id and index."""


class OffsetRange(NamedTuple):
    """Offsets from the first to the last, both included."""

    first_offset: int
    last_offset: int


class AcknowledgeType(IntEnum):
    """The ways in which a consumer settles a record that it holds. The numbers are Kafka's; JSON has the names in lower
    case."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


ACKNOWLEDGE_TYPES: Final = {acknowledge_type.name.lower(): acknowledge_type for acknowledge_type in AcknowledgeType}


class SettledBatch(NamedTuple):
    """A range that a transaction settles: one type for one delivery of first..last, which `member_id` held.

    The log stores it as a JSON array until it is applied. New fields come last and have defaults.
    """

    first_offset: int
    last_offset: int
    type: AcknowledgeType
    member_id: str
    delivery_count: int
    reason: str | None = None
    delay_ms: int | None = None
    begun: bool = True


class AcquireMode(StrEnum):
    """`record_limit` never acquires more than max_records; `batch_optimized` acquires whole batches. Source: KIP-1206."""  # noqa: W505

    BATCH_OPTIMIZED = "batch_optimized"
    RECORD_LIMIT = "record_limit"


class SharePartitionKey(NamedTuple):
    """One share-partition: a group's view of one partition. `topic_id` is the canonical text of a uuid."""

    group_id: str
    topic_id: str
    partition: int


class OffsetsAt(NamedTuple):
    """Contiguous offsets of one partition, `last_offset` inclusive."""

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int


class RestoredLock(NamedTuple):
    """An acquisition lock that an earlier leader left. Locks may overlap and may be stale.

    `lock_duration_ms`: its length. `forgiven`: how many of its deliveries were never begun.
    """

    first_offset: int
    last_offset: int
    member_id: str
    delivery_count: int
    deadline_ms: int
    lock_duration_ms: int
    forgiven: int = 0


class LeftLocks(NamedTuple):
    """The locks in the memory of an earlier leader, and the state epoch under which it led."""

    state_epoch: int
    locks: Sequence[RestoredLock]


class Reason(Utf8Text):
    """The cause for which a client released or rejected records. A request may have one for each of thousands of
    ranges."""

    __slots__ = ()
    MOST_CHARACTERS = 1024


class GivenReason(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A reason that a client gave, and when."""

    reason: Annotated[Reason, msgspec.Meta(extra_json_schema={"type": "string"})]
    """The reason that a client gave."""
    at_ms: Int64 = 0
    """When it was given, in milliseconds since the epoch, rounded down to 100 ms. Absent if that is not known."""


KEPT_REASONS: Final = 5
"""How many reasons are kept of a record: the last ones."""
REASON_STEP_MS: Final = 100
"""The times of reasons are whole steps, so that equal reasons which are given almost together stay one range."""

AnyReason = TypeVar("AnyReason")


def with_reason(earlier: tuple[AnyReason, ...], reason: AnyReason) -> tuple[AnyReason, ...]:
    """The reasons of earlier deliveries, the oldest first, when the delivery of a further one has become an earlier
    one."""
    return (*earlier, reason)[-KEPT_REASONS:]


UNINITIALIZED_START_OFFSET: Final = -1
UNINITIALIZED_DELIVERY_COMPLETE_COUNT: Final = -1

MAX_MEMBER_ID_LENGTH: Final = 36
MAX_FETCH_ID_LENGTH: Final = 64
MAX_REASON_LENGTH: Final = Reason.MOST_CHARACTERS
MAX_IDEMPOTENCY_KEY_LENGTH: Final = 128
MAX_IDEMPOTENCY_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""The longest time for which a client may have an idempotency key remembered."""
MAX_DELAY_MS: Final = 12 * 3600 * 1000
MIN_LOCK_DURATION_MS: Final = 1000
MAX_LOCK_DURATION_MS: Final = 12 * 3600 * 1000
MAX_STREAM_WINDOW: Final = 2000
EVENT_ID: Final = r"^([0-9a-f]{16})\.(0|[1-9][0-9]{0,15})\Z"
"""The id of an event of a stream: the stream, and the position in it."""
MAX_WAIT_MS: Final = 30_000
DEFAULT_MAX_WAIT_MS: Final = 10_000
MAX_NAME_LENGTH: Final = 249
MAX_PAGE_SIZE: Final = 10_000
MAX_PARTITIONS: Final = 10_000
"""Of a topic, unless a setting of the service says otherwise."""
MAX_TOPICS_NAMED: Final = 1000
"""In one request, and by one member of a group."""
MAX_PARTITIONS_NAMED: Final = 20_000
"""In one request, over all its topics. A topic that is named without partitions counts with all its partitions."""
MAX_GROUP_NAMES: Final = 50_000
"""Subscribed names of all members of a group together; a name counts once for each member."""
MAX_GROUP_PARTITIONS: Final = 50_000
"""Partitions of all topics that the members of a group subscribe to."""
MAX_ACKNOWLEDGEMENTS: Final = 1000
"""In one call. An acknowledgement with `types` counts as many times as it has types."""
MAX_SETTLED: Final = 10_000
"""As MAX_ACKNOWLEDGEMENTS, in one commit of a transaction."""
MAX_RECORDS: Final = 10_000
"""In one produce request."""
MAX_SCHEDULE_MS: Final = 3653 * 24 * 3600 * 1000
"""How far ahead a record may be scheduled: ten years."""
MAX_UNIQUE_MS: Final = 30 * 24 * 3600 * 1000
"""How long a key of `unique` may count: 30 days."""
MAX_SCHEDULES: Final = 1000
"""Schedules of one topic."""
MAX_CANCELLED: Final = 1000
"""Scheduled records that one call cancels."""
MAX_ERRORS: Final = 50
"""Failed partitions that one answer lists; further ones are only counted."""
MAX_HEADERS: Final = 1000
MAX_HEADERS_BYTES: Final = 256 * 1024
"""Of one record, as JSON."""
MAX_CONFIGS: Final = 100
"""Settings in one request."""
MAX_INT64: Final = 2**63 - 1
MAX_INT32: Final = 2**31 - 1

PLAIN_TEXT: Final = r"^[^\x00-\x1f\x7f-\x9f]*\Z"
"""Text without control characters, which neither PostgreSQL nor logs can hold."""
GROUP_ID: Final = r"^[^/\x00-\x1f\x7f-\x9f]+\Z"
TOPIC_NAME: Final = r"^[a-zA-Z0-9._-]{1,249}\Z"
_TOPIC_NAME: Final = re.compile(TOPIC_NAME)
_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def topic_name_fault(name: str) -> str | None:
    """The reason why a client cannot create a topic `name`, or None if it can."""
    if not _TOPIC_NAME.fullmatch(name):
        return "a topic name has 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'"
    if name in (".", ".."):
        return "a topic cannot be named '.' or '..'"
    if name.startswith("__"):
        return "topic names that begin with '__' are reserved"
    return None


@functools.lru_cache(maxsize=1000)
def group_id_fault(group_id: str) -> str | None:
    """The reason why `group_id` cannot name a group, or None if it can."""
    if not 1 <= len(group_id) <= MAX_NAME_LENGTH:
        return "a group id has 1 to 249 characters"
    if "/" in group_id or _CONTROL_CHARACTER.search(group_id):
        return "a group id holds no '/' and no control characters"
    if "\ufffd" in group_id:
        return "a group id in a path must be percent-encoded UTF-8"
    if group_id in (".", ".."):
        return "a group cannot be named '.' or '..', because clients remove these from URLs"
    return None
