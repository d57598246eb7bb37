"""A temporary directory that belongs to one process, and is removed with it, however it ends.

A process that ends by itself removes its directories. A killed one cannot, so each process, before it makes a
directory, removes those that killed ones left. The sign of life is a lock of the kernel on a file in the directory: it
ends with its process. A process id would not do: it is used again, and a container has ids of its own.
"""

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import fcntl

LOCK: Final = "owner.lock"


def make(prefix: str) -> Path:
    """A new directory below the one for temporary files, which only this user may enter."""
    if sys.platform == "win32":  # has no such locks: what a killed process leaves stays
        return _removed_at_exit(Path(tempfile.mkdtemp(prefix=prefix)))
    _remove_leftovers(prefix)
    while True:
        directory = Path(tempfile.mkdtemp(prefix=prefix))
        lock = os.open(directory / LOCK, os.O_WRONLY | os.O_CREAT, 0o600)  # stays open as long as the process lives
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (directory / LOCK).exists():  # otherwise another process took it for a leftover before it was locked
            return _removed_at_exit(directory)
        os.close(lock)


def _removed_at_exit(directory: Path) -> Path:
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _remove_leftovers(prefix: str) -> None:
    for entry in os.scandir(tempfile.gettempdir()):
        with contextlib.suppress(OSError):  # another process removes it, or its owner lives
            mine = entry.name.startswith(prefix) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if mine and entry.is_dir(follow_symlinks=False):
                _remove_if_left(Path(entry.path))


def _remove_if_left(directory: Path) -> None:
    """Raises: OSError: its owner lives, or it has no lock: it was made a moment ago."""
    lock = os.open(directory / LOCK, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)
