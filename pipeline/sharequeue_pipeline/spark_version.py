"""Which Spark the package works with, and what an older one cannot do. Pure.

4.0    reads and writes of batches, and the jobs
4.1    writes of streams, by Arrow writers; filters that narrow a batch read of the log
4.2    streams as sources: `latestOffset(start, limit)` says which batch Spark has finished, and how much to take;
           Arrow schemas have times in UTC only if UTC is named
"""

from typing import Final

OLDEST: Final = (4, 0)
FILTERS: Final = (4, 1)
REGISTERED_AGAIN: Final = (4, 1)
STREAM_WRITES: Final = (4, 1)
STREAM_READS: Final = (4, 2)
NAMED_TIME_ZONE: Final = (4, 2)


def reaches(version: str, needed: tuple[int, int]) -> bool:
    """Whether a PySpark is of this version or a later one."""
    return tuple(int(part) for part in version.split(".")[:2]) >= needed


def check(version: str) -> None:
    """Raises: ImportError: this PySpark is too old for anything."""
    if not reaches(version, OLDEST):
        raise ImportError(
            f"sharequeue_pipeline needs PySpark 4.0 or later, and this is {version}: "
            "earlier versions have no data sources in Python"
        )
