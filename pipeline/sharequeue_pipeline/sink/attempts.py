"""Lets several attempts of a task write each row once, in any order of their rows.

The requests of a task are numbered, for each topic. A number is an idempotency key, so one attempt alone appends under
it: the first. An attempt whose request has a number that another one has used gets 422. It reads what was appended
there, leaves these records out of its own rows from now on, and goes on with the next number. So the attempt that
appends under a number knows all records below it.

    attempt 1 has the rows a b c d, two for each request     0: a b
    attempt 2 has d c b a, sends d c as 0, and gets 422      it reads a b; 1: d c
    attempt 1 sends c d as 1, and gets 422                   it reads d c, and has nothing left

In the same order the rows make the same requests. Then the key is answered with the offsets of the first time, and
nothing is read. At the end an attempt may know of records that were not among its rows: then these differ from run to
run.

Records that retention or compaction has removed cannot be read. Then the rest of the rows is appended, at least once.
Decision 21 says why it is done so.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol, Self

from sharequeue.protocol.messages.problems import ProducedBatch
from sharequeue_pipeline.errors import KeyUsed, PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.sink.digests import digests_of_read
from sharequeue_pipeline.sink.known_records import KnownRecords

_FIRST: Final = re.compile(rb'\{"(?:records|batches)":\[\{"partition":(\d+),"(?:first_)?offset":(\d+)')


class Chunk(Protocol):
    """The rows of one request."""

    @property
    def topic(self) -> str: ...

    @property
    def body(self) -> bytes: ...

    @property
    def size(self) -> int:
        """The number of rows."""

    @property
    def arrow(self) -> bool:
        """Return whether the body is an Arrow stream, and not JSON."""

    def digests(self) -> Iterator[bytes]:
        """The digest of each row, as `digest_of` makes it."""

    def only(self, places: Sequence[int]) -> Self:
        """The request of some of the rows."""

    def largest(self) -> tuple[int, str | bytes]:
        """The bytes of the largest row, and its key, or the beginning of its value."""


def produce(gateway: GatewayClient, chunk: Chunk, key: str, transaction_id: str | None = None) -> bytes:
    """Append the rows of a request, as `GatewayClient.produce`. If one is too large, the fault names it."""
    try:
        return gateway.produce(chunk.topic, chunk.body, key, transaction_id, arrow=chunk.arrow)
    except PipelineError as fault:
        if fault.code != "MESSAGE_TOO_LARGE":
            raise
        size, name = chunk.largest()
        raise PipelineError(
            f"the largest row of a request to topic {chunk.topic!r} has {size} bytes, and its key or value begins with "
            f"{name[:60]!r}: {fault}",
            fault.code,
        ) from None


class _Topic:
    """The state of an attempt for one topic."""

    def __init__(self) -> None:
        self.number = 0
        """The number of the next request."""
        self.appended = KnownRecords()


class Attempt:
    """Writes the rows of a task.

    Args:
        prefix: of the keys; all attempts of a task have the same.
        begun: the log ends of the topic before the write began, by partition. Records below were known before.
        columns: the names of the columns of the rows.
    """

    def __init__(self, gateway: GatewayClient, prefix: str, begun: Mapping[int, int], columns: Sequence[str]) -> None:
        self._gateway = gateway
        self._prefix = prefix
        self._begun = begun
        self._placed = "partition" in columns
        self._timed = "timestamp" in columns
        self._topics: dict[str, _Topic] = {}
        self.requests = 0
        self.records = 0
        self.known = 0
        """How many of the records were in the log before the write began."""

    @property
    def others(self) -> int:
        """Records that other attempts have appended, and that were not among the rows or could not be read."""
        return sum(topic.appended.left for topic in self._topics.values())

    def write(self, chunk: Chunk) -> None:
        """Append those of the rows that no other attempt has appended.

        Raises: PipelineError: the gateway refuses them, or is out of reach.
        """
        topic = self._topics.setdefault(chunk.topic, _Topic())
        self.records += chunk.size
        rest: Chunk | None = self._new(topic, chunk)
        while rest is not None:
            key = f"{self._prefix}:{topic.number}"
            self.requests += 1
            try:
                answer = produce(self._gateway, rest, key)
            except KeyUsed as used:
                self._learn(chunk.topic, topic, used.batches)
                rest = self._new(topic, rest)
            else:
                self.known += rest.size if self._was_there(answer) else 0
                rest = None
            topic.number += 1  # not after a fault: a number is passed only when its records are known

    def _was_there(self, answer: bytes) -> bool:
        """Return whether the records of a request were in the log before: a known key is answered with their old
        offsets."""
        first = _FIRST.match(answer)
        return first is not None and int(first[2]) < self._begun.get(int(first[1]), 0)

    def _new(self, topic: _Topic, chunk: Chunk) -> Chunk | None:
        """The rows that no other attempt has appended. None: there are none."""
        if topic.appended.empty:
            return chunk
        places, known = topic.appended.leave_out(chunk.digests())
        self.known += known
        if len(places) == chunk.size:
            return chunk
        return chunk.only(places) if places else None

    def _learn(self, name: str, topic: _Topic, batches: Sequence[ProducedBatch]) -> None:
        """Read what another attempt has appended under a number."""
        count = sum(each.last_offset - each.first_offset + 1 for each in batches)
        found = [] if topic.appended.gone else [digest for each in batches for digest in self._read(name, each)]
        before = batches[0].first_offset < self._begun.get(batches[0].partition, 0)
        topic.appended.learn(found, count, before=before)

    def _read(self, name: str, batch: ProducedBatch) -> Iterator[bytes]:
        entry = Range(name, batch.partition, batch.first_offset, batch.last_offset)
        partition = batch.partition if self._placed else None
        for records in self._gateway.read(entry, "read_uncommitted"):
            yield from digests_of_read(records, partition, timed=self._timed)
