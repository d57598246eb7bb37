"""The Docker engine of the compose test: the running one, else one of our own that ends with the test.

Our own is Debian's, installed by apt as root. It listens on its own socket, keeps its data in a directory of the test
and leaves the machine's firewall and routing alone: containers reach each other and are reached from this machine, no
more; images are built on this machine's network. `name_server` answers for names that are not containers.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.compose.name_server import name_server

PACKAGES: Final = ("docker.io", "docker-compose")
START_SECONDS: Final = 60
STOP_SECONDS: Final = 60
PULL_SECONDS: Final = 600


class EngineError(Exception):
    """The engine, or what it was asked for, failed; the text says what."""


class Engine:
    """A running engine. `own`: it is ours, and images must be built on this machine's network. `name_server`: what
    its containers ask for other names than theirs."""

    def __init__(self, *, own: bool, host: str | None = None, name_server: str | None = None) -> None:
        self.own = own
        self.name_server = name_server
        self.environment = dict(os.environ)
        if host is not None:
            # Debian's engine has no BuildKit; and what a user of another engine has set is not for ours.
            self.environment |= {"DOCKER_HOST": host, "DOCKER_BUILDKIT": "0"}
            self.environment.pop("DOCKER_CONTEXT", None)

    def docker(self, *arguments: str, timeout: float | None = None) -> str:
        """Run `docker`. Returns: its output. Raises: EngineError."""
        try:
            done = subprocess.run(
                ["docker", *arguments],
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
            )
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise EngineError(f"docker {' '.join(arguments)}: {fault}") from fault
        if done.returncode:
            raise EngineError(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def has_image(self, name: str) -> bool:
        return name in self.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split()

    def pull(self, name: str) -> bool:
        """Whether the image is there, now or after a pull."""
        if self.has_image(name):
            return True
        try:
            self.docker("pull", "--quiet", name, timeout=PULL_SECONDS)
        except EngineError as fault:
            say(f"cannot pull {name}: {str(fault).splitlines()[-1]}")
            return False
        return True

    def compose_command(self) -> list[str]:
        """`docker compose` where it is installed, else `docker-compose`. Raises: EngineError."""
        with contextlib.suppress(EngineError):
            self.docker("compose", "version")
            return ["docker", "compose"]
        if shutil.which("docker-compose") is None:
            raise EngineError("neither `docker compose` nor `docker-compose` is installed")
        return ["docker-compose"]

    def containers(self, project: str, service: str = "") -> list[dict[str, Any]]:
        """The answers of `docker inspect` about a compose project's containers, or about those of one service."""
        label = f"label=com.docker.compose.project={project}"
        ids = self.docker("ps", "--all", "--quiet", "--filter", label).split()
        found = json.loads(self.docker("inspect", *ids)) if ids else []
        return [container for container in found if service in ("", service_of(container))]


def service_of(container: dict[str, Any]) -> str:
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


def say(text: str) -> None:
    print(f"compose-test: {text}", flush=True)


@contextlib.contextmanager
def engine(home: Path) -> Iterator[Engine]:
    """The running engine, else our own with its data in `home`. Raises: EngineError."""
    running = Engine(own=False)
    try:
        running.docker("info")
    except EngineError as fault:
        say(f"no engine is running ({str(fault).splitlines()[-1]}): starting one")
    else:
        yield running
        return
    _install()
    with name_server() as address, _own_engine(home, address) as own:
        yield own


def _install() -> None:
    missing = [name for name in ("dockerd", "docker", "docker-compose") if shutil.which(name) is None]
    if not missing and os.geteuid() == 0:
        return
    if os.geteuid() != 0:
        raise EngineError("no Docker engine is running, and only root can start one: start it, or run this as root")
    install_packages(*PACKAGES)


def install_packages(*names: str) -> None:
    """Debian's packages, by apt. Raises: EngineError."""
    if shutil.which("apt-get") is None:
        raise EngineError(f"{', '.join(names)} must be installed, and this machine has no apt-get")
    say(f"installing {', '.join(names)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *names]):
        done = subprocess.run(
            ["apt-get", "--quiet", *command], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise EngineError(f"apt-get {' '.join(command)} failed:\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def _own_engine(home: Path, name_server: str) -> Iterator[Engine]:
    own = Engine(own=True, host=f"unix://{home}/docker.sock", name_server=name_server)
    command = ["dockerd", "--host", f"unix://{home}/docker.sock", "--pidfile", str(home / "dockerd.pid")]
    command += ["--data-root", str(home / "data"), "--exec-root", str(home / "run")]
    command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    log_file = home / "dockerd.log"
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            command, env=own.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_until_up(own, process)
        yield own
    except BaseException:
        print(f"the end of {log_file.name}:\n{_tail(log_file)}", file=sys.stderr, flush=True)
        raise
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _unmount_below(home)


def _unmount_below(directory: Path) -> None:
    """An engine that ended leaves the mounts of its network namespaces."""
    mounts = [Path(line.split()[1]) for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if directory in mount.parents]):
        subprocess.run(["umount", str(mount)], check=False)


def _wait_until_up(own: Engine, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            own.docker("info", timeout=10)
        except EngineError as fault:
            if process.poll() is not None:
                raise EngineError(f"dockerd ended with exit code {process.returncode}") from fault
            if time.monotonic() > deadline:
                raise EngineError(f"dockerd is not up within {START_SECONDS} s") from fault
            time.sleep(0.2)
        else:
            return


def _tail(file: Path, lines: int = 20) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
