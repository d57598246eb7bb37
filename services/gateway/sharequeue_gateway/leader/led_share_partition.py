"""One loaded share-partition: the pure machine, the fetches that wait for it, and its writes."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final

import msgspec

from sharequeue.protocol.types import AcknowledgeType
from sharequeue_gateway.leader.wake_up import WakeUps
from sharequeue_gateway.locks.lock_calls import LockWrite
from sharequeue_gateway.share_partition.acquisition import AcquiredRange
from sharequeue_gateway.share_partition.batch_times import BatchTimes
from sharequeue_gateway.share_partition.outcomes import AcknowledgementBatch
from sharequeue_gateway.share_partition.runs import StateWrite
from sharequeue_http.forms.errors import ApiError

LOCK_ENTRY_SLACK: Final = 64
"""So many entries stay in Redis, besides two for each lock, before all locks are written in their place."""
RUNS_PER_ENTRY: Final = 16
"""One more stays for so many runs: a write of all locks looks at all of them."""
_encode: Final = msgspec.json.Encoder().encode


@dataclass(eq=False, slots=True)
class LedSharePartition(WakeUps):
    """A loaded share-partition. `machine` decides; this object has the state that only the shell needs.

    `stored_start`: the start offset that is durable at the share coordinator, as far as this leader knows, and
    `stored_count` the delivery complete count that is durable with it. `floor`, `told_ahead`, `told_at_ms`: what this
    leader has last read or written among the log's readers, and when. `version`, `store`: of the state that the next
    write builds on, as the share coordinator named them.
    """

    topic_name: str
    now_ms: InitVar[int]
    json_prefix: bytes = field(init=False)
    batch_times: BatchTimes | None = None
    stored_start: int = field(init=False)
    stored_count: int = field(init=False)
    floor: int = field(init=False)
    told_ahead: list[int | None] = field(default_factory=lambda: [None, None])
    told_at_ms: int = field(init=False)
    used_at_ms: int = field(init=False)
    version: int = -1
    store: str = ""
    expiring: bool = False
    """Whether more locks and delays are due than were ended at once: see `Leader.expire`."""
    writes: int = 0
    """Writes under way: of state to the share coordinator, of locks to Redis."""
    lock_entries: int = 0
    """Lock entries in Redis, at most."""
    most_lock_entries: int = LOCK_ENTRY_SLACK
    """Above it, all locks are written in their place."""
    unanswered: list[tuple[str, Sequence[AcquiredRange]]] | None = None
    """Members and ranges of fetches that acquired these and still read on: no client knows these locks."""
    _quiet: asyncio.Future[None] | None = None

    def __post_init__(self, now_ms: int) -> None:
        self.json_prefix = b'{"topic":%b,"topic_id":"%b","partition":%d,"first_offset":' % (
            _encode(self.topic_name),
            self.key.topic_id.encode(),
            self.key.partition,
        )
        self.stored_start = self.floor = self.machine.start_offset
        self.stored_count = self.machine.delivery_complete_count
        self.told_at_ms = self.used_at_ms = now_ms

    def last_used_ms(self) -> int:
        """Return when a request last named it, or its whole topic."""
        return max(self.used_at_ms, 0 if self.of_topic is None else self.of_topic.used_at_ms)

    def has_unstored_voids(self) -> bool:
        """Return whether the share coordinator still counts as lag what memory has finished."""
        machine = self.machine
        if machine.start_offset != self.stored_start:
            return machine.start_offset > self.stored_start
        return machine.delivery_complete_count > self.stored_count

    def become_quiet(self) -> None:
        """The last write has ended."""
        if self._quiet is not None:
            self._quiet.set_result(None)
            self._quiet = None

    def quiet(self) -> asyncio.Future[None]:
        """A future that ends with the last write of an unloaded share-partition. One must be under way."""
        if self._quiet is None:
            self._quiet = asyncio.get_running_loop().create_future()
        return self._quiet

    @property
    def rests(self) -> bool:
        """Return whether it may be unloaded: no fetch waits or reads, no write is under way, and nothing is held."""
        return not (self.awaiting() or self.reading or self.writes or self.machine.held_count)

    def all_locks(self, fetch: tuple[str, bytes, int] | None = None) -> LockWrite:
        """The write of all locks, in place of the entries in Redis."""
        machine = self.machine
        locks = machine.locks()
        self.lock_entries = len(locks)
        self.most_lock_entries = LOCK_ENTRY_SLACK + 2 * len(locks) + len(machine.runs) // RUNS_PER_ENTRY
        return LockWrite(self.key, machine.leader_epoch, machine.state_epoch, locks, True, fetch)

    # Locks that no client knows yet

    def note_unanswered(self, member_id: str, ranges: Sequence[AcquiredRange], now_ms: int) -> None:
        """A fetch acquired these ranges, and reads on before it is answered."""
        if self.unanswered is None:
            self.unanswered = [(member_id, ranges)]
        else:  # a fetch that was never answered leaves entries: drop those whose locks have expired
            held = [entry for entry in self.unanswered if entry[1][0].lock_expires_at_ms > now_ms]
            self.unanswered = [*held, (member_id, ranges)]

    def note_answered(self, ranges: Sequence[AcquiredRange]) -> None:
        """The fetch that acquired these ranges is about to be answered."""
        if self.unanswered is None or (len(self.unanswered) == 1 and self.unanswered[0][1] is ranges):
            self.unanswered = None
        else:
            self.unanswered = [entry for entry in self.unanswered if entry[1] is not ranges]

    def release_unanswered(self, now_ms: int) -> None:
        """Release the locks that no client knows: the next leader must not restore them."""
        for member_id, ranges in self.unanswered or ():
            self.release_in_memory(member_id, ranges, now_ms)
        self.unanswered = None

    def release_in_memory(self, member_id: str, ranges: Sequence[AcquiredRange], now_ms: int) -> None:
        """After an unload, release ranges that no client saw: in this memory alone."""
        for write in self.release_unseen(member_id, ranges, now_ms):
            self.machine.stand_in_memory(write)

    def release_unseen(self, member_id: str, ranges: Sequence[AcquiredRange], now_ms: int) -> Iterator[StateWrite]:
        """Release ranges that no client saw, one write each: their deliveries are forgiven."""
        for first_offset, last_offset, delivery_count, *_ in ranges:
            release = AcknowledgementBatch(
                first_offset, last_offset, (AcknowledgeType.RELEASE,), delivery_count, begun=False, seen=False
            )
            with contextlib.suppress(ApiError):  # the lock has ended
                yield from self.machine.acknowledge(member_id, [release], now_ms).writes
