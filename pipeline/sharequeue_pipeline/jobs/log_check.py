"""Faults in a stretch of the log: between its batches, and between batches and their records. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from sharequeue.protocol.messages.audit import LogBatch


def batch_faults(batches: Sequence[LogBatch], begin: int, end: int, log_start_offset: int) -> Iterator[str]:
    """Find holes, overlaps and impossible batches in a stretch.

    Args:
        batches: ascending, from the one that holds `begin`; the last may reach beyond `end`.
        begin, end: the stretch; `end` is exclusive, and lies within the log.
        log_start_offset: a hole below it is not a fault: those batches are being removed.
    """
    expected = max(begin, log_start_offset)
    before: LogBatch | None = None
    for batch in batches:
        named = f"the batch {batch.base_offset}-{batch.last_offset}"
        size = batch.last_offset - batch.base_offset + 1
        if size < 1:
            yield f"{named} ends before it begins"
        elif not 0 <= batch.record_count <= size:
            yield f"{named} has the record count {batch.record_count}, with {size} offsets"
        if before is not None and batch.base_offset <= before.last_offset:
            yield f"{named} overlaps the batch {before.base_offset}-{before.last_offset}"
        if batch.base_offset > expected and expected < end:
            yield f"the log has no batch with the offsets {expected} to {min(batch.base_offset, end) - 1}"
        expected = max(expected, batch.last_offset + 1)
        before = batch
    if expected < end:
        yield f"the log has no batch with the offsets {expected} to {end - 1}"


def record_faults(batches: Sequence[LogBatch], counted: Mapping[int, int], log_start_offset: int) -> Iterator[str]:
    """Find batches whose record count is not the number of their records.

    Args:
        counted: the number of records read, by the base offset of their batch; under -1 those of no batch.
    """
    if counted.get(-1):
        yield f"{counted[-1]} records lie in no batch"
    for batch in batches:
        found = counted.get(batch.base_offset, 0)
        if batch.base_offset >= log_start_offset and found != batch.record_count:
            named = f"the batch {batch.base_offset}-{batch.last_offset}"
            yield f"{named} has the record count {batch.record_count}, but {found} records can be read"
