"""Which Spark the package works with. Pure.

A stream of a group needs to know which batch Spark has finished, and how much to take: `latestOffset(start, limit)`.
Python sources have it since Spark 4.2, and Arrow writers of streams since 4.1.
"""

from typing import Final

OLDEST: Final = (4, 2)


def check(version: str) -> None:
    """Raises: ImportError: this PySpark is too old."""
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ImportError(
            f"sharequeue_pipeline needs PySpark 4.2 or later, and this is {version}: "
            "earlier versions do not tell a Python source where a micro-batch begins"
        )
