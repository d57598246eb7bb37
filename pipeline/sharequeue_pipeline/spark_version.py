"""The versions of Spark that the package works with, and what each can do. Pure.

- 4.0 reads and writes batches, runs the jobs, and reads streams of the log without limits of a micro-batch.
- 4.1 writes streams, by Arrow writers; it may find the format by itself, because a session can register it all the
  same.
- 4.2 reads streams of groups, and limits those of the log: `latestOffset(start, limit)` says which batch it has
  finished, and how much to take. It works with any Java from 17 on. Its Arrow schemas have times in UTC only if UTC is
  named.
"""

from typing import Final

OLDEST: Final = (4, 0)
FOUND_BY_SPARK: Final = (4, 1)
STREAM_WRITES: Final = (4, 1)
STREAM_LIMITS: Final = (4, 2)
NEWEST_JAVA: Final = (4, 2)
NAMED_TIME_ZONE: Final = (4, 2)


def reaches(version: str, needed: tuple[int, int]) -> bool:
    """Return whether a PySpark is of this version or a later one."""
    return tuple(int(part) for part in version.split(".")[:2]) >= needed


def check(version: str) -> None:
    """Raises: ImportError: this PySpark has no data sources in Python."""
    if not reaches(version, OLDEST):
        raise ImportError(
            f"sharequeue_pipeline needs PySpark 4.0 or later, and this is {version}: "
            "Spark 3 has no data sources in Python"
        )
