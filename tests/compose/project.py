"""The compose project of the test: docker-compose.yml with secrets, ports and a name of its own."""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from sharequeue.stack.process import free_port
from tests.compose import compose_file
from tests.compose.engine import Engine, EngineError
from tests.compose.stand_ins import build_arguments

PROJECT: Final = "sharequeue-compose-test"
SERVICES: Final = ("gateway", "coordinator", "share-coordinator")
HEALTHY_SECONDS: Final = 180
PUBLISHED_PORT: Final = "SHAREQUEUE_PUBLISHED_PORT"


class Project:
    """The compose project of the test."""

    def __init__(self, engine: Engine, home: Path) -> None:
        self.engine = engine
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._home = home
        self._environment = engine.environment | {PUBLISHED_PORT: str(self.port)}
        self._secrets = compose_file.make_environment_file(home)
        for name in compose_file.read_environment_file(self._secrets):
            self._environment.pop(name, None)
        self._command = [*engine.compose_command(), "--project-directory", str(compose_file.ROOT)]
        self._command += [
            "--project-name",
            PROJECT,
            "--file",
            str(compose_file.FILE),
            "--file",
            str(self._override(home)),
        ]

    def _override(self, home: Path) -> Path:
        """An addition to the file: how builds reach the Python index, and containers of our engine a name server."""
        build: dict[str, Any] = {"args": build_arguments()}
        ours: dict[str, Any] = {"build": build}
        if self.engine.own:
            build["network"] = "host"
            ours["dns"] = [self.engine.name_server]
        built = [name for name, service in compose_file.load(self.secrets())["services"].items() if "build" in service]
        file = home / "override.json"
        file.write_text(json.dumps({"services": dict.fromkeys(built, ours)}))
        return file

    def secrets(self) -> dict[str, str]:
        return compose_file.read_environment_file(self._secrets)

    def login(self) -> dict[str, str]:
        """The header that a caller needs."""
        return {"Authorization": f"Bearer {self.secrets()['SHAREQUEUE_ADMIN_KEY']}"}

    def compose(self, *arguments: str, secrets: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run compose with the .env that was made, or another one."""
        command = [*self._command, "--env-file", str(secrets or self._secrets), *arguments]
        return subprocess.run(
            command,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def do(self, *arguments: str) -> None:
        """Run compose. Raises: EngineError."""
        done = self.compose(*arguments)
        if done.returncode:
            raise EngineError(f"compose {' '.join(arguments)} failed:\n{done.stdout[-8000:]}")

    @contextlib.contextmanager
    def shown(self, command: str) -> Iterator[list[str]]:
        """A command of a page, `NAME=VALUE docker compose up --scale SERVICE=3`, until Ctrl-C at the end of the block.

        Ports that it publishes are replaced by free ones. Yields: the URLs of the gateways, when all is healthy.
        """
        words = shlex.split(command)
        start = words.index("docker")
        variables = dict(word.split("=", 1) for word in words[:start])
        options = words[start + 2 :]
        assert words[start : start + 2] == ["docker", "compose"], command
        ports = range(self.port, self.port + 1)
        if PUBLISHED_PORT in variables:
            first, _, last = variables[PUBLISHED_PORT].partition("-")
            ports = free_ports(int(last) - int(first) + 1)
            variables[PUBLISHED_PORT] = f"{ports[0]}-{ports[-1]}"
        log_file = self._home / "shown.log"
        with log_file.open("w") as log:
            process = subprocess.Popen(
                [*self._command, "--env-file", str(self._secrets), *options],
                env=self._environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        scaled = dict.fromkeys(SERVICES, 1) | {
            service: int(number)
            for place, word in enumerate(options)
            if word == "--scale"
            for service, number in [options[place + 1].split("=")]
        }

        def up() -> bool:
            if process.poll() is not None:
                raise EngineError(f"{command} ended with {process.returncode}:\n{log_file.read_text()[-8000:]}")
            with contextlib.suppress(EngineError):  # compose replaces containers: one may be gone when it is looked at
                return all(self.health(service) == ["healthy"] * number for service, number in scaled.items())
            return False

        try:
            self.wait(f"{command}: all healthy", up)
            yield [f"http://127.0.0.1:{port}" for port in ports]
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(HEALTHY_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise

    def container(self, service: str) -> dict[str, Any]:
        (container,) = self.engine.containers(PROJECT, service)
        return container

    def up(self, command: str = "up --detach") -> None:
        """Returns when all services are healthy. The older docker-compose has no `--wait`. Raises: EngineError."""
        missing = {"--wait"} if self._command[0] == "docker-compose" else set()
        self.do(*(word for word in command.split() if word not in missing))
        for service in SERVICES:
            self.wait(f"{service} is healthy", lambda service=service: self.health(service) == ["healthy"])  # type: ignore[misc]

    def health(self, service: str) -> list[str]:
        """Of each container of the service; "created" before its start."""
        states = [container["State"] for container in self.engine.containers(PROJECT, service)]
        return [state["Health"]["Status"] if "Health" in state else state["Status"] for state in states]

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Raises: EngineError: not within HEALTHY_SECONDS."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise EngineError(f"not within {HEALTHY_SECONDS} s: {what}")
            time.sleep(0.3)

    def wait_for(self, check: Callable[[], None]) -> None:
        """Repeat a check until it passes. Raises: its error, after HEALTHY_SECONDS."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while True:
            try:
                return check()
            except (AssertionError, httpx.TransportError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.3)


@contextlib.contextmanager
def project(engine: Engine, home: Path) -> Iterator[Project]:
    """The project, taken down in the end with all its data. A failure is reported with the containers' logs."""
    stack = Project(engine, home)
    stack.do("down", "--volumes", "--remove-orphans")
    try:
        yield stack
    except BaseException:
        output = stack.compose("ps", "--all").stdout + stack.compose("logs", "--no-color", "--tail=60").stdout
        print(output, file=sys.stderr, flush=True)
        stack.compose("down", "--volumes", "--remove-orphans")
        raise
    stack.do("down", "--volumes", "--remove-orphans")


def free_ports(number: int) -> range:
    """Ports of the loopback address, one after another, that nobody uses now."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as bound, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + number):
                bound.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return range(first, first + number)
