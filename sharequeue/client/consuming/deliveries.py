"""The deliveries that a consumer holds: acquired ranges, their records, and the outcome that was chosen for each. No
IO.

Times are seconds of the monotonic clock. One acknowledgement covers a run of offsets with one outcome, not one record.
"""

import base64
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol

import msgspec

from sharequeue.client import tracing
from sharequeue.client.consuming.outcomes import ACCEPT, GAP, GIVEN_BACK, NEVER_BEGUN, RELEASE, RENEW, Outcome
from sharequeue.client.consuming.values import Decode, DoesNotFit
from sharequeue.client.errors import AcknowledgementFailure, IllegalState, ValueTooDeep, ValueUndecodable
from sharequeue.protocol.messages import records as record_messages
from sharequeue.protocol.messages.records import Acknowledgement, FetchedBatch
from sharequeue.protocol.types import Reason

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any)
    """The type of values: of the `value_type` of the consumer, else any."""
else:
    from typing import TypeVar  # knows no default before Python 3.13

    V = TypeVar("V")

_decode: Final = msgspec.json.Decoder().decode
_UNREAD: Final = object()


class Record(Generic[V]):
    """One record that this consumer holds.

    `value` is the JSON value, or bytes if bytes were produced; None is a tombstone. Its first use decodes it, as the
    `value_type` of the consumer, and raises ValueUndecodable if there is no such value. The record is begun when a loop
    reaches it, or when its key or value is read.
    """

    __slots__ = ("_message", "_value", "delivery", "renewed_until")

    def __init__(self, message: record_messages.ConsumerRecord, delivery: "Delivery") -> None:
        self.renewed_until = 0.0
        self._message = message
        self._value: Any = _UNREAD
        self.delivery = delivery

    def begin(self) -> None:
        """The program works on this record. So if the consumer gives it back without an outcome, that is an attempt."""
        self.delivery.begun_to = max(self.delivery.begun_to, self._message.offset)

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
        self.begin()
        if self._message.key_base64 is not None:
            return base64.b64decode(self._message.key_base64)
        return self._message.key

    @property
    def value(self) -> V:
        if self._value is _UNREAD:
            self.begin()
            self._value = self._decoded()
        value: V = self._value
        return value

    def decoded_by(self, decode: Decode) -> Any:
        """Return what a decoder makes of the value. Raises: DoesNotFit."""
        produced = self._message.value_base64
        return decode(self.json, None if produced is None else base64.b64decode(produced))

    def _decoded(self) -> Any:
        try:
            if self.delivery.decode is not None:
                return self.decoded_by(self.delivery.decode)
            if self._message.value_base64 is not None:
                return base64.b64decode(self._message.value_base64)
            return _decode(self.json or b"null")
        except (DoesNotFit, RecursionError, ValueError, msgspec.DecodeError) as fault:
            self.delivery.undecodable = self.offset
            deep = isinstance(fault, RecursionError)
            kind, why = (ValueTooDeep, "it nests too deeply") if deep else (ValueUndecodable, fault)
            place = f"{self.topic}-{self.partition} offset {self.offset}"
            raise kind(f"the value of {place} cannot be decoded: {why}; its bytes are in Record.json") from None

    @property
    def json(self) -> bytes | None:
        """The value's JSON, byte for byte as it was produced; None if bytes were produced."""
        self.begin()
        value = self._message.value
        return None if isinstance(value, msgspec.UnsetType) else bytes(value)

    @property
    def headers(self) -> dict[str, str]:
        return self._message.headers

    @property
    def delivery_count(self) -> int:
        """Return how often the group got this record, this delivery included."""
        return self.delivery.delivery_count

    @property
    def attempt(self) -> int:
        """As `delivery_count`, without the deliveries that were never begun. The delivery limit goes by it."""
        return self.delivery.attempt

    @property
    def lost(self) -> bool:
        """Tell whether the lock has ended: another member may have the record, and an acknowledgement fails."""
        offset, delivery = self.offset, self.delivery
        return offset in delivery.lost or offset in delivery.given_back or self.lock_remaining_ms == 0

    @property
    def lock_remaining_ms(self) -> int:
        """Milliseconds until the acquisition lock ends, by this host's clock; at least 0."""
        return max(0, round((max(self.delivery.deadline, self.renewed_until) - time.monotonic()) * 1000))

    def __repr__(self) -> str:
        return f"<Record {self.topic}-{self.partition} offset {self.offset} delivery {self.delivery_count}>"


class Polled(list[Record]):
    """The records that a poll returned. A loop over them begins each record that it reaches, and leaves out what the
    consumer has given back: because it was stopped, or not used for `max_poll_interval_ms`."""

    def __iter__(self) -> Iterator[Record]:
        for record in super().__iter__():
            record.begin()
            if record.offset not in record.delivery.given_back:  # after `begin`: see `give_back`
                yield record


class Delivery:
    """One acquired range of offsets.

    `undecided`: offsets of records without an outcome. `chosen`: outcomes that were chosen and not sent yet.
    `in_flight`: how many acknowledgements were sent, or wait to be sent, and have no result. `in_transactions`: offsets
    that a transaction settles when it commits; until then they are held. `group`, `member_id`: who holds it. `decode`:
    its values; None: as plain JSON.
    `begun_to`: the last offset that the program began to work on; -1: none. `given_back`: what a consumer that was
    stopped, or hung, gave back. `undecodable`: the last offset whose value could not be decoded; -1: none.
    """

    def __init__(self, batch: FetchedBatch, group: str = "", member_id: str = "", decode: Decode | None = None) -> None:
        self.group = group
        self.member_id = member_id
        self.decode = decode
        self.topic = batch.topic
        self.topic_id = batch.topic_id
        self.partition = batch.partition
        self.delivery_count = batch.delivery_count
        self.attempt = batch.attempt
        self.lock_duration_s = batch.lock_duration_ms / 1000
        self.deadline = 0.0
        self.renew_at = 0.0
        self.in_flight = 0
        self.begun_to = self.undecodable = -1
        self.given_back: set[int] = set()
        self.records = {message.offset: Record(message, self) for message in batch.records or ()}
        self.undecided = set(self.records)
        absent = NEVER_BEGUN if batch.records is None else GAP  # without any, the batch was never handed out
        offsets = range(batch.first_offset, batch.last_offset + 1)
        self.chosen = {offset: absent for offset in offsets if offset not in self.records}
        self.in_transactions: set[int] = set()
        self.not_settled: set[int] = set()
        """Offsets whose transaction was aborted."""
        self.lost: set[int] = set()
        """Offsets whose lock has ended."""

    @property
    def settled(self) -> bool:
        return not (self.undecided or self.chosen or self.in_flight or self.in_transactions)

    def choose(self, offset: int, outcome: Outcome) -> None:
        """Choose the outcome of one record, in place of an earlier choice. Raises: IllegalState: it was sent."""
        if offset not in self.undecided and offset not in self.chosen:
            what = "given back" if offset in self.given_back else "acknowledged"
            raise IllegalState(f"{self.topic}-{self.partition} offset {offset} is already {what}")
        self.chosen[offset] = outcome
        self.undecided.discard(offset)

    def give_to_transaction(self, offset: int) -> None:
        """A transaction settles this record when it commits. Raises: IllegalState: it is acknowledged otherwise."""
        if offset not in self.undecided:
            raise IllegalState(f"{self.topic}-{self.partition} offset {offset} is already acknowledged")
        self.undecided.discard(offset)
        self.in_transactions.add(offset)

    def take_from_transaction(self, offsets: Iterable[int], *, settled: bool) -> None:
        """The transaction has ended. If it did not settle them, the records are held, and need an outcome."""
        for offset in offsets:
            self.in_transactions.discard(offset)
            if not settled:
                self.undecided.add(offset)
                self.not_settled.add(offset)

    def accept(self, offset: int) -> None:
        """Accept a record that has no outcome; release it if its transaction was aborted: its work was not done."""
        if offset in self.undecided or offset in self.chosen:
            self.choose(offset, RELEASE if offset in self.not_settled else ACCEPT)

    def accept_all(self) -> None:
        """As `accept`, for all records that have no outcome."""
        for offset in self.not_settled & self.undecided:
            self.choose(offset, RELEASE)
        self.choose_all(ACCEPT)

    def choose_all(self, outcome: Outcome) -> None:
        """Choose the outcome of all records that have none."""
        self.chosen.update(dict.fromkeys(self.undecided, outcome))
        self.undecided.clear()

    def take_chosen(self) -> list["OutcomeRun"]:
        """The chosen outcomes as acknowledgements to send: one for each run of offsets with the same outcome."""
        chosen, self.chosen = self.chosen, {}
        return self._taken(chosen)

    def take_given_back(self) -> list["OutcomeRun"]:
        """As `take_chosen`, of the records that were given back. What the program has chosen stays."""
        return self._taken({offset: self.chosen.pop(offset) for offset in self.given_back & self.chosen.keys()})

    def _taken(self, chosen: dict[int, Outcome]) -> list["OutcomeRun"]:
        taken = [OutcomeRun(self, *run) for run in outcome_runs(chosen)]
        if tracing.wanted():
            for run in taken:
                run.start_span()
        self.in_flight += len(taken)
        return taken

    def held_runs(self) -> list[tuple[int, int]]:
        """The runs of offsets whose locks the consumer needs, as (first, last)."""
        held = self.undecided.union(self.chosen, self.in_transactions) - self.lost
        return [(first, last) for first, last, _ in outcome_runs(dict.fromkeys(held, RENEW))]

    def hand_out_again(self, first_offset: int, last_offset: int) -> list[Record]:
        """The user renewed these records: they need another outcome."""
        self.begun_to = max(self.begun_to, last_offset)
        again = [self.records[offset] for offset in range(first_offset, last_offset + 1) if offset in self.records]
        self.undecided.update(record.offset for record in again)
        return again


def never_begun(held: dict[Delivery, None]) -> Iterator[tuple[Delivery, int]]:
    """Yield what lies behind the last record that the program began, from the last one on: as (delivery, offset)."""
    for delivery in reversed(held):
        for offset in sorted(delivery.undecided, reverse=True):
            if offset > delivery.begun_to:
                yield delivery, offset
        if delivery.begun_to >= 0:
            return


def give_back(held: dict[Delivery, None]) -> None:
    """Choose to release what lies behind the last record that the program began; its loop does not reach that any more.

    The loop may run in another thread. It begins a record and then looks at `given_back`; this adds to `given_back` and
    then looks at what is begun. So one of both sees the other.
    """
    for delivery, offset in list(never_begun(held)):
        delivery.given_back.add(offset)
        if offset > delivery.begun_to:
            delivery.choose(offset, NEVER_BEGUN)
        else:
            delivery.given_back.discard(offset)


def releases(held: dict[Delivery, None]) -> list["OutcomeRun"]:
    """Acknowledgements for everything that is held. Records without an outcome are released, as no attempt if the
    program did not begin with them. If the value of the last one that it began cannot be decoded, that one alone is an
    attempt."""
    last = next((delivery for delivery in reversed(held) if delivery.begun_to >= 0), None)
    if last is not None and last.undecodable == last.begun_to and last.undecodable in last.undecided:
        last.choose(last.undecodable, GIVEN_BACK)
        for delivery in held:
            delivery.choose_all(NEVER_BEGUN)
    for delivery, offset in list(never_begun(held)):
        delivery.choose(offset, NEVER_BEGUN)
    taken = []
    for delivery in held:
        delivery.choose_all(GIVEN_BACK)
        taken += delivery.take_chosen()
    return taken


class Acquired(Protocol):
    """The delivery that an acknowledgement is about; `topic_id`: "" if it is not known."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def delivery_count(self) -> int: ...


@dataclass(eq=False)
class Sent:
    """One acknowledgement on its way to the service: a run of offsets with one outcome. `last_offset` is inclusive."""

    delivery: Acquired
    first_offset: int
    last_offset: int
    outcome: Outcome
    give_up_at: float | None = None
    """When a result that stays unknown counts as a failure; None: it has not been unknown yet."""
    in_doubt: bool = False
    """Whether it was sent before and its answer was lost: the service may have applied it."""
    refusals: int = 0

    def message(self) -> Acknowledgement:
        delivery, outcome = self.delivery, self.outcome
        return Acknowledgement(
            topic=delivery.topic,
            topic_id=delivery.topic_id or None,
            partition=delivery.partition,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            delivery_count=delivery.delivery_count,
            type=outcome.type,
            reason=None if outcome.reason is None else Reason(outcome.reason),
            delay_ms=outcome.delay_ms,
            begun=outcome.begun,
        )

    @property
    def finished_before(self) -> bool:
        """Return whether `ignored` means success: an earlier answer was lost. Otherwise somebody else finished the
        records."""
        return self.outcome.type == "gap" or (self.in_doubt and self.outcome.type != "renew")

    @property
    def released_before(self) -> bool:
        """Return whether INVALID_RECORD_STATE means success: a release whose first answer was lost. Either the service
        applied it then, or the lock ended. In both cases other members may get the records, as a release asks."""
        return self.in_doubt and self.outcome.type == "release" and not self.outcome.delay_ms


@dataclass(eq=False)
class OutcomeRun(Sent):
    """An acknowledgement of a consumer: of a part of a delivery."""

    delivery: Delivery
    span: tracing.Span = None

    def start_span(self) -> None:
        """Start the span `settle`, which ends with the result."""
        first, last, delivery = self.first_offset, self.last_offset, self.delivery
        more = {
            "batch.message_count": last - first + 1,
            "consumer.group.name": delivery.group,
            "destination.partition.id": str(delivery.partition),
            "sharequeue.outcome": self.outcome.type,
        }
        of = (record.headers for offset, record in delivery.records.items() if first <= offset <= last)
        self.span = tracing.start("settle", delivery.topic, "CLIENT", of, more)

    @property
    def finished_before(self) -> bool:
        return super().finished_before and self.first_offset not in self.delivery.lost

    def failure(self, code: str, detail: str, retriable: bool) -> AcknowledgementFailure:
        place = self.delivery.topic, self.delivery.partition, self.first_offset, self.last_offset
        return AcknowledgementFailure(*place, self.outcome.type, code, detail, retriable)


def outcome_runs(chosen: dict[int, Outcome]) -> list[tuple[int, int, Outcome]]:
    """Cut offsets into runs with one outcome, as (first, last, outcome), ascending."""
    if not chosen:
        return []
    offsets = sorted(chosen)
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets) and len(set(map(id, chosen.values()))) == 1:
        return [(first, last, chosen[first])]
    found = []
    last = first
    for offset in offsets[1:]:
        if offset != last + 1 or chosen[offset] != chosen[first]:
            found.append((first, last, chosen[first]))
            first = offset
        last = offset
    found.append((first, last, chosen[first]))
    return found
