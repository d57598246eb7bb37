"""The types of the fields, with their bounds, and what all requests and answers have in common.

A field whose bounds are checked later, where the service can say more, has them in the schema alone.
"""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from msgspec import Meta, Raw, Struct

from sharequeue.protocol.types import (
    ACKNOWLEDGE_TYPES,
    GROUP_ID,
    MAX_CONFIGS,
    MAX_FETCH_ID_LENGTH,
    MAX_HEADERS,
    MAX_INT32,
    MAX_INT64,
    MAX_LOCK_DURATION_MS,
    MAX_MEMBER_ID_LENGTH,
    MAX_NAME_LENGTH,
    MAX_PAGE_SIZE,
    MAX_PARTITIONS,
    MAX_PARTITIONS_NAMED,
    MAX_REASON_LENGTH,
    MAX_SETTLED,
    MAX_TOPICS_NAMED,
    MIN_LOCK_DURATION_MS,
    PLAIN_TEXT,
    TOPIC_NAME,
    Int32,
    Reason,
)
from sharequeue_http.forms.mistakes import MUST


def at_most(entries: int) -> Meta:
    """Bound a list in an answer. The OpenAPI document shows the bound; nothing checks it, as no answer has more."""
    return Meta(extra_json_schema={"maxItems": entries})


def word(name: str, meaning: str, words: Iterable[str]) -> Meta:
    """A text that is one of `words`. The document has it as an enum of that name."""
    return Meta(title=name, description=meaning, extra_json_schema={"enum": list(words)})


def open_word(name: str, meaning: str, words: Iterable[str]) -> Meta:
    """A text of an answer that is one of `words` now; a later version may have more. The document names it."""
    return Meta(title=name, description=meaning, extra_json_schema={"x-extensible-enum": list(words)})


Offset = Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]

PartitionIndex = Annotated[int, Meta(ge=0, le=MAX_INT32, extra_json_schema={"format": "int32"})]

PartitionNumber = Annotated[PartitionIndex, Meta(description="The number of the partition, from 0.")]

TimestampMs = Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]

NonNegative = Annotated[int, Meta(ge=0, le=MAX_INT32, extra_json_schema={"format": "int32"})]

Count = Int32

AnyInt64 = Annotated[int, Meta(extra_json_schema={"format": "int64"})]
"""An int64 of an answer that may be −1."""

AtLeastOne = Annotated[int, Meta(ge=1, le=MAX_INT32, extra_json_schema={"format": "int32"})]

CheckedInt32 = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 0, "maximum": MAX_INT32})]

LockDurationMs = Annotated[
    int,
    Meta(extra_json_schema={"format": "int32", "minimum": MIN_LOCK_DURATION_MS, "maximum": MAX_LOCK_DURATION_MS}),
]
"""Checked against the bounds of `share.record.lock.duration.ms` in force: INVALID_REQUEST."""

CheckedInt64 = Annotated[int, Meta(extra_json_schema={"format": "int64", "minimum": 0, "maximum": MAX_INT64})]
"""The bounds are checked with the rest of an acknowledgement, so that only a wrong one fails."""

PlainText = Annotated[str, Meta(pattern=PLAIN_TEXT, extra={MUST: "not hold control characters"})]

TopicName = Annotated[
    str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_NAME_LENGTH, "pattern": TOPIC_NAME})
]
"""Checked where topics are looked up: INVALID_TOPIC_EXCEPTION."""

EnforcedTopicName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        pattern=TOPIC_NAME,
        extra={MUST: "have 1 to 249 characters of a-z, A-Z, 0-9, `.`, `_` and `-`"},
    ),
]
"""For calls that do not look the topic up."""

GroupId = Annotated[
    str,
    Meta(
        min_length=1, max_length=MAX_NAME_LENGTH, pattern=GROUP_ID, extra={MUST: "not hold `/` or control characters"}
    ),
]

_ACKNOWLEDGE_TYPE: Final = word(
    "AcknowledgeType",
    "`accept`: done. `release`: deliver it again. `reject`: make it a dead letter. `gap`: the log has no record at this "
    "offset. `renew`: the time of the lock starts again.",
    ACKNOWLEDGE_TYPES,
)

TypeName = Annotated[str, _ACKNOWLEDGE_TYPE]
"""Checked with the rest of an acknowledgement."""

AcknowledgeTypes = Annotated[
    Raw,
    Meta(
        extra_json_schema={
            "anyOf": [
                {
                    "type": "array",
                    "items": {
                        "title": _ACKNOWLEDGE_TYPE.title,
                        "description": _ACKNOWLEDGE_TYPE.description,
                        **(_ACKNOWLEDGE_TYPE.extra_json_schema or {}),
                    },
                    "minItems": 1,
                    "maxItems": MAX_SETTLED,
                },
                {"type": "null"},
            ],
            "default": None,
        }
    ),
]
"""A TypeName for each offset, or null for none, as JSON. They are checked with the rest of an acknowledgement: decoded
as texts, they take eight times their size."""

ConfigName = Annotated[str, Meta(extra_json_schema={"maxLength": 100, "pattern": r"^[a-z][a-z0-9.]*\Z"})]
"""Checked where settings are looked up: INVALID_CONFIG."""

Partitions = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 1, "maximum": MAX_PARTITIONS})]
"""Checked against the service's own limit: INVALID_PARTITIONS."""

PageSize = Annotated[
    int,
    Meta(
        ge=1,
        le=MAX_PAGE_SIZE,
        extra_json_schema={"format": "int32"},
        description="How many entries a page has at most, from 1 to 10,000.",
    ),
]

PageToken = Annotated[
    PlainText,
    Meta(max_length=2048, description="The `next_page_token` of the page before. Absent: the first page."),
]

NextPageToken = Annotated[str, Meta(description="Send it as `page_token` for the next page. Absent on the last page.")]

Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
"""Of an answer: the canonical text."""

TopicId = Annotated[
    Uuid, Meta(description="The id of the topic. A topic that is deleted and created again has another one.")
]

Base64 = Annotated[str, Meta(extra_json_schema={"format": "byte"})]
"""Checked where it is used, so that a fault names its record."""

MemberId = Annotated[PlainText, Meta(min_length=1, max_length=MAX_MEMBER_ID_LENGTH)]

FetchId = Annotated[str, Meta(min_length=1, max_length=MAX_FETCH_ID_LENGTH)]

ConfigValues = Annotated[dict[str, str], Meta(max_length=MAX_CONFIGS)]
"""Settings by name. Every value is a text."""

ConfigNames = Annotated[list[ConfigName], Meta(max_length=MAX_CONFIGS)]

RecordHeaders = Annotated[
    Raw,
    Meta(
        extra_json_schema={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": MAX_HEADERS,
        }
    ),
]
"""Names to strings, as JSON. They are decoded one record at a time, because they then take ten times the memory."""

ReasonText = Annotated[Reason, Meta(extra_json_schema={"type": "string", "maxLength": MAX_REASON_LENGTH})]

RecordKey = Annotated[Raw, Meta(extra_json_schema={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None})]
"""A string or null, as JSON: decoded, a string may take four times its size."""

RecordBase64 = Annotated[
    Raw,
    Meta(extra_json_schema={"anyOf": [{"type": "string", "format": "byte"}, {"type": "null"}], "default": None}),
]
"""A string in base64, or null for none, as JSON: it is kept as it came, and never becomes a text beside it."""

TopicNames = Annotated[list[TopicName], Meta(max_length=MAX_TOPICS_NAMED)]

PartitionIndexes = Annotated[list[PartitionIndex], Meta(max_length=MAX_PARTITIONS_NAMED)]

IsolationLevel = Annotated[
    Literal["read_uncommitted", "read_committed"],
    Meta(
        title="IsolationLevel", description="Up to where a partition is read: to its end, or to its last stable offset."
    ),
]


class Request(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A request body: an unknown field is a fault, so `max_record` never passes for `max_records`."""


class Response(Struct, omit_defaults=True, kw_only=True):
    """An answer: optional fields that are not set are absent."""
