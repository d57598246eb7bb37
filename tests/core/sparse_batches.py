"""Batches that have lost records."""

from collections.abc import Sequence
from itertools import pairwise

from sharequeue_gateway.record_log.record_batch import RecordBatch


def sparse(batch: RecordBatch, offsets: Sequence[int]) -> RecordBatch:
    """The same batch with only these of its records, ascending."""
    bounds = pairwise([batch.base_offset - 1, *offsets, batch.last_offset + 1])
    return batch.without([(before + 1, after - 1) for before, after in bounds if before + 1 < after])
