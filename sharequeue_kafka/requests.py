"""The requests that aiokafka lacks, each in one version. Source: the message schemas of Apache Kafka.

A form is a request and its answer, both written as Kafka's schemas: `name:type`, `name:type*` for a list, and
`name[...]` for a list of structs. `FORM(value, ...)` is a request that a connection of aiokafka sends. An answer comes
as tuples in the order of its schema. In a flexible version the last value of each tuple, and of the request, is its
tagged fields.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from struct import Struct
from typing import Any, Final, Self

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

from sharequeue_kafka.errors import KafkaError

NO_ID: Final = "00000000-0000-0000-0000-000000000000"


class Uuid(AbstractType):  # type: ignore[misc]
    """The canonical text of a uuid."""

    @classmethod
    def encode(cls, value: str) -> bytes:
        return bytes.fromhex(value.replace("-", ""))

    @classmethod
    def decode(cls, data: BytesIO) -> str:
        return str(uuid.UUID(bytes=data.read(16)))


PLAIN: Final = {"i8": Int8, "i16": Int16, "i32": Int32, "i64": Int64, "bool": Boolean, "text": String("utf-8")}
FLEXIBLE: Final = {**PLAIN, "text": CompactString("utf-8"), "bytes": CompactBytes, "uuid": Uuid}


class Unread:
    """An answer that is still to be decoded, as ANSWER of its request: one with thousands of topics in a thread."""

    @staticmethod
    def decode(data: BytesIO) -> BytesIO:
        return data


class Head(bytes):
    """The header of a request. The classes of aiokafka take ten times as long for it."""

    def encode(self) -> bytes:
        return self


class Request(RequestStruct):  # type: ignore[misc]
    """A request in the one version that its class has."""

    API_KEY = API_VERSION = -1
    RESPONSE_TYPE: Any = Unread

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Self:
        """Raises: KafkaError: the broker does not know the version."""
        low, high = versions.get(self.API_KEY, (-1, -1))
        if not low <= self.API_VERSION <= high:
            raise KafkaError.of(
                35,
                f"the broker has versions {low} to {high} of request {self.API_KEY}, not {self.API_VERSION}:"
                " Kafka 3.1 or later is needed",
            )
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> Head:
        tags = b"\0" if self.FLEXIBLE_VERSION else b""
        return Head(REQUEST.pack(self.API_KEY, self.API_VERSION, correlation_id) + _text(client_id) + tags)


def form(key: int, version: int, request: str, answer: str, *, flexible: bool = True) -> Any:
    """Make the class of a request. Strings and lists are compact in a flexible version."""
    sent, answered = (_schema(iter(re.findall(r"\w+\[|\]|\w+:\w+\*?", text)), flexible) for text in (request, answer))
    named = {"API_KEY": key, "API_VERSION": version, "FLEXIBLE_VERSION": flexible, "SCHEMA": sent, "ANSWER": answered}
    return type("Form", (Request,), named)


def _schema(words: Iterator[str], flexible: bool) -> Any:
    fields: list[tuple[str, Any]] = []
    for word in words:
        if word == "]":
            break
        name, _, kind = word.rstrip("*[").partition(":")
        of = (FLEXIBLE if flexible else PLAIN)[kind] if kind else _schema(words, flexible)
        if word[-1] in "*[":
            of = (CompactArray if flexible else Array)(of)
        fields.append((name, of))
    if flexible:
        fields.append(("tags", TaggedFields))
    return Schema(*fields)


METADATA: Final = form(
    3,
    12,
    "topics[id:uuid name:text] auto_create:bool operations:bool",
    "throttle_ms:i32 brokers[node:i32 host:text port:i32 rack:text] cluster_id:text controller:i32"
    " topics[error:i16 name:text id:uuid internal:bool partitions[error:i16 partition:i32 leader:i32 leader_epoch:i32"
    " replicas:i32* in_sync:i32* offline:i32*] operations:i32]",
)
FETCH: Final = form(
    1,
    13,
    "replica:i32 max_wait_ms:i32 min_bytes:i32 max_bytes:i32 isolation:i8 session_id:i32 session_epoch:i32"
    " topics[id:uuid partitions[partition:i32 current_epoch:i32 offset:i64 last_epoch:i32 log_start:i64 max_bytes:i32]]"
    " forgotten[id:uuid partitions:i32*] rack:text",
    "throttle_ms:i32 error:i16 session_id:i32 topics[id:uuid partitions[partition:i32 error:i16 high_watermark:i64"
    " last_stable:i64 log_start:i64 aborted[producer_id:i64 first_offset:i64] preferred:i32 batches:bytes]]",
)
LIST_OFFSETS: Final = form(
    2,
    4,
    "replica:i32 isolation:i8 topics[name:text partitions[partition:i32 current_epoch:i32 timestamp:i64]]",
    "throttle_ms:i32 topics[name:text partitions[partition:i32 error:i16 timestamp:i64 offset:i64 leader_epoch:i32]]",
    flexible=False,
)
OFFSET_FOR_LEADER_EPOCH: Final = form(
    23,
    3,
    "replica:i32 topics[name:text partitions[partition:i32 current_epoch:i32 epoch:i32]]",
    "throttle_ms:i32 topics[name:text partitions[error:i16 partition:i32 leader_epoch:i32 end_offset:i64]]",
    flexible=False,
)
INCREMENTAL_ALTER_CONFIGS: Final = form(
    44,
    0,
    "resources[type:i8 name:text configs[name:text operation:i8 value:text]] validate_only:bool",
    "throttle_ms:i32 resources[error:i16 message:text type:i8 name:text]",
    flexible=False,
)
DELETE_TOPICS: Final = form(
    20,
    6,
    "topics[name:text id:uuid] timeout_ms:i32",
    "throttle_ms:i32 topics[name:text id:uuid error:i16 message:text]",
)
REQUEST, LENGTH, NUMBER, TWO_NUMBERS = Struct(">hhi"), Struct(">h"), Struct(">i"), Struct(">ii")
NO_TEXT = ALL_IN_SYNC = LENGTH.pack(-1)


class Produce(Request):
    """A Produce of whole batches, by topic and partition. Schemas take five times as long for it and its answer."""

    API_KEY, API_VERSION = 0, 7
    PARTITION: Final = Struct(">ihqqq")

    def __init__(
        self, transactional_id: str | None, timeout_ms: int, topics: Mapping[str, Sequence[tuple[int, bytes]]]
    ) -> None:
        self.values = (transactional_id, timeout_ms, topics)
        self.RESPONSE_TYPE = Produce  # not itself: such a cycle would keep its batches in memory

    def encode(self) -> bytes:
        transactional_id, timeout_ms, topics = self.values
        parts = [NO_TEXT if transactional_id is None else _text(transactional_id)]
        parts += [ALL_IN_SYNC, TWO_NUMBERS.pack(timeout_ms, len(topics))]
        for name, batches in topics.items():
            parts += [_text(name), NUMBER.pack(len(batches))]
            for partition, batch in batches:
                parts += [TWO_NUMBERS.pack(partition, len(batch)), batch]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: BytesIO) -> list[tuple[str, int, int, int, int, int]]:
        """Read an answer: topic, partition, error code, first offset, time in ms, and log start of each batch."""
        rows = []
        for _ in range(*NUMBER.unpack(data.read(4))):
            name = data.read(*LENGTH.unpack(data.read(2))).decode()
            (count,) = NUMBER.unpack(data.read(4))
            rows += [(name, *row) for row in cls.PARTITION.iter_unpack(data.read(count * cls.PARTITION.size))]
        return rows


def _text(value: str) -> bytes:
    encoded = value.encode()
    return LENGTH.pack(len(encoded)) + encoded
