"""The stack of one machine: the stores, the migrations and the three services as processes, as compose runs them."""

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Final

from sharequeue.embedded import EmbeddedError, Postgres, Redis, die_with_parent, free_port
from sharequeue.migrate import upgrade

READY_SECONDS: Final = 60
STOP_SECONDS: Final = 15


class StackError(Exception):
    """The stack cannot start or go on; the text says why."""


class ServiceProcess:
    """One service as a process; its log is a file."""

    def __init__(self, name: str, module: str, port: int, environment: dict[str, str], log_file: Path) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self._module = module
        self._environment = environment
        self._log_file = log_file
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - before any thread starts
            )

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        if self.process is None or not self.alive():
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def ready(self) -> bool:
        """Whether `/readyz` is green."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=3) as response:
                return bool(json.load(response)["status"] == "ready")
        except (OSError, urllib.error.HTTPError, ValueError):
            return False

    def died(self) -> StackError:
        code = self.process.returncode if self.process else None
        tail = "\n".join(self._log_file.read_text(errors="replace").splitlines()[-8:])
        return StackError(f"the {self.name} died (exit code {code}); the end of {self._log_file}:\n{tail}")


class Stack:
    """Everything `sharequeue up` runs. Start it, poll it, stop it."""

    def __init__(
        self,
        data_dir: Path,
        *,
        gateway_port: int = 0,
        coordinator_port: int = 0,
        share_coordinator_port: int = 0,
        postgres_url: str | None = None,
        redis_url: str | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        """`settings`: further variables of the services, e.g. SHAREQUEUE_GATEWAY_KAFKA_DEFAULTS."""
        self._data_dir = data_dir.absolute()
        self._ports = {
            "--gateway-port": gateway_port,
            "--coordinator-port": coordinator_port,
            "--share-coordinator-port": share_coordinator_port,
        }
        self._postgres_url = postgres_url
        self._redis_url = redis_url
        self._settings = settings or {}
        self._lock: IO[str] | None = None
        self.postgres: Postgres | None = None
        self.redis: Redis | None = None
        self.services: list[ServiceProcess] = []
        self.url = ""

    def start(self) -> str:
        """Start everything and wait until it is ready. Returns: the gateway's URL. Raises: StackError."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        self._check_ports()
        try:
            postgres_url, redis_url = self._start_stores()
            upgrade(postgres_url)
            self._make_services(postgres_url, redis_url)
            for service in self.services:
                service.start()
            self._wait_until_ready()
        except EmbeddedError as fault:
            raise StackError(str(fault)) from fault
        return self.url

    def _take_lock(self) -> None:
        self._lock = (self._data_dir / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StackError(f"another stack runs on {self._data_dir}; stop it or give another --data-dir") from None

    def _check_ports(self) -> None:
        for option, port in self._ports.items():
            if port == 0:
                self._ports[option] = free_port()
                continue
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    raise StackError(f"port {port} is taken; give another {option} (0 takes a free one)") from None

    def _start_stores(self) -> tuple[str, str]:
        postgres_url, redis_url = self._postgres_url, self._redis_url
        if postgres_url is None:
            self.postgres = Postgres(self._data_dir)
            postgres_url = self.postgres.start()
        if redis_url is None:
            self.redis = Redis(self._data_dir)
            redis_url = self.redis.start()
        return postgres_url, redis_url

    def _token(self) -> str:
        file = self._data_dir / "cluster.token"
        if not file.exists():
            with open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as opened:
                opened.write(secrets.token_hex(24))
        return file.read_text().strip()

    def _make_services(self, postgres_url: str, redis_url: str) -> None:
        gateway, coordinator, share_coordinator = self._ports.values()
        token = self._token()
        coordinator_url = f"http://127.0.0.1:{coordinator}"
        share_coordinator_url = f"http://127.0.0.1:{share_coordinator}"
        logs = self._data_dir / "logs"
        logs.mkdir(exist_ok=True)
        values = {
            "SHARE_COORDINATOR": (
                "share coordinator",
                "sharequeue_share_coordinator",
                share_coordinator,
                {"COORDINATOR_URL": coordinator_url},
            ),
            "COORDINATOR": (
                "group coordinator",
                "sharequeue_coordinator",
                coordinator,
                {"SHARE_COORDINATOR_URL": share_coordinator_url},
            ),
            "GATEWAY": (
                "gateway",
                "sharequeue_gateway",
                gateway,
                {
                    "COORDINATOR_URL": coordinator_url,
                    "SHARE_COORDINATOR_URL": share_coordinator_url,
                    "REDIS_URL": redis_url,
                },
            ),
        }
        self.services = []
        for prefix, (name, module, port, particular) in values.items():
            settings = {"DATABASE_URL": postgres_url, "CLUSTER_TOKEN": token, "PORT": str(port), **particular}
            environment = {f"SHAREQUEUE_{prefix}_{setting}": value for setting, value in settings.items()}
            own = {key: value for key, value in self._settings.items() if key.startswith(f"SHAREQUEUE_{prefix}_")}
            log_file = logs / f"{name.replace(' ', '-')}.log"
            self.services.append(ServiceProcess(name, module, port, {**environment, **own}, log_file))
        self.url = f"http://127.0.0.1:{gateway}"

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        waiting = list(self.services)
        while waiting:
            self.check()
            waiting = [service for service in waiting if not service.ready()]
            if waiting and time.monotonic() > deadline:
                names = ", ".join(service.name for service in waiting)
                raise StackError(f"not ready within {READY_SECONDS} s: {names}; logs are in {self._data_dir / 'logs'}")
            time.sleep(0.05)

    def check(self) -> None:
        """Raises: StackError: something that must run died."""
        for service in self.services:
            if service.process is not None and not service.alive():
                raise service.died()
        for name, store in (("PostgreSQL", self.postgres), ("Redis", self.redis)):
            if store is not None and not store.running():
                raise StackError(f"{name} died; the end of its log:\n{store.log_tail()}")

    def service(self, name: str) -> ServiceProcess:
        """The service called `gateway`, `group coordinator` or `share coordinator`."""
        return next(service for service in self.services if service.name == name)

    def stop(self) -> None:
        """Stop in order: gateway, group coordinator, share coordinator, Redis, PostgreSQL."""
        for service in reversed(self.services):
            service.stop()
        for store in (self.redis, self.postgres):
            if store is not None:
                store.stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
