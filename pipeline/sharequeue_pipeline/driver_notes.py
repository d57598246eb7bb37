"""Notes between the Python processes of one driver: files in its own directory for temporary files, which no other
driver has.

    note of                   left when                       read by
    an open transaction       a write is planned              the process that ends the write
    records that are given    a batch of a group is planned   the process that commits the batch
"""

import hashlib
import os
from pathlib import Path


def leave(name: str, text: str) -> None:
    """Leave a note under a name, in place of an earlier one."""
    file = _file(name)
    if file is not None:
        file.write_text(text)


def find(name: str) -> str | None:
    """The note under a name. None: this driver has left none."""
    file = _file(name)
    try:
        return None if file is None else file.read_text()
    except OSError:
        return None


def remove(name: str) -> None:
    """Remove the note under a name, if there is one."""
    file = _file(name)
    if file is not None:
        file.unlink(missing_ok=True)


def _file(name: str) -> Path | None:
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not directory or not os.path.isdir(directory):
        return None
    return Path(directory) / f"sharequeue-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
