"""Metrics of appends: the bytes of batches, before and after compression. The record log knows the numbers; it imports
no metrics."""

from collections.abc import Iterator
from typing import Final

from sharequeue.service.series import Family
from sharequeue_gateway.record_log.compression import Compression

APPENDED: Final = Family(
    "sharequeue_appended_batch_bytes_total",
    "counter",
    "Bytes of the record batches that this gateway appended, before compression.",
)
STORED: Final = Family(
    "sharequeue_stored_batch_bytes_total",
    "counter",
    "Bytes of the same batches in PostgreSQL. The ratio of both counters is what compression saves.",
)
FAMILIES: Final = (APPENDED, STORED)
"""As docs/metrics.md lists them."""


def series(compression: Compression) -> Iterator[str]:
    """The metrics, as lines of text."""
    for family, number in ((APPENDED, compression.appended_bytes), (STORED, compression.stored_bytes)):
        yield family.head
        yield family.line(number)
