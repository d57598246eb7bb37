"""The member of a share group that a streaming query is: it acquires, holds and settles the records of one micro-batch.

It knows batches by their number and ranges by their offsets, and nothing of Spark.
"""

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from sharequeue.client.consuming.outcomes import ACCEPT, RENEW
from sharequeue.protocol.messages.records import FetchRequest, TopicPartitions
from sharequeue.protocol.types import AcquireMode
from sharequeue.repeats import SPARK, SPARK_LAG, Tries
from sharequeue_pipeline import driver_notes, ranges
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import DEFAULT_LOCKS, LOCKS, GroupClient
from sharequeue_pipeline.options import DEFAULT_MAX_RECORDS_PER_TRIGGER, SourceOptions
from sharequeue_pipeline.ranges import Given, Range
from sharequeue_pipeline.source.admission import Room
from sharequeue_pipeline.source.bounded_read import BoundedRead, passed_over
from sharequeue_pipeline.source.isolation import Isolation, Piece
from sharequeue_pipeline.source.lock_renewal import LockRenewal
from sharequeue_pipeline.source.topic_names import TopicNames

log = logging.getLogger(__name__)

LEVEL: Final = "share.isolation.level"
MAX_LOCKS: Final = 1_000_000
"""The highest value of the group's limit of locks in a partition."""
MAX_RANGES: Final = 10_000
"""Of one offset: at most about 300 KiB of text."""
WAIT_MS: Final = 1000
"""How long a fetch waits for records before Spark hears that there are none."""
REFRESH_S: Final = 1.0
"""How often a query asks what is left to read in pieces, while some of it does not come."""
SOON_S: Final = 60.0
"""Records that wait longer than this are not read in pieces: they would keep new records of their partition waiting."""
GATHER_S: Final = 5.0
"""How long one batch gathers records."""


def topics_of(options: SourceOptions, gateway: GroupClient, group: str) -> TopicNames:
    """The topics of a group's read: a pattern leaves out its dead-letter topic."""
    own = gateway.group_config(group)["errors.deadletterqueue.topic.name"] if options.pattern is not None else ""
    return TopicNames(options, [own])


def check_level(options: SourceOptions, group: str, config: Mapping[str, str]) -> None:
    """Raises: PipelineError: the query wants another isolation level than its group has."""
    if options.isolation not in (None, config[LEVEL]):
        raise PipelineError(
            f"isolationLevel is {options.isolation}, and {LEVEL} of group {group} is {config[LEVEL]}: it holds for all members "
            f"of the group; set it with: sharequeue groups config {group} --set {LEVEL}={options.isolation}"
        )


def note_settled(member_id: str, batch: int, settled: Sequence[Range]) -> None:
    """Note what a job settled of a batch, which must not be accepted."""
    driver_notes.add(f"settled {member_id} {batch}", json.dumps(ranges.encode(settled)))


def settled_by_job(member_id: str, batch: int) -> list[Range]:
    """Return what a job settled of a batch, which is over: the note is removed."""
    name = f"settled {member_id} {batch}"
    noted = (driver_notes.find(name) or "").splitlines()
    driver_notes.remove(name)
    return ranges.joined(entry for line in noted for entry in ranges.decode(json.loads(line)))


class GroupMember:
    """One member of the group. It holds the records of one batch at a time."""

    def __init__(self, options: SourceOptions, group: str, offset: Mapping[str, Any]) -> None:
        """`offset`: of the last batch, or the one before the first."""
        self.member_id: str = offset["member_id"]
        self._options = options
        self._group = group
        self._gateway = GroupClient(options.gateway)
        self._topics = topics_of(options, self._gateway, group)
        self._acquired_batch = -1
        """The last batch whose ranges this process acquired or renewed."""
        self._renewed: tuple[int, list[Range]] = (-1, [])
        """The last batch of an earlier process, and those of its ranges that were still held."""
        self._settled_batch = 0
        self._looked = False
        self._lost = 0
        self._lags: dict[tuple[str, int], int] = {}
        self._lags_at = -math.inf
        self._refresh_due = 0.0
        self._isolation: Isolation | None = None
        """What to read in pieces, as this process found it when it began."""
        config = self._gateway.group_config(group)
        check_level(options, group, config)
        may_renew = config["share.renew.acknowledge.enable"] == "true"
        self._renewal = LockRenewal(options.gateway, group, self.member_id, enabled=options.lock_renew and may_renew)
        if options.lock_renew and not may_renew:
            log.warning(
                "group %s does not allow renewing locks: a batch that takes longer than a lock is delivered again",
                group,
            )
        self._delivery_limit = int(config["share.delivery.count.limit"])
        self.raised: list[int] = offset["raised"]
        """The group's limit of locks before the query raised it, and since. It is put back when the query ends."""
        self._lock_limit = self._locks(int(config[LOCKS]))
        self._told_of_limit = False

    def _names(self) -> Sequence[str]:
        return self._topics.names(self._gateway)

    def _locks(self, locks: int) -> int:
        """The group's limit of locks in a partition, after it was raised: if the options say so, or if they say nothing
        and the group has the default limit."""
        wanted = min(self._options.max_records_per_trigger or DEFAULT_MAX_RECORDS_PER_TRIGGER, MAX_LOCKS)
        raises = self._options.raise_record_locks
        if raises is None:
            raises = locks == DEFAULT_LOCKS
        if not raises or locks >= wanted:
            return locks
        self._gateway.set_locks(self._group, wanted)
        self.raised = [locks, wanted]
        log.warning(
            "%s of group %s is raised from %d to %d until the query ends (raiseRecordLocks)",
            LOCKS,
            self._group,
            locks,
            wanted,
        )
        return wanted

    def _tell_of_limit(self, acquired: list[Range], wanted: int) -> None:
        """Say once that the group's limit made a batch small, with a limit that does not."""
        taken: dict[tuple[str, int], int] = {}
        for entry in acquired:
            taken[entry[:2]] = taken.get(entry[:2], 0) + entry.size
        if self._told_of_limit or max(taken.values(), default=0) < self._lock_limit:
            return
        self._told_of_limit = True
        batch, waiting = sum(taken.values()), sum(self.lags(0).values())
        if batch < min(wanted, waiting):
            log.warning(
                "a batch has %d of %d records, because %s of group %s is %d: set it to %d, or let the query do it (option "
                "raiseRecordLocks)",
                batch,
                waiting,
                LOCKS,
                self._group,
                self._lock_limit,
                min(wanted, MAX_LOCKS),
            )

    def look_for_group(self, offset: dict[str, Any]) -> None:
        """Look once whether the group has its place in the topics of the last batch.

        Raises: PipelineError: it has not, and would read them from their beginning again (failOnDataLoss).
        """
        if self._looked:
            return
        self._looked = True
        last = {entry.topic: entry.topic_id for entry in ranges.decode(offset["ranges"])}
        known = {entry.topic_id for entry in self._gateway.group_offsets(self._group)} if last else set()
        for topic, topic_id in last.items():
            described = None if topic_id in known else self._gateway.find(topic)
            if described is None or described.topic_id != topic_id:
                continue  # the group is there, or the topic is gone
            text = (
                f"group {self._group} has no place in topic {topic!r}, which this query has read: the group or its offsets "
                "were deleted, and it reads the topic again"
            )
            if self._options.fail_on_data_loss:
                raise PipelineError(f"{text}; set failOnDataLoss=false to go on like that")
            log.warning(text)

    def removed(self, offset: dict[str, Any]) -> dict[str, dict[str, int]]:
        """Count what left the log unread since the last batch. Returns: what left so far, by topic and partition.

        A leader that has not followed the log start yet counts less than an earlier leader did.
        Raises: PipelineError: something left (failOnDataLoss).
        """
        found = self._gateway.removed_unread(self._group, self._names())
        if "removed" not in offset:
            return ranges.by_topic(found)
        before = ranges.by_place(offset["removed"])
        new = {place: count - before.get(place, 0) for place, count in found.items() if count > before.get(place, 0)}
        if new:
            text = f"{sum(new.values())} offsets were deleted before group {self._group} read them"
            if self._options.fail_on_data_loss:
                raise PipelineError(f"{text}; set failOnDataLoss=false to read on without them")
            log.warning(text)
            self._lost += sum(new.values())
        return ranges.by_topic({**before, **{place: found[place] for place in new}})

    def isolate(self) -> None:
        """Read the records that were delivered before this process in pieces:
        one of them may have ended an earlier one."""
        if self._isolation is None:
            delivered = self._gateway.delivered(self._group, self._names(), SOON_S)
            self._isolation = Isolation(delivered, self._delivery_limit)
            if self._isolation.left:
                log.warning(
                    "group %s: %d records were delivered before and not finished; they are read in smaller batches",
                    self._group,
                    self._isolation.left,
                )

    @property
    def isolating(self) -> int:
        """Return how many records are still to be read in pieces."""
        return 0 if self._isolation is None else self._isolation.left

    def acquire(self, batch: int, max_records: int, bounded: BoundedRead | None) -> list[Range]:
        """Acquire the ranges of a batch. Returns: the ranges, joined.

        The fetch ids come from the batch number, so a restart gets the ranges that an earlier process acquired and did
        not write into the checkpoint. Records that were delivered before end the batch: the gateway gives them in
        portions that become smaller, and one of them may be the record that fails.
        """
        acquired: list[Range] = []
        self._look_again()
        room = Room(max_records, self._options.max_bytes_per_trigger)
        number = 0
        enough_at = time.monotonic() + GATHER_S
        while room.left and len(acquired) < MAX_RANGES and (not acquired or time.monotonic() < enough_at):
            piece = None if self._isolation is None else self._isolation.next()
            asked, most = self._asked(piece, bounded, give_up=not acquired)
            if asked is not None and not asked:
                if not acquired and bounded is None:
                    Tries(SPARK).rest()
                break
            most = min(room.records, MAX_RANGES - len(acquired), most or room.records)
            request = self._request(piece, asked, most, wait=not acquired)
            request.fetch_id, request.max_bytes = f"{batch}.{number}", room.bytes
            number += 1
            found, lock_ms = self._gateway.fetch(self._group, request, topics_may_go=self._topics.of_pattern)
            if not found and piece is not None and self._isolation is not None:
                self._isolation.pass_over(piece)
                continue
            if not found:
                break
            if bounded is not None:
                bounded.note(found)
            if self._isolation is not None:
                self._isolation.note(found)
            self._renewal.hold(batch, [*acquired, *found], lock_ms)
            room.take(sum(entry.size for entry in found))
            acquired = ranges.joined([*acquired, *found])
            if piece is not None or any(entry.delivery_count > 1 for entry in found):
                break
        if acquired:
            self._acquired_batch = batch
        if room.left and not self.isolating:
            self._tell_of_limit(acquired, max_records)
        return acquired

    def _look_again(self) -> None:
        """Ask for the records that were delivered before, if a piece did not come."""
        if self._isolation is not None and self._isolation.look() and time.monotonic() >= self._refresh_due:
            self._isolation.refresh(self._gateway.delivered(self._group, self._names(), SOON_S))
            self._refresh_due = time.monotonic() + REFRESH_S

    def _asked(
        self, piece: Piece | None, bounded: BoundedRead | None, *, give_up: bool
    ) -> tuple[list[TopicPartitions] | None, int | None]:
        """The partitions of a fetch (None: all), and how many records it needs at most (None: any number).

        `give_up`: nothing is held, so the query may fail. Raises: PipelineError: records of a bounded read do not come.
        """
        if piece is not None:
            return [TopicPartitions(topic=piece.topic, partitions=[piece.partition])], piece.max_records
        if bounded is None:
            return self._without_waiting(None if self._names() else []), None
        if not bounded.left and not self.isolating:
            bounded.reopen(self._gateway.delivered(self._group, self._names(), 0))
            if bounded.given_up and give_up:
                raise passed_over(self._group, bounded.given_up)
        return self._without_waiting(bounded.left), bounded.most

    def _without_waiting(self, asked: list[TopicPartitions] | None) -> list[TopicPartitions] | None:
        """The partitions, less those with records that are read in pieces and wait for their time."""
        waiting = set() if self._isolation is None else self._isolation.partitions
        if not waiting:
            return asked
        if asked is None:
            described = [self._gateway.find(topic) for topic in self._names()]
            asked = [
                TopicPartitions(topic=found.name, partitions=[entry.partition for entry in found.partitions])
                for found in described
                if found is not None
            ]
        left = [
            TopicPartitions(
                topic=named.topic, partitions=[p for p in named.partitions or () if (named.topic, p) not in waiting]
            )
            for named in asked
        ]
        return [named for named in left if named.partitions]

    def _request(
        self, piece: Piece | None, asked: list[TopicPartitions] | None, max_records: int, *, wait: bool
    ) -> FetchRequest:
        """A fetch of a piece, of some partitions, or of all topics."""
        return FetchRequest(
            topics=list(self._names()) if asked is None else None,
            topic_partitions=asked,
            member_id=self.member_id,
            max_records=max_records,
            max_wait_ms=WAIT_MS if asked is None and wait else 0,
            acquire_mode=AcquireMode.RECORD_LIMIT if piece else AcquireMode(self._options.acquire_mode),
            with_records=False,
        )

    def held(self, offset: dict[str, Any]) -> list[Range]:
        """The ranges of a batch that this member holds. If an earlier process acquired them, they are renewed first."""
        if offset["batch"] == self._renewed[0]:
            return self._renewed[1]
        held = ranges.decode(offset["ranges"])
        if offset["batch"] == self._acquired_batch:
            return held
        lost, finished = self._gateway.acknowledge_held(self._group, self.member_id, held, RENEW)
        self._acquired_batch = offset["batch"]
        self._count_lost(lost, "are not read again: the failed query released them, or their locks ended")
        held = ranges.divided(held, [*lost, *finished])[1]
        self._renewed = (offset["batch"], held)
        if held:
            lock_ms = int(self._gateway.group_config(self._group)["share.record.lock.duration.ms"])
            self._renewal.hold(offset["batch"], held, lock_ms)
        return held

    def note_given(self, held: Sequence[Range]) -> None:
        """Note what the tasks of a batch get: a transactional sink settles it as it commits. Tasks that reject records
        have settled some themselves, so such a batch is settled here alone."""
        if self._options.on_malformed != "reject":
            given = Given(self._options.gateway.url, self._group, ranges.encode(held))
            driver_notes.leave(self.member_id, msgspec.json.encode(given).decode())

    def settle(self, offset: dict[str, Any]) -> None:
        """Accept the ranges of a finished batch, once, except what the job settled itself. An empty note says that its
        sink has settled all of them."""
        if offset["batch"] <= self._settled_batch:
            return
        by_sink = driver_notes.find(self.member_id) == ""
        driver_notes.remove(self.member_id)
        self._renewal.drop(offset["batch"])
        batch, held = self._renewed
        if by_sink:
            self._settled_batch = offset["batch"]
            return
        finished = held if batch == offset["batch"] else ranges.decode(offset["ranges"])
        finished = ranges.divided(finished, settled_by_job(self.member_id, offset["batch"]))[1]
        self._count_lost(
            self._gateway.acknowledge_held(self._group, self.member_id, finished, ACCEPT).lost,
            "were processed, but not accepted, because their locks had ended: they are delivered again",
        )
        self._settled_batch = offset["batch"]

    def _count_lost(self, lost: list[Range], what: str) -> None:
        self._lost += len(lost)
        if lost:
            shown = ", ".join(f"{r.topic}-{r.partition} {r.first_offset}..{r.last_offset}" for r in lost[:3])
            log.warning("%d ranges %s: %s%s", len(lost), what, shown, "" if len(lost) <= 3 else ", …")

    def lags(self, max_age_s: float = SPARK_LAG.pause_s) -> dict[tuple[str, int], int]:
        """The group's lag by partition, not older than `max_age_s`. Empty: the group has not fetched yet."""
        now = time.monotonic()
        if not self._lags or now - self._lags_at >= max_age_s:
            self._lags_at = now
            self._lags = self._gateway.lags(self._group, self._names())
        return self._lags

    def take_lost(self) -> int:
        """Return how many ranges were lost since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def close(self) -> None:
        self._renewal.close()
        self._gateway.close()
