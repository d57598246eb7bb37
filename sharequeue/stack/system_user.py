"""For a process of root: the user that the stores run as, and what is made for that user below /var/lib/sharequeue.

PostgreSQL refuses to run as root, so the stores run as the system user `sharequeue`. That user cannot enter a folder of
mode 0700, such as the home of root. In that case programs and data lie below /var/lib/sharequeue,
one `lock` file per folder:

    lock                          held by a process that makes or removes folders here
    wheel-<digest>/               the files of a wheel, side by side as the wheel has them
    <name>-<random>/postgresql    the data of one server, the target of a symbolic link in its data directory

A server and the process that started it hold the locks of its folders (flock, shared). Each start removes the folders
whose lock is free and that are copies, temporary data, or empty without a link to them. Other data stays even without a
link, because the directory of the link may have been moved.
"""

import contextlib
import fcntl
import hashlib
import os
import pwd
import re
import secrets
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO, Final

from sharequeue.repeats import PART_READY, Tries

HOME: Final = Path("/var/lib/sharequeue")
NAME: Final = "sharequeue"
BUSY_SECONDS: Final = 60
"""How long another process may hold the lock of HOME, to copy a wheel or to remove much data."""
TEMPORARY: Final = "temporary"
UNFINISHED: Final = (".partial", ".removed")
"""Suffixes of folders that are being made or removed. Under HOME's lock every such folder is a leftover."""
COPY: Final = re.compile(r"wheel-[0-9a-f]{16}")
NOT_RUN: Final = (".py", ".pyc", ".pyi", ".h")


class EmbeddedError(Exception):
    """A store could not be started; the text says why and what to do."""


def system_user() -> str:
    """The user that the stores run as when we are root; made if it is missing."""
    try:
        return pwd.getpwnam(NAME).pw_name
    except KeyError:
        pass
    if shutil.which("useradd"):
        command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", NAME]
        if subprocess.run(command, check=False, capture_output=True).returncode in (0, 9):
            return NAME
    return "nobody"


def make_private(directory: Path) -> None:
    """Make a directory that others cannot enter, if it is missing.
    The stores' user may pass through one that root makes."""
    try:
        directory.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not directory.is_dir():
            raise
        return
    if os.geteuid() == 0:
        os.chown(directory, -1, pwd.getpwnam(system_user()).pw_gid)
        directory.chmod(0o710)


def private(path: str, flags: int) -> int:
    """Open a file that no other user can open: an opener. A new file is so, an older one stays as it is."""
    return os.open(path, flags, 0o600)


def secret_in(file: Path, new: str = "") -> str:
    """The secret in a file. If the file is missing, it gets `new`, or a random one."""
    if not file.exists():
        partial = file.with_name(f"{file.name}.partial")  # PostgreSQL's `postgresql.partial` is a folder
        with open(partial, "w", opener=private) as opened:
            opened.write(new or secrets.token_hex(24))
        partial.rename(file)
    return file.read_text().strip()


def open_lock(file: Path) -> IO[str]:
    """A file to lock. Others could lock it if they could open it."""
    return open(file, "a+", opener=private)


def locked(file: IO[str]) -> bool:
    """Lock a file for as long as it is open in any process. Returns: whether nobody else has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def package_root(distribution: str) -> Path:
    """The directory that an installed wheel was unpacked into. Raises: EmbeddedError: it is not installed.

    The wheel is not imported, because importing the ones we use starts servers.
    """
    return Path(str(_installed(distribution).locate_file(""))).absolute()


def find_programs(distribution: str, name: str) -> list[str]:
    """The programs of an installed wheel that have this name: their paths in the wheel. Raises: EmbeddedError: none."""
    found = [str(file) for file in _installed(distribution).files or () if file.name == name]
    if not found:
        raise EmbeddedError(f"the package {distribution} has no {name}: install it again")
    return found


def _installed(distribution: str) -> metadata.Distribution:
    try:
        return metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        raise EmbeddedError(
            f"the package {distribution} is missing: install sharequeue with its extra [up], or give --postgres-url and --redis-url"
        ) from None


class Shelter:
    """The folders below HOME that one server uses. They stay while this object or a process with its `locks` exists."""

    def __init__(self, user: str) -> None:
        self._user = user
        self.locks: list[int] = []
        """Open files that each process of the server must inherit."""

    def programs(self, distribution: str, programs: Sequence[str]) -> Path:
        """Find a place where the user can start programs of a wheel: the installed wheel, or a copy of it.

        `programs`: their paths in the wheel. Returns: the directory of that wheel, with its files in their places.
        """
        installed = package_root(distribution)
        if all(_can_enter(installed / program, self._user) for program in programs):
            return installed
        files = [file for file in _installed(distribution).files or () if _is_run(file)]
        listed = "\n".join(sorted(f"{file} {file.hash} {file.size}" for file in files))
        copy = HOME / f"wheel-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"
        with _changing_home():
            if not _is_whole(copy, installed, files):
                partial = copy.with_name(f"{copy.name}.partial")
                shutil.rmtree(partial, ignore_errors=True)
                _copy(installed, files, partial)
                os.sync()  # a machine that loses its power must not keep the name of a copy without its bytes
                if copy.exists():
                    with contextlib.suppress(FileNotFoundError):
                        os.link(copy / "lock", partial / "lock")  # servers that run from the damaged copy hold it
                    _discard(copy)
                partial.rename(copy)
            self._hold(copy)
        return copy

    def data(self, link: Path, temporary: bool) -> Path:
        """Return where the data of `link` is: at `link`, or at its target.
        A new folder below HOME if the user cannot reach `link`.

        `temporary`: the data is worthless once no process holds it.
        """
        if not link.is_symlink() and (link.exists() or _can_enter(link.parent, self._user)):
            return link
        with _changing_home():
            if not link.is_symlink():
                folder = Path(tempfile.mkdtemp(prefix=f"{link.parent.parent.name[:60]}-", dir=HOME))
                folder.chmod(0o755)
                self._hold(folder, TEMPORARY if temporary else f"data of {link}")
                link.symlink_to(folder / link.name)
            else:
                folder = link.resolve().parent
                folder.mkdir(parents=True, exist_ok=True)
                if folder.parent == HOME:
                    self._hold(folder, TEMPORARY if temporary else f"data of {link}")
        return link.resolve()

    def _hold(self, folder: Path, note: str = "") -> None:
        """Take the shared lock of a folder. Its file names the owner of the data;
        data of a user never becomes temporary.

        The caller holds the lock of HOME.
        """
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if note != TEMPORARY or not os.fstat(lock).st_size:
            os.ftruncate(lock, 0)
            os.write(lock, note.encode())
        self.locks.append(lock)


def remove_data(home: Path) -> None:
    """Delete the data of a server that has ended, with its folder if it lies below HOME."""
    if home.parent.parent == HOME:
        _discard(home.parent)
    else:
        shutil.rmtree(home, ignore_errors=True)


def remove_leftovers() -> None:
    """Remove the leftovers of killed runs below HOME."""
    if not HOME.exists():
        return
    with _changing_home():
        for folder in HOME.iterdir():
            with contextlib.suppress(OSError):  # the next start tries again
                if folder.is_dir() and not folder.is_symlink() and _is_left(folder):
                    _discard(folder)


def _is_left(folder: Path) -> bool:
    """Return whether a folder of HOME is a leftover. The caller holds the lock of HOME."""
    if folder.suffix in UNFINISHED:
        return True
    try:
        lock = (folder / "lock").open()
    except FileNotFoundError:
        return not any(folder.iterdir())
    with lock:
        if not locked(lock):
            return False
        note = lock.read()
    if COPY.fullmatch(folder.name) or note == TEMPORARY:
        return True
    link = Path(note.removeprefix("data of "))
    has_data = any(file.parent.suffix not in UNFINISHED for file in folder.glob("*/PG_VERSION"))
    return not has_data and not (link.is_symlink() and link.resolve().parent == folder)


@contextlib.contextmanager
def _changing_home() -> Iterator[None]:
    """Hold the lock of HOME: no other process makes or removes folders there. Raises: EmbeddedError; OSError."""
    if not HOME.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        HOME.chmod(0o755)
    with open_lock(HOME / "lock") as lock:
        tries = Tries(PART_READY, BUSY_SECONDS)
        while not locked(lock):
            if not tries.rest():
                raise EmbeddedError(
                    f"another process has held {HOME / 'lock'} for {BUSY_SECONDS} s: end it, then try again"
                )
        yield


def _discard(folder: Path) -> None:
    """Remove a folder of HOME. After an interruption the rest has the suffix `.removed`."""
    removed = folder.with_name(f"{folder.name}.removed") if folder.suffix not in UNFINISHED else folder
    folder.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def _can_enter(path: Path, user: str) -> bool:
    """Return whether the modes of a directory or a program, and of its parents, let a user in, or start it: those by
    which it is named, and those that links lead to."""
    account = pwd.getpwnam(user)
    for place in (path, *path.parents, *path.resolve().parents):
        status = place.stat()
        needed = 0o100 if status.st_uid == account.pw_uid else 0o010 if status.st_gid == account.pw_gid else 0o001
        if not status.st_mode & needed:
            return False
    return True


def _is_run(file: metadata.PackagePath) -> bool:
    """Return whether a program of the wheel may need this file: not Python, not a header, not added by pip."""
    return file.suffix not in NOT_RUN and ".." not in file.parts and not file.parts[0].endswith(".dist-info")


def _is_whole(copy: Path, root: Path, files: Sequence[metadata.PackagePath]) -> bool:
    """Return whether a copy has each file in its size: a full disk or a person may have damaged it."""
    with contextlib.suppress(OSError):
        return all((copy / file).stat().st_size == (root / file).stat().st_size for file in files)
    return False


def _copy(root: Path, files: Sequence[metadata.PackagePath], copy: Path) -> None:
    for file in files:
        source, target = root / file, copy / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)
    for directory in (copy, *(place for place in copy.rglob("*") if place.is_dir())):
        directory.chmod(0o755)  # independent of the umask
