"""Upgrades data of an earlier PostgreSQL. At each moment the old or the new data is complete.

pg_upgrade copies the old data into new data beside it, `postgresql.partial`. When the copy is complete it is
renamed to `postgresql.upgraded`. Then the old data is renamed to `postgresql.16` (its version), and the new data takes
its place. After a kill at any moment the next start finds the old data untouched, or finishes the renaming. The old
data is kept.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from sharequeue.stack.system_user import EmbeddedError

END_SECONDS: Final = 20


class Run(Protocol):
    """Runs a program to its end, as PostgreSQL's user. Returns: what it printed. Raises: EmbeddedError: it failed."""

    def __call__(
        self, program: Path, *arguments: str, text: bytes = b"", cwd: Path | None = None, password: str | None = None
    ) -> str: ...


def version_of(home: Path) -> int:
    """The version of PostgreSQL that made some data."""
    return int((home / "PG_VERSION").read_text())


def finish(home: Path) -> None:
    """Finish the renaming of an upgrade that was interrupted after its copy was complete."""
    upgraded = home.with_name(f"{home.name}.upgraded")
    if upgraded.exists():
        if home.exists():
            home.rename(kept_as(home))
        upgraded.rename(home)


def kept_as(home: Path) -> Path:
    """Where the old data is kept."""
    return home.with_name(f"{home.name}.{version_of(home)}")


def upgrade(
    home: Path,
    old: Path,
    new: Path,
    *,
    password: str,
    user: str | None,
    initialise: Callable[[str], Path],
    run: Run,
) -> Path:
    """Upgrade the data in `home`, whose server does not run.

    Args:
        old, new: directories of the programs of both versions.
        initialise: makes new data beside the old, with this option of initdb; returns where.
        run: runs a program.
    Returns: where the old data is now.
    Raises: EmbeddedError: nothing has changed; OSError.
    """
    kept = kept_as(home)
    if kept.exists():
        raise EmbeddedError(f"{kept} is in the way of an upgrade of {home}: move it to another place, or remove it")
    _end_server(home)
    _end_server(home.with_name("postgresql.partial"))
    run(
        old / "postgres", "--single", "-D", str(home), "template1"
    )  # replays the log after a crash, then shuts down cleanly
    control = run(old / "pg_controldata", str(home))
    (checksums,) = (line for line in control.splitlines() if line.startswith("Data page checksum version:"))
    partial = initialise("--no-data-checksums" if checksums.endswith(" 0") else "--data-checksums")
    with tempfile.TemporaryDirectory(prefix="sharequeue-") as directory:  # a socket's path has to be short
        if user is not None:
            shutil.chown(directory, user)
        options = ["--old-bindir", str(old), "--new-bindir", str(new), "--old-datadir", str(home)]
        options += ["--new-datadir", str(partial), "--username", "sharequeue", "--socketdir", directory]
        try:
            run(new / "pg_upgrade", *options, cwd=Path(directory), password=password)
        except BaseException:
            _end_server(home)
            _end_server(partial)
            raise
    partial.rename(home.with_name(f"{home.name}.upgraded"))
    os.sync()
    finish(home)
    return kept


def _end_server(data: Path) -> None:
    """End a server on `data` that an earlier upgrade started and that outlived it."""
    if not Path("/proc/self/cwd").exists():
        return
    deadline = time.monotonic() + END_SECONDS
    while processes := _processes_on(data):
        if time.monotonic() > deadline:
            return
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGINT)
        time.sleep(0.05)
    (data / "postmaster.pid").unlink(missing_ok=True)


def _processes_on(data: Path) -> list[int]:
    """The processes of PostgreSQL whose working directory is `data`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "cwd") == str(data) and (process / "comm").read_text().startswith("postgres"):
                found.append(int(process.name))
    return found
