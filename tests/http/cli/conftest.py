"""The command line as a user runs it: a process, its exit code, its two outputs."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from click.testing import CliRunner

from sharequeue.cli import main
from sharequeue.stack.stack import Stack

SHAREQUEUE = str(Path(sys.executable).with_name("sharequeue"))
REFUSED, WRONG_USAGE, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130
DEADLINE_S = 60
SOON = ("--timeout", "0.3")
"""Long enough without a record for the service to have handed out what there is."""

Run = Callable[..., "Done"]
Popen = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def environment(stack: Stack) -> dict[str, str]:
    return {**os.environ, "SHAREQUEUE_URL": stack.url, "COLUMNS": "200"}


class Done(NamedTuple):
    """The exit code and the outputs of a command that ended."""

    stdout: bytes
    stderr: bytes


@pytest.fixture
def run(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command in this process; `code` is the exit code it must have."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, code: int = 0) -> Done:
        done = CliRunner(env={"SHAREQUEUE_URL": stack.url}).invoke(main, arguments)
        fault = done.exception if not isinstance(done.exception, SystemExit) else None
        assert (done.exit_code, fault) == (code, None), (arguments, done.stdout, done.stderr)
        return Done(done.stdout_bytes, done.stderr_bytes)

    return run


@pytest.fixture
def process(environment: dict[str, str]) -> Run:
    """Runs one command as a process of its own; `input` is its stdin."""

    def process(*arguments: str, code: int = 0, **options: Any) -> Done:
        options = {"input": b"", "stdout": subprocess.PIPE, **options}
        done = subprocess.run(
            [SHAREQUEUE, *arguments],
            check=False,
            env=environment,
            timeout=DEADLINE_S,
            stderr=subprocess.PIPE,
            **options,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return Done(done.stdout, done.stderr)

    return process


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Popen]:
    """Starts a command that goes on; it is killed when the test ends."""
    with contextlib.ExitStack() as started:

        def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
            options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
            process = subprocess.Popen([SHAREQUEUE, *arguments], env=environment, **options)
            started.enter_context(process)
            started.callback(process.kill)
            late = threading.Timer(DEADLINE_S, process.kill)  # waiting for its output ends with the process
            late.start()
            started.callback(late.cancel)
            return process

        yield start


def ask(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = client.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def fill(client: httpx.Client, topic: str, *values: Any) -> None:
    ask(client, "POST", f"/v1/topics/{topic}/records", {"records": [{"value": value} for value in values]})


def log(client: httpx.Client, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = ask(client, "GET", f"/v1/topics/{topic}/partitions/{partition}/records")["records"]
    return records


def available(client: httpx.Client, group: str, topic: str) -> list[tuple[int, int]]:
    """The records that another member gets now, as (offset, delivery count)."""
    fetched = ask(client, "POST", f"/v1/share-groups/{group}/fetch", {"topics": [topic], "max_wait_ms": 300})
    return [(record["offset"], batch["delivery_count"]) for batch in fetched["batches"] for record in batch["records"]]
