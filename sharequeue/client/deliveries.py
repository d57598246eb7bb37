"""What a consumer holds: acquired ranges, their records, and what was said of each. No IO.

Times are seconds of a monotonic clock. Acknowledgements are made per run of offsets with one outcome, not per record.
"""

import base64
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue.protocol import messages
from sharequeue.protocol.messages import Acknowledgement
from sharequeue.protocol.types import ACKNOWLEDGE_TYPES

_decode: Final = msgspec.json.Decoder().decode
_UNREAD: Final = object()


class IllegalState(Exception):
    """The consumer was used in an order its acknowledgement mode does not allow."""


class ValueTooDeep(ValueError):
    """A record's value nests too deeply to be decoded; `Record.json` has its bytes. The record can be settled as any."""


class AcknowledgementFailure(NamedTuple):
    """A run of offsets (`last_offset` inclusive) whose acknowledgement was not applied.

    `code` is Kafka's name: INVALID_RECORD_STATE where the lock had ended. `retriable`: it may not have been the
    last word; the record is delivered again when its lock ends.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    type: str
    code: str
    detail: str
    retriable: bool = False


class AcknowledgementError(Exception):
    """Acknowledgements that were not applied, one failure each; all others of the same call were applied."""

    def __init__(self, failures: Sequence[AcknowledgementFailure]) -> None:
        self.failures = tuple(failures)
        shown = "; ".join(
            f"{failure.topic}-{failure.partition} {failure.first_offset}..{failure.last_offset} "
            f"({failure.type}): {failure.code}: {failure.detail}"
            for failure in self.failures[:3]
        )
        more = f"; and {len(self.failures) - 3} more" if len(self.failures) > 3 else ""
        super().__init__(f"{len(self.failures)} acknowledgements were not applied: {shown}{more}")


class Outcome:
    """What is said of a record. `type`: accept, release, reject, renew or gap. Compared by identity."""

    __slots__ = ("delay_ms", "reason", "type")

    def __init__(self, acknowledge_type: str, reason: str | None = None, delay_ms: int = 0) -> None:
        if acknowledge_type not in ACKNOWLEDGE_TYPES:
            known = ", ".join(ACKNOWLEDGE_TYPES)
            raise ValueError(f"there is no acknowledge type {acknowledge_type!r}; known are {known}")
        if delay_ms and acknowledge_type != "release":
            raise ValueError("delay_ms goes with release alone")
        if reason is not None and acknowledge_type not in ("release", "reject"):
            raise ValueError("reason goes with release and reject alone")
        self.type = acknowledge_type
        self.reason = reason
        self.delay_ms = delay_ms

    def like(self, other: "Outcome") -> bool:
        return self is other or (
            self.type == other.type and self.reason == other.reason and self.delay_ms == other.delay_ms
        )


PLAIN: Final = {name: Outcome(name) for name in ACKNOWLEDGE_TYPES}
ACCEPT: Final = PLAIN["accept"]
GAP: Final = PLAIN["gap"]
RENEW: Final = PLAIN["renew"]
RELEASE: Final = PLAIN["release"]


def outcome_of(acknowledge_type: str, reason: str | None, delay_ms: int) -> Outcome:
    """Raises: ValueError: no such type, or an option that does not go with it."""
    plain = PLAIN.get(acknowledge_type) if reason is None and not delay_ms else None
    return plain or Outcome(acknowledge_type, reason, delay_ms)


class Record:
    """One record that this consumer holds.

    `value` is the JSON value, or bytes where bytes were produced; None is a tombstone. It is decoded at its first use,
    which raises ValueTooDeep where it nests some hundred levels deep; a gateway takes none such by default.
    """

    __slots__ = ("_message", "_value", "delivery", "renewed_until")

    def __init__(self, message: messages.Record, delivery: "Delivery") -> None:
        self.renewed_until = 0.0
        self._message = message
        self._value: Any = _UNREAD
        self.delivery = delivery

    @property
    def topic(self) -> str:
        return self.delivery.topic

    @property
    def partition(self) -> int:
        return self.delivery.partition

    @property
    def offset(self) -> int:
        return self._message.offset

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since the epoch, as produced."""
        return self._message.timestamp_ms

    @property
    def key(self) -> str | bytes | None:
        if self._message.key_base64 is not None:
            return base64.b64decode(self._message.key_base64)
        return self._message.key

    @property
    def value(self) -> Any:
        if self._value is _UNREAD:
            if self._message.value_base64 is not None:
                self._value = base64.b64decode(self._message.value_base64)
            else:
                self._value = self._decoded()
        return self._value

    def _decoded(self) -> Any:
        try:
            return _decode(self.json or b"null")
        except RecursionError:
            place = f"{self.topic}-{self.partition} offset {self.offset}"
            raise ValueTooDeep(
                f"the value of {place} nests too deeply to be decoded: read its bytes from json"
            ) from None

    @property
    def json(self) -> bytes | None:
        """The value's JSON byte for byte as it was produced; None where bytes were produced."""
        value = self._message.value
        return None if isinstance(value, msgspec.UnsetType) else bytes(value)

    @property
    def headers(self) -> dict[str, str]:
        return self._message.headers

    @property
    def delivery_count(self) -> int:
        """How often it was delivered to the group, this time included."""
        return self.delivery.delivery_count

    @property
    def lock_remaining_ms(self) -> int:
        """Milliseconds until the acquisition lock ends, as far as this host can tell; at least 0."""
        return max(0, round((max(self.delivery.deadline, self.renewed_until) - time.monotonic()) * 1000))

    def __repr__(self) -> str:
        return f"<Record {self.topic}-{self.partition} offset {self.offset} delivery {self.delivery_count}>"


class Delivery:
    """One acquired range: its records, which of them nothing was said of, and what was said but not sent yet.

    `in_flight`: acknowledgements sent, or on their way, whose outcome is not known.
    """

    __slots__ = (
        "chosen",
        "deadline",
        "delivery_count",
        "first_offset",
        "in_flight",
        "last_offset",
        "lost",
        "partition",
        "records",
        "renew_at",
        "topic",
        "unsaid",
    )

    def __init__(self, batch: messages.FetchedBatch) -> None:
        self.topic = batch.topic
        self.partition = batch.partition
        self.first_offset = batch.first_offset
        self.last_offset = batch.last_offset
        self.delivery_count = batch.delivery_count
        self.deadline = 0.0
        self.renew_at = 0.0
        self.in_flight = 0
        self.records = {message.offset: Record(message, self) for message in batch.records or ()}
        self.unsaid = set(self.records)
        self.chosen: dict[int, Outcome] = {}
        self.lost: set[int] = set()
        """Offsets whose lock is known to be over."""
        if len(self.records) <= self.last_offset - self.first_offset:
            self.chosen = {
                offset: GAP for offset in range(self.first_offset, self.last_offset + 1) if offset not in self.records
            }

    @property
    def settled(self) -> bool:
        """Whether nothing of it is open any more."""
        return not (self.unsaid or self.chosen or self.in_flight)

    def choose(self, offset: int, outcome: Outcome) -> None:
        """Say something of one record; the last word before sending counts. Raises: IllegalState: it was sent."""
        if offset not in self.unsaid and offset not in self.chosen:
            raise IllegalState(f"{self.topic}-{self.partition} offset {offset} was acknowledged before")
        self.chosen[offset] = outcome
        self.unsaid.discard(offset)

    def choose_all(self, outcome: Outcome) -> None:
        """Say the same of every record nothing was said of."""
        self.chosen.update(dict.fromkeys(self.unsaid, outcome))
        self.unsaid.clear()

    def release_range(self) -> None:
        """Give back the whole range, which was acquired and never handed out."""
        self.chosen = dict.fromkeys(range(self.first_offset, self.last_offset + 1), RELEASE)
        self.unsaid.clear()

    def take_chosen(self) -> list["OutcomeRun"]:
        """What was said, as acknowledgements to send: one per run of offsets with the same outcome."""
        chosen, self.chosen = self.chosen, {}
        taken = [OutcomeRun(self, *run) for run in _outcome_runs(chosen)]
        self.in_flight += len(taken)
        return taken

    def held_runs(self) -> list[tuple[int, int]]:
        """The runs of offsets whose locks the consumer still needs."""
        return list(_runs(sorted((self.unsaid | set(self.chosen)) - self.lost)))

    def hand_out_again(self, first_offset: int, last_offset: int) -> list[Record]:
        """Records whose lock was renewed by the user: they wait for another word."""
        again = [self.records[offset] for offset in range(first_offset, last_offset + 1) if offset in self.records]
        self.unsaid.update(record.offset for record in again)
        return again


def releases(held: Iterable[Delivery]) -> list["OutcomeRun"]:
    """Acknowledgements that give back everything nothing was said of."""
    taken = []
    for delivery in held:
        delivery.choose_all(RELEASE)
        taken += delivery.take_chosen()
    return taken


class OutcomeRun:
    """One acknowledgement on its way to the service. `last_offset` inclusive."""

    __slots__ = ("delivery", "first_offset", "give_up_at", "in_doubt", "last_offset", "outcome")

    def __init__(self, delivery: Delivery, first_offset: int, last_offset: int, outcome: Outcome) -> None:
        self.delivery = delivery
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.outcome = outcome
        self.give_up_at: float | None = None
        """When an outcome that stays unknown counts as failed."""
        self.in_doubt = False
        """Whether it was sent before, and may have been applied then."""

    def message(self) -> Acknowledgement:
        return Acknowledgement(
            topic=self.delivery.topic,
            partition=self.delivery.partition,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            delivery_count=self.delivery.delivery_count,
            type=self.outcome.type,
            reason=self.outcome.reason,
            delay_ms=self.outcome.delay_ms,
        )

    @property
    def released_before(self) -> bool:
        """Whether INVALID_RECORD_STATE is no failure: it releases, was sent before, and its lock is over by now. Either it
        was applied then, or its lock had ended: in both cases others get the records, and may have settled them since."""
        return self.in_doubt and self.outcome.type == RELEASE.type and not self.outcome.delay_ms

    def failure(self, code: str, detail: str, retriable: bool) -> AcknowledgementFailure:
        return AcknowledgementFailure(
            self.delivery.topic,
            self.delivery.partition,
            self.first_offset,
            self.last_offset,
            self.outcome.type,
            code,
            detail,
            retriable,
        )


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Cut ascending offsets into runs without holes, as (first, last)."""
    first = last = -2
    for offset in offsets:
        if offset == last + 1 and first >= 0:
            last = offset
            continue
        if first >= 0:
            yield first, last
        first = last = offset
    if first >= 0:
        yield first, last


def _outcome_runs(chosen: dict[int, Outcome]) -> list[tuple[int, int, Outcome]]:
    """Cut offsets into runs with one outcome, as (first, last, outcome), ascending."""
    if not chosen:
        return []
    offsets = sorted(chosen)
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets) and len(set(map(id, chosen.values()))) == 1:
        return [(first, last, chosen[first])]
    runs = []
    last = first
    for offset in offsets[1:]:
        if offset != last + 1 or not chosen[offset].like(chosen[first]):
            runs.append((first, last, chosen[first]))
            first = offset
        last = offset
    runs.append((first, last, chosen[first]))
    return runs
