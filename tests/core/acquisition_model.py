"""The acquisition of a fetch, offset by offset: the reference for `acquisition`. Source: KIP-932, KIP-1206."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.core.record_model import ACQUIRED, AVAILABLE, Range, Record

if TYPE_CHECKING:
    from tests.core.share_partition_model import Model


class Call:
    """One fetch: the ranges it took so far, and how much it may still take of the present read."""

    def __init__(
        self,
        model: "Model",
        member: str,
        now_ms: int,
        record_limit: bool,
        batch_size: int,
        lock_ms: int | None,
    ) -> None:
        self.model = model
        lock_ms = lock_ms or model.config.record_lock_duration_ms
        self.holder = {"member": member, "lock_ends_ms": now_ms + lock_ms, "lock_ms": lock_ms}
        self.record_limit, self.batch_size = record_limit, batch_size
        self.log: Sequence[Range] = ()
        self.most = self.new = self.before = 0
        self.taken: dict[int, int] = {}
        self.alone = False

    def look_at(self, log: Sequence[Range], most: int, new: int) -> None:
        """The next read, with the most records to take, and the most of them behind the end."""
        self.log, self.most, self.new, self.before = log, most, new, len(self.taken)

    @property
    def left(self) -> int:
        return self.most - (len(self.taken) - self.before)

    @property
    def over(self) -> bool:
        return self.alone or self.left <= 0

    def walk(self, first: int, last: int) -> None:
        """Redeliver batch by batch; fill holes that nobody read; go on behind the window."""
        records, unread = self.model.records, self.model.unread
        overlap, end, offset = self.model.between(first, last), max(records, default=-1), first
        while offset <= last and not self.over:
            if offset in records:
                batch = records[offset].batch
                same = [o for o in self.model.between(*batch) if records[o].batch == batch]
                self.redeliver([o for o in same if first <= o <= last and records[o].takeable], batch)
                offset = same[-1] + 1
                continue
            hole_end = min([o - 1 for o in records if o > offset] + [last])
            fillable = [o for o in unread if offset <= o <= hole_end]
            if offset > end or not overlap:
                self.add(offset, hole_end)
            elif fillable:
                self.add(min(fillable), hole_end)
            offset = hole_end + 1
        read_to = max(self.taken, default=-1) if self.over else last
        self.model.unread = {hole for hole in unread if hole > read_to and hole not in records}

    def redeliver(self, offsets: Sequence[int], batch: Range) -> None:
        """Of one batch: all of it in batch_optimized, the rest of the limit in record_limit,
        less when it failed often."""
        limit = self.model.config.delivery_count_limit
        often = max(2, (limit + 1) // 2)
        most = self.left if self.record_limit else len(offsets)
        if all(self.failures(o) < often for o in offsets):
            for offset in offsets[:most]:
                self.take(offset)
            return
        alone, self.alone = not self.taken, True
        if not alone:
            return
        portion = most
        for taken, offset in enumerate(offsets):
            count = self.failures(offset)
            if count >= often and portion == most:
                portion = min(most, max(1, (batch[1] - batch[0] + 1) >> (count - often + 1)))
            last_delivery = limit > 2 and count == limit - 1
            if taken >= portion or (last_delivery and taken):
                return
            self.take(offset)
            if last_delivery:
                return

    def failures(self, offset: int) -> int:
        """The attempts that throttle a record: none if a worker gave it back and the group spares such records."""
        record = self.model.records[offset]
        return record.attempt if self.model.config.throttle_released or not record.released else 0

    def take(self, offset: int) -> None:
        record = self.model.records[offset]
        self.model.records[offset] = replace(record, state=ACQUIRED, count=record.count + 1, **self.holder)
        self.taken[offset] = record.count + 1

    def add(self, first: int, last: int) -> None:
        """Records new to the window, cut at the end of the log batch in which the limit is reached."""
        model = self.model
        behind_end = first > max(model.records, default=-1)
        reach = first + (min(self.left, self.new) if behind_end else self.left) - 1
        if reach < last:
            last = min(last, next((final for base, final in self.log if base <= reach <= final), reach))
        if not model.records or first < min(model.records):
            model.start = first
        model.end = max(model.end, last)
        for begin, final in [(first, last)] if self.record_limit else self.entries(first, last):
            for offset in range(begin, final + 1):
                model.records[offset] = Record(AVAILABLE, 0, (begin, final))
                if not self.record_limit or offset <= reach:
                    self.take(offset)

    def entries(self, first: int, last: int) -> list[Range]:
        """A new entry begins where a log batch does, once the one before has `batch_size` offsets."""
        cuts = [first]
        for base, _ in self.log:
            if first < base <= last and base - cuts[-1] >= self.batch_size:
                cuts.append(base)
        return list(zip(cuts, [cut - 1 for cut in cuts[1:]] + [last], strict=True))
