"""What a killed driver leaves is removed by the next one, and what a living one has stays."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sharequeue_pipeline import own_directory

OWNER = """
import sys
from sharequeue_pipeline import own_directory
made = own_directory.make("sharequeue-test-")
(made / "member").write_text("a token")
print(made, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner(temporary: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], Path]]]:
    """Starts processes that make a directory each, and ends them after the test."""
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER],
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        process.kill()
        process.communicate()


Owner = Callable[[], tuple[subprocess.Popen[str], Path]]


def test_a_process_removes_its_directory(owner: Owner, temporary: Path) -> None:
    process, made = owner()
    assert (made.parent, made.stat().st_mode & 0o777) == (temporary, 0o700)
    process.communicate("\n")
    assert not made.exists()


def test_the_next_one_removes_what_a_killed_process_left(owner: Owner, temporary: Path) -> None:
    """Not what a living one has, what has another prefix, or what no lock says anything about."""
    killed, left = owner()
    _, lives = owner()
    other = temporary / "sharequeue-java-x"
    other.mkdir()
    (other / own_directory.LOCK).touch()
    unknown = temporary / "sharequeue-test-unknown"
    unknown.mkdir()
    (temporary / "sharequeue-test-link").symlink_to(other)
    (temporary / "sharequeue-test-file").touch()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert (left / "member").read_text() == "a token"
    made = own_directory.make("sharequeue-test-")
    assert not left.exists()
    assert all(each.exists() for each in (made, lives / "member", other / own_directory.LOCK, unknown))
    assert {each.name for each in temporary.iterdir()} == {
        *(each.name for each in (made, lives, other, unknown)),
        "sharequeue-test-link",
        "sharequeue-test-file",
    }
