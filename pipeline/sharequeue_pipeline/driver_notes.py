"""Notes between the Python processes of one driver: files in the directory of its SparkFiles.

A process of a stream or of a session has a part of that directory for its own.

    note of                    left when                       read by
    an open transaction        a write is planned              the process that ends the write
    records that are given     a batch of a group is planned   the process that commits the batch
    what a job has settled     `settle` ends                   the process that accepts the batch
    a write with a `writeId`   it is committed                 the program that asked for it
"""

import hashlib
from pathlib import Path

from pyspark import SparkFiles


def leave(name: str, text: str) -> None:
    """Leave a note under a name, in place of an earlier one."""
    file = _file(name)
    if file is not None:
        file.write_text(text)


def add(name: str, text: str) -> None:
    file = _file(name)
    if file is not None:
        with file.open("a") as opened:
            opened.write(text + "\n")


def find(name: str) -> str | None:
    """The note under a name. None: this driver has left none."""
    file = _file(name)
    try:
        return None if file is None else file.read_text()
    except OSError:
        return None


def remove(name: str) -> None:
    file = _file(name)
    if file is not None:
        file.unlink(missing_ok=True)


def _file(name: str) -> Path | None:
    try:
        own = Path(SparkFiles.getRootDirectory())
    except AssertionError:  # a program without Spark
        return None
    whole = next((each for each in (own, *own.parents) if each.name.startswith("userFiles-")), own)
    return whole / f"sharequeue-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
