"""The client and the command line where modules and signals of Unix do not exist, as on Windows.

Python's own modules and the libraries have ways of their own there, so they are loaded first; then what Windows lacks
is taken away, and only this project's code meets the gap.
"""

import json
import signal
import subprocess
import sys

import pytest

from sharequeue.stack.stack import Stack

WINDOWS = """
import asyncio, ctypes, os, shutil, signal, subprocess, sys, tempfile
import click, httptools, msgspec

MISSING = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty", "uvloop"}


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def no_handler(*_):
    raise NotImplementedError


for name in MISSING:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Finder())
for name in ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGCONT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGPIPE"):
    delattr(signal, name)
for name in ("O_CLOEXEC", "O_NONBLOCK", "fork", "geteuid", "getuid", "getgid", "killpg", "setsid"):
    delattr(os, name)
asyncio.SelectorEventLoop.add_signal_handler = no_handler
asyncio.SelectorEventLoop.remove_signal_handler = no_handler
"""
DEADLINE_S = 60


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """Nothing here stops any of it."""
    return shared_stack


def on_windows(code: str, *arguments: str, exit_code: int = 0) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WINDOWS + code, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == exit_code, (arguments, done.stdout, done.stderr)
    return done


def sharequeue(*arguments: str, exit_code: int = 0) -> "subprocess.CompletedProcess[str]":
    return on_windows("from sharequeue.cli import main; main()", *arguments, exit_code=exit_code)


def test_client_produces_and_consumes(stack: Stack, name: str) -> None:
    code = """
from sharequeue.client.sync import Producer, ShareConsumer
_, url, name = sys.argv
with Producer(url) as producer:
    producer.send(name, {"id": 1})
with ShareConsumer(url, name, [name], acknowledgement="explicit") as consumer:
    (record,) = consumer.poll()
    consumer.acknowledge(record)
    print(record.value["id"], consumer.commit())
"""
    assert on_windows(code, stack.url, name).stdout == f"1 {{('{name}', 0): 1}}\n"


def test_command_line_produces_and_consumes(stack: Stack, name: str) -> None:
    at = ("--url", stack.url)
    assert sharequeue("produce", name, __file__, "--json", *at).stdout.startswith("{")
    consumed = sharequeue("consume", name, "-g", name, "--max-records", "2", "--json", *at).stdout
    assert [json.loads(line)["offset"] for line in consumed.splitlines()] == [0, 1]
    assert sharequeue("topics", "read", name, "--max-records", "1", *at).stdout.startswith('"""The client')
    assert json.loads(sharequeue("healthcheck", stack.url).stdout)["status"] == "ready"


def test_help_shows_all_commands_and_up_says_where_it_runs() -> None:
    assert "  up " in sharequeue("--help").stdout
    said = sharequeue("up", exit_code=1).stderr
    assert said == "sharequeue up: this needs Linux or macOS: Python has no module pwd on this system\n"


def test_first_interrupt_stops_and_second_one_ends_the_process() -> None:
    code = """
from sharequeue.cli.printing import stopping

async def run():
    stopped = asyncio.Event()
    with stopping(stopped.set):
        signal.raise_signal(signal.SIGINT)
        await stopped.wait()
        print("stopped", flush=True)
        signal.raise_signal(signal.SIGINT)

asyncio.run(run())
"""
    assert on_windows(code, exit_code=-signal.SIGINT).stdout == "stopped\n"
