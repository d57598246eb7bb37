"""The member of a share group that a streaming query is: it acquires, holds and settles the records of one micro-batch.

It knows batches by their number and ranges by their offsets, and nothing of Spark.
"""

import json
import logging
import os
import time
from pathlib import Path
from typing import Any, Final

from sharequeue.protocol.messages.records import FetchRequest
from sharequeue.protocol.types import AcquireMode
from sharequeue_pipeline import ranges
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.bounded_read import BoundedRead
from sharequeue_pipeline.source.lock_renewal import LockRenewal

log = logging.getLogger(__name__)

MAX_RANGES: Final = 10_000
"""Of one offset: at most about 300 KiB of text."""
WAIT_MS: Final = 1000
"""How long a fetch waits for records before Spark hears that there are none."""
GATHER_S: Final = 5.0
"""How long one batch gathers records: those near their delivery limit come one by one."""


class GroupMember:
    """One member of the group. It holds the records of one batch at a time."""

    def __init__(self, options: SourceOptions, group: str, member_id: str, report_to: str | None) -> None:
        self.member_id = member_id
        self._options = options
        self._group = group
        self._gateway = GatewayClient(options.gateway)
        self._acquired_batch = -1
        """The last batch whose ranges this process acquired or renewed."""
        self._renewed: tuple[int, list[Range]] = (-1, [])
        """The last batch of an earlier process, and those of its ranges that were still held."""
        self._settled_batch = 0
        self._lost = 0
        config = self._gateway.group_config(group)
        may_renew = config["share.renew.acknowledge.enable"] == "true"
        self._renewal = LockRenewal(options.gateway, group, member_id) if options.lock_renew and may_renew else None
        if options.lock_renew and not may_renew:
            log.warning(
                "group %s does not allow renewing locks: a batch that takes longer than a lock is delivered again",
                group,
            )
        if report_to is not None:
            _leave_report(report_to, member_id, options)
        self._warn_of_limit(int(config["share.partition.max.record.locks"]))

    def _warn_of_limit(self, locks: int) -> None:
        wanted = self._options.max_records_per_trigger
        if wanted is None:
            return
        partitions = sum(len(self._gateway.describe(topic).partitions) for topic in self._options.topics)
        if wanted > locks * partitions:
            log.warning(
                "a batch takes at most %d records, not maxRecordsPerTrigger=%d: "
                "share.partition.max.record.locks of group %s is %d, and there are %d partitions",
                locks * partitions,
                wanted,
                self._group,
                locks,
                partitions,
            )

    def acquire(self, batch: int, max_records: int, bounded: BoundedRead | None) -> list[Range]:
        """Acquire the ranges of a batch. Returns: the ranges, joined.

        The fetch ids come from the batch number, so a restart gets the ranges that an earlier process acquired and did
        not write into the checkpoint.
        """
        acquired: list[Range] = []
        room = max_records
        number = 0
        enough_at = time.monotonic() + GATHER_S
        while room > 0 and len(acquired) < MAX_RANGES and (not acquired or time.monotonic() < enough_at):
            if bounded is not None and not bounded.left:
                break
            request = FetchRequest(
                topics=list(self._options.topics) if bounded is None else None,
                topic_partitions=None if bounded is None else bounded.left,
                member_id=self.member_id,
                max_records=min(room, MAX_RANGES - len(acquired)),
                max_wait_ms=WAIT_MS if bounded is None and not acquired else 0,
                acquire_mode=AcquireMode(self._options.acquire_mode),
                fetch_id=f"{batch}.{number}",
                with_records=False,
            )
            found, lock_ms = self._gateway.fetch(self._group, request)
            if not found:
                break
            if bounded is not None:
                bounded.note(found)
            if self._renewal is not None:
                self._renewal.hold(batch, [*acquired, *found], lock_ms)
            room -= sum(entry.size for entry in found)
            acquired = ranges.joined([*acquired, *found])
            number += 1
        if acquired:
            self._acquired_batch = batch
        return acquired

    def held(self, offset: dict[str, Any]) -> list[Range]:
        """The ranges of a batch that this member holds. If an earlier process acquired them, they are renewed first."""
        if offset["batch"] == self._renewed[0]:
            return self._renewed[1]
        held = ranges.decode(offset["ranges"])
        if offset["batch"] == self._acquired_batch:
            return held
        lost = self._gateway.acknowledge(self._group, self.member_id, held, "renew")
        self._acquired_batch = offset["batch"]
        self._count_lost(lost, "are not read again: their locks ended before the query restarted")
        gone = set(lost)
        held = [entry for entry in held if entry not in gone]
        self._renewed = (offset["batch"], held)
        if self._renewal is not None and held:
            lock_ms = int(self._gateway.group_config(self._group)["share.record.lock.duration.ms"])
            self._renewal.hold(offset["batch"], held, lock_ms)
        return held

    def settle(self, offset: dict[str, Any]) -> None:
        """Accept the ranges of a finished batch, once."""
        if offset["batch"] <= self._settled_batch:
            return
        if self._renewal is not None:
            self._renewal.drop(offset["batch"])
        batch, held = self._renewed
        finished = held if batch == offset["batch"] else ranges.decode(offset["ranges"])
        lost = self._gateway.acknowledge(self._group, self.member_id, finished, "accept")
        self._count_lost(
            lost, "were processed, but not accepted, because their locks had ended: they are delivered again"
        )
        self._settled_batch = offset["batch"]

    def _count_lost(self, lost: list[Range], what: str) -> None:
        self._lost += len(lost)
        if lost:
            shown = ", ".join(f"{r.topic}-{r.partition} {r.first_offset}..{r.last_offset}" for r in lost[:3])
            log.warning("%d ranges %s: %s%s", len(lost), what, shown, "" if len(lost) <= 3 else ", …")

    def take_lost(self) -> int:
        """How many ranges were lost since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def close(self) -> None:
        if self._renewal is not None:
            self._renewal.close()
        self._gateway.close()


def _leave_report(directory: str, member_id: str, options: SourceOptions) -> None:
    """Write a file for `query_end`, which settles for this member in the driver program when the query has ended."""
    gateway = options.gateway
    report = {
        "url": gateway.url,
        "token": gateway.token,
        "timeout_ms": gateway.timeout_ms,
        "group": options.group,
        "on_error": options.on_error,
    }
    try:
        file = os.open(Path(directory) / member_id, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as fault:
        log.warning("the query cannot settle its records when it ends, so their locks will run out: %s", fault)
        return
    with open(file, "w") as opened:
        json.dump(report, opened)
