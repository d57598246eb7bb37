"""`sharequeue work` as a program: several processes, one that dies, SIGTERM, and what it refuses."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from sharequeue.stack.stack import Stack
from sharequeue.worker.supervisor import _Child
from tests.http.calls import Gateway, wait_until

WORK = (sys.executable, "-c", "from sharequeue.cli import main; main()", "work")
SHOP = """
import os, time
from sharequeue.worker import Worker

app = Worker({url!r}, lock="2s", set_retries=False)

@app.task({name!r}, group={name!r}, concurrency=2)
def fulfil(value: int) -> None:
    time.sleep(value)
    with open({done!r}, "a") as file:
        file.write(f"{{value}} {{os.getpid()}}\\n")
"""


@contextmanager
def work(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The program, until the test ends."""
    with subprocess.Popen([*WORK, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_process_that_dies_is_started_again(shared_stack: Stack, gateway: Gateway, name: str, tmp_path: Path) -> None:
    """Two processes; one is killed with a record in hand. SIGTERM waits for what runs, and ends both."""
    done = tmp_path / "done"
    done.touch()
    (tmp_path / "shop.py").write_text(SHOP.format(url=shared_stack.url, name=name, done=str(done)))
    gateway.produce(name, *([0] * 20))
    with work(tmp_path, "shop:app", "--processes", "2", "--grace", "60s") as process:
        children = wait_until(lambda: (found := psutil.Process(process.pid).children()) and len(found) == 2 and found)
        wait_until(lambda: len(done.read_text().splitlines()) == 20)
        wait_until(lambda: gateway.window(name, name) == (20, []))  # their outcomes were sent, too
        os.kill(children[0].pid, signal.SIGKILL)
        gateway.produce(name, *([0] * 20))
        wait_until(lambda: len(done.read_text().splitlines()) >= 40)
        fresh = wait_until(
            lambda: [child for child in psutil.Process(process.pid).children() if child.pid not in (children[0].pid,)][
                1:
            ]
        )
        assert fresh[0].pid not in [child.pid for child in children]
        gateway.produce(name, 3)
        wait_until(lambda: gateway.window(name, name)[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        said = process.stderr.read()
    assert "3 " in done.read_text()
    assert "a process ended with code -9" in said
    assert gateway.window(name, name) == (41, [])
    assert not [child for child in children if child.is_running()]


def test_a_program_that_cannot_start_ends_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    with work(tmp_path, "broken:app", "--processes", "2") as process:
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None
        assert "No module named 'nothing_of_this_name'" in process.stderr.read()


def test_a_process_that_is_started_again_is_not_broken() -> None:
    """Otherwise a pool ends when each of its processes has died young once, days apart."""
    child = _Child(["nothing_here:app"])
    for _ in range(2):
        child.start()
        assert child.process is not None
        assert not child.broken
        child.process.wait(timeout=60)
        assert child.ended() == 2
        assert child.broken


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop", "not of the form MODULE:APP"),
        ("nothing_here:app", "No module named 'nothing_here'"),
        ("empty:app", "has no task"),
        ("empty:other", "empty has no other"),
        ("empty:text", "is no sharequeue.worker.Worker"),
    ],
)
def test_a_target_of_no_use_is_wrong_usage(target: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("from sharequeue.worker import Worker\napp = Worker()\ntext = ''\n")
    with work(tmp_path, target) as process:
        assert process.wait(timeout=60) == 2
        assert process.stderr is not None
        assert said in process.stderr.read()


SHOP_TESTS = """
from sharequeue.client.sync import Producer

def test_first(sharequeue_url):
    with Producer(sharequeue_url) as producer:
        assert producer.send("orders", 1).offset == 0

def test_second(sharequeue_url):
    with Producer(sharequeue_url) as producer:
        assert producer.send("orders", 2).offset == 1
"""


@pytest.mark.soak
def test_pytest_has_a_stack_for_the_tests_of_a_program(tmp_path: Path) -> None:
    """One for all tests of the run, which leaves neither a process nor its data behind."""
    (tmp_path / "test_shop.py").write_text(SHOP_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "--basetemp=b"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert not any(path.exists() for path in (tmp_path / "b").rglob("data/postgresql"))
    assert [
        process for process in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(process.info["cmdline"])
    ] == []
