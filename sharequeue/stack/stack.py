"""The stack of one machine: the stores, the migrations, and the services: in one process, or each in its own."""

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from sharequeue.access_store import new_key, store_key
from sharequeue.protocol.access.keys import parse_key
from sharequeue.protocol.messages.access import CreateKeyRequest
from sharequeue.repeats import PART_DIED, PART_READY, Tries
from sharequeue.stack.certificates import make_certificates
from sharequeue.stack.postgres import Postgres
from sharequeue.stack.process import Process, free_port
from sharequeue.stack.redis import Redis
from sharequeue.stack.system_user import EmbeddedError, locked, make_private, open_lock, secret_in

ADMIN: Final = "User:admin"
READY_SECONDS: Final = 180
"""More than a slow or busy machine needs. A service that dies is noticed at once."""
STOP_SECONDS: Final = 15
STOPS: Final = (signal.SIGTERM, signal.SIGCONT)
"""Ask a service to stop. One that is paused hears nothing else than the second one."""
EARLIER_SECONDS: Final = 180
"""How long the processes of a killed stack may take to end."""


class StackError(Exception):
    """The stack cannot start or keep running; the text says why."""


class ServiceProcess(Process):
    """A process that runs one service, or all three. `ca`: the authority of its certificate.

    `urls`: of its services, by their names. `url`: of the last one, the gateway if it runs all.
    """

    def __init__(
        self,
        name: str,
        module: str,
        urls: Mapping[str, str],
        environment: dict[str, str],
        log_file: Path,
        inherited: Sequence[int] = (),
        ca: Path | None = None,
    ) -> None:
        super().__init__(f"the {name}", log_file, inherited)
        self.name = name
        self.urls = urls
        self.url = [*urls.values()][-1]
        self._module = module
        self.environment = environment
        trusted = None if ca is None else ssl.create_default_context(cafile=ca)
        way = ProxyHandler({}), HTTPSHandler(context=trusted)  # never through a proxy that the environment names
        self._open = build_opener(*way).open

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", self._module]  # -P: do not import from the current directory
        self._spawn(command, signal.SIGTERM, cwd=None, env={**os.environ, **self.environment})

    def terminate(self) -> None:
        if self.process is not None and self.running():
            for number in STOPS:
                self.process.send_signal(number)

    def stop(self) -> None:
        self._end(*STOPS, seconds=STOP_SECONDS * len(self.urls))  # its services stop one after another

    def ready(self) -> bool:
        return all(map(self._ready, self.urls.values()))

    def _ready(self, url: str) -> bool:
        try:
            with self._open(f"{url}/readyz", timeout=3) as response:
                return bool(json.load(response)["status"] == "ready")
        except (OSError, ValueError):  # of HTTP, too
            return False


class Migration(Process):
    """The program that brings the schemas up to date. The memory of its libraries goes with it."""

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", "sharequeue.stack.migrate"]
        self._spawn(command, signal.SIGKILL, cwd=None, stdin=subprocess.PIPE)

    def finish(self, url: str) -> None:
        """Give it the database, and wait for its end. Raises: EmbeddedError: it failed."""
        if self.process is None:
            self.start()
        assert self.process is not None
        self.process.communicate(url.encode())
        if self.process.returncode:
            raise EmbeddedError(self.log_tail() or self.died())


class Fate:
    """The deaths of one part lately, and the time of its next start (None: it was not seen dead)."""

    pause_s = 0.0
    _again_s: float | None = None
    _started_s = 0.0

    def died(self, now_s: float) -> bool:
        """Return whether that is new: it starts again after `pause_s`. After a while that is the first pause again."""
        if self._again_s is not None:
            return False
        ran_long = now_s > self._started_s + 2 * PART_DIED.most_s
        self.pause_s = PART_DIED.after(0.0 if ran_long else self.pause_s)
        self._again_s = now_s + self.pause_s
        return True

    def starts(self, now_s: float) -> bool:
        starts = self._again_s is not None and now_s >= self._again_s
        if starts:
            self._again_s, self._started_s = None, now_s
        return starts


class Kind(NamedTuple):
    """One of the three services: what its variables begin with, its package, and the option for its first port."""

    prefix: str
    module: str
    port_option: str


KINDS: Final = {
    "share coordinator": Kind("SHARE_COORDINATOR", "sharequeue_share_coordinator", "--share-coordinator-port"),
    "group coordinator": Kind("COORDINATOR", "sharequeue_coordinator", "--coordinator-port"),
    "gateway": Kind("GATEWAY", "sharequeue_gateway", "--gateway-port"),
}
"""In the order of their starts."""


class Stack:
    """Everything `sharequeue up` runs. Start it, poll it, stop it."""

    def __init__(
        self,
        data_dir: Path,
        *,
        gateway_port: int = 0,
        coordinator_port: int = 0,
        share_coordinator_port: int = 0,
        gateways: int = 1,
        coordinators: int = 1,
        share_coordinators: int = 1,
        one_process: bool = False,
        require_keys: bool = False,
        secure: bool = False,
        postgres_url: str | None = None,
        redis_url: str | None = None,
        kafka: str | None = None,
        settings: dict[str, str] | None = None,
        temporary: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Args:
            gateway_port, coordinator_port, share_coordinator_port: of the first instance; 0 and others take free ports.
            one_process: whether one process runs the services; there is one of each then.
            require_keys: whether callers need keys. The one of `ADMIN`, who may do everything, is in `admin_key`.
            secure: whether the services speak https, too. The authority of their certificates is in `ca`.
            kafka: brokers whose topics are the record log; None: PostgreSQL has the records.
            settings: further variables of the services, e.g. SHAREQUEUE_GATEWAY_KAFKA_DEFAULTS.
            temporary: the data is worthless after the end of this program.
            tell: receives a sentence for the user when a start takes long.
        """
        self._data_dir = data_dir.absolute()
        self._ports = {
            "gateway": [gateway_port] + [0] * (gateways - 1),
            "group coordinator": [coordinator_port] + [0] * (coordinators - 1),
            "share coordinator": [share_coordinator_port] + [0] * (share_coordinators - 1),
        }
        self._one_process = one_process
        self.admin_key: Final = self._data_dir / "admin.key" if require_keys or secure else None
        self.ca: Final = self._data_dir / "tls" / "ca.pem" if secure else None
        self._postgres_url = postgres_url
        self._redis_url = redis_url
        self._kafka = kafka
        self._settings = settings or {}
        self._temporary = temporary
        self._tell = tell
        self._locks = contextlib.ExitStack()
        self._fates: defaultdict[str, Fate] = defaultdict(Fate)
        self.postgres: Postgres | None = None
        self.redis: Redis | None = None
        self._migration: Migration | None = None
        self.services: list[ServiceProcess] = []
        self.url = ""
        self.urls: list[str] = []
        """Of all gateways; `url` is the first."""

    def start(self) -> str:
        """Start everything, and wait until all services are ready. Returns: the gateway's URL. Raises: StackError."""
        try:
            make_private(self._data_dir)
            inherited = self._take_locks()
        except OSError as fault:
            raise StackError(f"cannot use the --data-dir {self._data_dir}: {fault}") from fault
        try:
            self._choose_ports()
            postgres_url, redis_url = self._start_stores(inherited)
            self._make_services(postgres_url, redis_url, inherited)
            for service in self.services:
                service.start()
            self._wait_until_ready()
        except (EmbeddedError, OSError) as fault:
            raise StackError(str(fault)) from fault
        return self.url

    def _take_locks(self) -> list[int]:
        """Take the data directory for this stack. Waits for the processes of a killed stack to end.

        Returns: open files that every process of this stack inherits; the second lock is held while any of them runs.
        """
        own = self._locks.enter_context(open_lock(self._data_dir / "lock"))
        if not locked(own):
            own.seek(0)
            process = own.read().strip() or "unknown"
            raise StackError(
                f"another stack (process {process}) runs on {self._data_dir}; stop it or give another --data-dir"
            )
        own.truncate(0)
        own.write(f"{os.getpid()}\n")
        own.flush()
        processes = self._locks.enter_context(open_lock(self._data_dir / "processes.lock"))
        tries = Tries(PART_READY, EARLIER_SECONDS)
        if not locked(processes):
            self._tell("waiting for the processes of an earlier stack to end")
        while not locked(processes):
            if not tries.rest():
                raise StackError(f"processes of an earlier stack on {self._data_dir} still run; end them first")
        return [processes.fileno()]

    def _choose_ports(self) -> None:
        """Check the given ports and choose free ones for the others. Raises: StackError."""
        given = {name: ports[0] for name, ports in self._ports.items() if ports[0]}
        with contextlib.ExitStack() as probes:
            for name, port in given.items():
                option = KINDS[name].port_option
                if list(given.values()).count(port) > 1:
                    raise StackError(f"port {port} is given twice; give another {option} (0 takes a free one)")
                probe = probes.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as fault:
                    why = "taken" if fault.errno == errno.EADDRINUSE else f"out of reach ({fault.strerror})"
                    raise StackError(f"port {port} is {why}; give another {option} (0 takes a free one)") from None
            for ports in self._ports.values():
                ports[:] = [port or free_port(self) for port in ports]

    def _start_stores(self, inherited: Sequence[int]) -> tuple[str, str]:
        """Start the stores that the user did not name, and migrate the database. Returns: both URLs."""
        if self._redis_url is None:
            self.redis = Redis(
                self._data_dir, password=secret_in(self._data_dir / "redis.password"), inherited=inherited
            )
            self.redis.launch()
        self._migration = Migration("the migration", self._data_dir / "migrate.log", inherited)
        if self._postgres_url is None:
            self.postgres = Postgres(self._data_dir, inherited=inherited, temporary=self._temporary)
            if self.postgres.is_new():
                self._migration.start()  # its imports take as long as making the cluster
            self.postgres.launch()
        from sharequeue.stack import checks  # noqa: PLC0415 - its import takes as long as the start of the stores

        redis_url = self.redis.wait() if self.redis is not None else self._redis_url
        postgres_url = self.postgres.wait() if self.postgres is not None else self._postgres_url
        assert postgres_url is not None
        assert redis_url is not None
        try:
            if self.redis is None:
                checks.check_redis(redis_url, "--redis-url")
            option = "--postgres-url" if self.postgres is None else "--data-dir"
            up_to_date = checks.check_postgres(postgres_url, option)
            if self._kafka is not None:
                checks.check_kafka(self._kafka, "--kafka")
            if not up_to_date:
                self._migration.finish(postgres_url)
            if self.admin_key is not None:
                self._store_admin_key(postgres_url, self.admin_key)
        except checks.StoreError as fault:
            raise StackError(str(fault)) from fault
        return postgres_url, redis_url

    def _store_admin_key(self, postgres_url: str, file: Path) -> None:
        """Store the key in a file, if it is not stored. Raises: StoreError; StackError: it is not a key."""
        from sharequeue.stack import checks  # noqa: PLC0415 - as in `_start_stores`

        key = parse_key(secret_in(file, new_key().text))
        if key is None:
            raise StackError(f"{file} has no key: remove it, and a new one is made")
        request = CreateKeyRequest(principal=ADMIN, description="sharequeue up")
        asyncio.run(checks.in_database(postgres_url, store_key, key, request))

    def _make_services(self, postgres_url: str, redis_url: str, inherited: Sequence[int]) -> None:
        hosts = {name: self._host(kind) for name, kind in KINDS.items()}
        scheme = "http" if self.ca is None else "https"
        urls = {name: [f"{scheme}://{hosts[name]}:{port}" for port in ports] for name, ports in self._ports.items()}
        common = {"DATABASE_URL": postgres_url, "CLUSTER_TOKEN": secret_in(self._data_dir / "cluster.token")}
        common |= self._https()
        group = {"COORDINATOR_URL": ",".join(urls["group coordinator"])}
        share = {"SHARE_COORDINATOR_URL": ",".join(urls["share coordinator"])}
        needs = {
            "share coordinator": group,
            "group coordinator": share,
            "gateway": {**group, **share, "REDIS_URL": redis_url},
        }
        if self._kafka is not None:
            for name in ("group coordinator", "gateway"):
                needs[name] = {**needs[name], "RECORD_LOG": "kafka", "KAFKA_BOOTSTRAP_SERVERS": self._kafka}
        if self.admin_key is not None:
            needs["gateway"] |= {"AUTHENTICATION": "required", "SUPER_USERS": ADMIN}
        self.logs.mkdir(mode=0o700, exist_ok=True)
        self.services = []
        for name, kind in KINDS.items():
            variables = f"SHAREQUEUE_{kind.prefix}_"
            own = {key: value for key, value in self._settings.items() if key.startswith(variables)}
            for place, port in enumerate(self._ports[name]):
                node_id = f"{kind.prefix.lower().replace('_', '-')}-{place}"
                settings = {**common, **needs[name], "PORT": str(port), "NODE_ID": node_id}
                environment = {variables + setting: value for setting, value in settings.items()}
                called = f"{name} {place + 1}" if place else name
                log_file = self.logs / f"{called.replace(' ', '-')}.log"
                address, environment = {called: urls[name][place]}, {**environment, **own}
                process = called, kind.module, address, environment, log_file, inherited, self.ca
                self.services.append(ServiceProcess(*process))
        if self._one_process:
            environment = {name: value for service in self.services for name, value in service.environment.items()}
            called, module, log_file = "service process", "sharequeue_all_in_one", self.logs / "services.log"
            process = called, module, self.addresses, environment, log_file, inherited, self.ca
            self.services = [ServiceProcess(*process)]
        ignored = sorted({name for each in self.services for name in each.environment} & os.environ.keys())
        if ignored:
            self._tell(f"ignored, because this command sets it: {', '.join(ignored)}")
        self.urls = urls["gateway"]
        self.url = self.urls[0]

    def _host(self, kind: Kind) -> str:
        """The address at which a service can be asked, as a URL has it."""
        host = self._given(kind, "HOST") or "127.0.0.1"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"[{host}]" if ":" in host else host

    def _given(self, kind: Kind, setting: str) -> str:
        return {**os.environ, **self._settings}.get(f"SHAREQUEUE_{kind.prefix}_{setting}", "")

    def _https(self) -> dict[str, str]:
        """Make a certificate for each address and name of this machine by which the user lets the services be called.
        Returns: the settings for it. Raises: OSError."""
        if self.ca is None:
            return {}
        given = [self._given(kind, "HOST") for kind in KINDS.values()]
        given += self._given(KINDS["gateway"], "ALLOW_HOSTS").replace(" ", "").split(",")
        hosts = ("127.0.0.1", "::1", "localhost", socket.gethostname(), *filter(None, given))
        return make_certificates(self.ca.parent, hosts)

    def _wait_until_ready(self) -> None:
        tries = Tries(PART_READY, READY_SECONDS)
        waiting = list(self.services)
        while waiting:
            self.check()
            waiting = [service for service in waiting if not service.ready()]
            if waiting and not tries.rest():
                names = ", ".join(service.name for service in waiting)
                raise StackError(f"not ready within {READY_SECONDS} s: {names}; logs are in {self.logs}")

    @property
    def logs(self) -> Path:
        return self._data_dir / "logs"

    def rotate_logs(self) -> None:
        """Keep the logs of the services and of the embedded stores below their limit."""
        for part in (*self.services, self.postgres, self.redis):
            if part is not None:
                part.rotate_log()

    def check(self) -> None:
        """Raises: StackError: something that must run died."""
        for part, _ in self._parts():
            if not part.running():
                raise StackError(part.died())

    def keep_up(self) -> None:
        """Start each part again that died, after a pause that doubles each time, and tell so. Call this often."""
        for part, start in self._parts():
            fate, now_s = self._fates[part.title], time.monotonic()
            if part.running():
                continue
            if fate.died(now_s):
                self._tell(f"{part.died()}\n{part.title} is started again in {fate.pause_s:.0f} s")
            elif fate.starts(now_s):
                try:
                    start()
                except (EmbeddedError, OSError) as fault:
                    self._tell(f"{part.title} cannot be started: {fault}")

    def _parts(self) -> Iterator[tuple[Process, Callable[[], None]]]:
        """Yield the parts that were started, each with its start."""
        for store in (self.postgres, self.redis):
            if store is not None:
                yield store, store.launch
        for service in self.services:
            if service.process is not None:
                yield service, service.start

    def service(self, name: str) -> ServiceProcess:
        """The process of the service called `gateway`, `group coordinator` or `share coordinator`; `gateway 2` is the
        second."""
        return next(service for service in self.services if name in service.urls)

    @property
    def addresses(self) -> dict[str, str]:
        """The URLs of all services, by their names."""
        return {name: url for process in self.services for name, url in process.urls.items()}

    def stop(self) -> None:
        """Stop in order: gateways, group coordinators, share coordinators, a migration, Redis, PostgreSQL."""
        for service in self.services:
            if service.name.startswith("gateway"):  # all at once, so that none waits for calls to go to another
                service.terminate()
        for service in reversed(self.services):
            service.stop()
        if self._migration is not None:
            self._migration.kill()
        for store in (self.redis, self.postgres):
            if store is not None:
                store.stop()
        self._locks.close()


@contextlib.contextmanager
def temporary_stack(data_dir: Path, **options: Any) -> Iterator[Stack]:
    """A stack that runs while this lasts, with the options of `Stack`;
    the data of a PostgreSQL of its own go with it."""
    stack = Stack(data_dir, **options, temporary=True)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        if stack.postgres is not None:
            stack.postgres.remove()
