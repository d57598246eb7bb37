"""docker-compose.yml without an engine: each service's command, environment and health check as local processes."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psutil
import pytest
import redis
import sharequeue_coordinator.settings
import sharequeue_gateway.settings
import sharequeue_share_coordinator.settings

from sharequeue.protocol.access.keys import make_key, parse_key
from sharequeue.service.settings import SettingsError, load
from sharequeue.stack.postgres import Postgres
from sharequeue.stack.process import die_with_parent, free_port
from sharequeue.stack.redis import Redis
from tests.compose import compose_file
from tests.compose.main_job import check_held, do_main_job, finish
from tests.system.up_command import until

READY_SECONDS = 120
SETTINGS: Mapping[str, Any] = {
    "gateway": sharequeue_gateway.settings,
    "coordinator": sharequeue_coordinator.settings,
    "share-coordinator": sharequeue_share_coordinator.settings,
}
VARIABLES = {name: f"{name.removeprefix('SHAREQUEUE_').lower()}-of-the-tests" for name in compose_file.SECRETS}
VARIABLES["SHAREQUEUE_ADMIN_KEY"] = make_key(b"compose!", b"32 bytes that nobody has guessed").text
TOKEN, POSTGRES_PASSWORD, REDIS_PASSWORD, *_, ADMIN_KEY = VARIABLES.values()


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """The services of the file, by name, variables filled in."""
    return compose_file.load(VARIABLES)["services"]


def test_only_the_gateway_is_published_and_only_to_this_machine(services: dict[str, dict[str, Any]]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"gateway": ["127.0.0.1:8080:8080"]}
    assert not [name for name, service in services.items() if service.get("network_mode") or service.get("expose")]


def test_the_page_about_production_has_the_commands_of_the_file() -> None:
    """`make compose-test` runs the first one as the file has it, and the second one without `--wait`."""
    page = (compose_file.ROOT / "docs" / "production.md").read_text()
    ((secrets, up),) = re.findall(r"^```compose\n(.+)\n(.+)\n```$", page, re.MULTILINE)
    assert f"#   {secrets}\n" in compose_file.FILE.read_text()
    assert secrets == f"sh {compose_file.SCRIPT.name}"
    assert f"# and then: {up} (" in compose_file.FILE.read_text()


def test_one_command_makes_the_secrets_the_file_asks_for(tmp_path: Path) -> None:
    with pytest.raises(compose_file.MissingVariable, match=r"make \.env first"):
        compose_file.load({})
    made = compose_file.make_environment_file(tmp_path)
    assert made.stat().st_mode & 0o777 == 0o600
    secrets = compose_file.read_environment_file(made)
    assert tuple(sorted(secrets)) == tuple(sorted(compose_file.SECRETS))
    *others, key = (secrets[name] for name in compose_file.SECRETS)
    assert all(re.fullmatch("[0-9a-f]{48}", secret) for secret in others)
    assert parse_key(key) is not None
    assert len(set(secrets.values())) == len(secrets)
    compose_file.load(secrets)
    compose_file.make_environment_file(tmp_path)
    assert compose_file.read_environment_file(made) == secrets, "made again, the secrets of a living stack are lost"
    lines = made.read_text().splitlines(keepends=True)
    made.write_text("".join(lines[:-1]))
    compose_file.make_environment_file(tmp_path)
    kept = compose_file.read_environment_file(made)
    assert kept.keys() == secrets.keys(), "a secret that the file lacks is made"
    assert [name for name in secrets if kept[name] != secrets[name]] == [lines[-1].partition("=")[0]]


@pytest.mark.parametrize("missing", VARIABLES)
def test_a_missing_secret_stops_compose(missing: str) -> None:
    with pytest.raises(compose_file.MissingVariable):
        compose_file.load(VARIABLES | {missing: ""})


@pytest.mark.parametrize("name", SETTINGS)
def test_a_service_may_serve_its_address_and_knows_its_settings(services: dict[str, dict[str, Any]], name: str) -> None:
    module, environment = SETTINGS[name], services[name]["environment"]
    strangers = [variable for variable in environment if not variable.startswith(module.PREFIX)]
    assert strangers == []
    settings = load(module.Settings, module.PREFIX, environment)
    settings.check(module.PREFIX)
    assert settings.host == "0.0.0.0"
    assert settings.cluster_token == TOKEN
    with pytest.raises(SettingsError, match="MISSPELT"):
        load(module.Settings, module.PREFIX, {**environment, f"{module.PREFIX}MISSPELT": "1"})


def test_services_wait_for_migrated_stores_and_restart(services: dict[str, dict[str, Any]]) -> None:
    for name in SETTINGS:
        service = services[name]
        assert service["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
        for store in ("postgres", "redis"):  # which stop after the services
            assert service["depends_on"][store] == {"condition": "service_healthy"}
        assert service["restart"] == "unless-stopped"
        assert service["init"] is True
    assert services["migrate"]["restart"] == "no"
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}


def test_the_image_is_built_from_what_its_wheel_has() -> None:
    """A file that .dockerignore leaves out cannot be copied, and a package that is not copied ends the build."""
    ignored = (compose_file.ROOT / ".dockerignore").read_text()
    reached = set(re.findall(r"^!(\S+)$", ignored, re.MULTILINE))
    dockerfile = (compose_file.ROOT / "Dockerfile").read_text()
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    project = tomllib.loads((compose_file.ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], *project["project"]["license-files"], "README.md"}
    assert copied == reached
    assert {path.partition("/")[0] for path in needed} <= copied


def test_no_container_has_privileges_or_writes_outside_of_its_volume(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.keys() & {"privileged", "cap_add"}
        assert service["mem_limit"]
        assert service["pids_limit"]
    users = {name: service["user"] for name, service in services.items() if "build" not in service}
    assert users == {"postgres": "postgres", "redis": "redis"}, "our own image names its user itself"


def test_redis_needs_its_password_and_does_not_show_it(services: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    service = services["redis"]
    embedded = Redis(tmp_path)
    port = embedded.port
    shell, option, script = service["command"]
    script = script.replace("redis-server -", f"{embedded.executable} - --port {port} --bind 127.0.0.1", 1)
    environment = {"PATH": os.defpath, **service["environment"]}
    with (
        subprocess.Popen([shell, option, script], env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL) as process,
        redis.Redis(port=port, password=REDIS_PASSWORD) as known,
        redis.Redis(port=port) as stranger,
    ):
        try:
            until(lambda: answers(known), "it answers")
            with pytest.raises(redis.exceptions.AuthenticationError):
                stranger.ping()
            assert known.config_get("appendonly", "appendfsync", "maxmemory-policy", "save") == {
                "appendonly": "yes",
                "appendfsync": "everysec",
                "maxmemory-policy": "noeviction",
                "save": "",
            }
            assert REDIS_PASSWORD not in " ".join(psutil.Process(process.pid).cmdline())
            assert (tmp_path / "appendonlydir").exists(), "in the directory that the image starts it in"
        finally:
            process.terminate()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


class LocalCompose:
    """The file's own services as processes of this machine, on the stores of the tests."""

    def __init__(self, services: dict[str, dict[str, Any]], database_url: str, redis_url: str, home: Path) -> None:
        self._services = services
        self._home = home
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = {name: free_port(self) for name in SETTINGS}
        self._server = database_url.rpartition("@")[2]
        self._addresses = {
            f"postgresql://sharequeue:{POSTGRES_PASSWORD}@postgres:5432/sharequeue": database_url,
            f"redis://:{REDIS_PASSWORD}@redis:6379/0": redis_url,
        }
        for name, port in self.ports.items():
            listens_on = load(SETTINGS[name].Settings, SETTINGS[name].PREFIX, services[name]["environment"]).port
            self._addresses[f"http://{name}:{listens_on}"] = f"http://127.0.0.1:{port}"
            self._addresses[f"http://127.0.0.1:{listens_on}/"] = f"http://127.0.0.1:{port}/"

    def _local(self, text: str) -> str:
        for address, local in self._addresses.items():
            if text.startswith(address):
                return local + text.removeprefix(address)
        if text.endswith("@postgres:5432/sharequeue"):  # as a role that `migrate` makes
            return text.replace("postgres:5432/sharequeue", self._server)
        assert "://" not in text, f"nobody listens at {text}"
        return text

    def run(self, name: str, command: list[str], *, lasting: bool = False) -> subprocess.Popen[bytes]:
        """Start `command` with the environment of service `name`, and what the tests set for all.
        `lasting`: ends with us."""
        environment = {key: self._local(value) for key, value in self._services[name].get("environment", {}).items()}
        if name in SETTINGS:
            prefix = SETTINGS[name].PREFIX
            environment |= {f"{prefix}HOST": "127.0.0.1", f"{prefix}PORT": str(self.ports[name])}
            environment |= {variable: value for variable, value in os.environ.items() if variable.startswith(prefix)}
        path = f"{Path(sys.executable).parent}:{os.defpath}"
        with (self._home / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [shutil.which(command[0], path=path), *(self._local(argument) for argument in command[1:])],
                env={**environment, "PATH": path},
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(signal.SIGKILL) if lasting else None,  # noqa: PLW1509 - in the main thread
            )

    def start(self, name: str) -> None:
        self._processes[name] = self.run(name, self.command(name), lasting=True)

    def command(self, name: str) -> list[str]:
        return list(self._services[name]["command"])

    def log(self, name: str) -> str:
        return (self._home / f"{name}.log").read_text(errors="replace")

    def check_health(self, name: str) -> int:
        """Returns: the exit code of the service's health check."""
        kind, *command = self._services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return self.run(name, command).wait(READY_SECONDS)

    def wait_until_healthy(self, name: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while self.check_health(name) != 0:
            assert self._processes[name].poll() is None, f"{name} died:\n{self.log(name)}"
            assert time.monotonic() < deadline, f"{name} is not healthy:\n{self.log(name)}"

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """SIGTERM to all. Those that outlive their grace period are killed, as an engine does."""
        for process in self._processes.values():
            process.terminate()
        late = []
        for name, process in self._processes.items():
            try:
                process.wait(int(self._services[name]["stop_grace_period"].removesuffix("s")))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                late.append(name)
        self._processes.clear()
        assert late == []


@pytest.fixture
def local(
    services: dict[str, dict[str, Any]], postgres: Postgres, redis_url: str, name: str, tmp_path: Path
) -> Iterator[LocalCompose]:
    """On a database without any schema: the file's own command makes them."""
    database = f"compose_{name}"

    async def create() -> None:
        connection = await asyncpg.connect(postgres.url)
        try:
            await connection.execute(f"CREATE DATABASE {database}")
        finally:
            await connection.close()

    asyncio.run(create())
    local = LocalCompose(services, postgres.url.rsplit("/", 1)[0] + f"/{database}", redis_url, tmp_path)
    yield local
    local.stop()


@pytest.mark.soak
def test_the_main_job_runs_with_the_commands_and_the_environment_of_the_file(local: LocalCompose, name: str) -> None:
    assert local.run("migrate", local.command("migrate")).wait(READY_SECONDS) == 0, local.log("migrate")
    for service in SETTINGS:
        local.start(service)
    with ThreadPoolExecutor(len(SETTINGS)) as pool:
        list(pool.map(local.wait_until_healthy, SETTINGS))

    url = f"http://127.0.0.1:{local.ports['gateway']}"
    assert httpx.get(f"{url}/v1/topics").status_code == 401, "callers need keys"
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=40) as client:
        neighbour = client.get("/v1/topics", headers={"Host": "gateway:8080"})
        assert neighbour.status_code == 200, "containers call it by the name of its service"
        do_main_job(client, name)
        local.kill("gateway")
        assert local.check_health("gateway") == 3, "nobody listens"
        local.start("gateway")
        local.wait_until_healthy("gateway")
        check_held(client, name)
        finish(client, name)


def test_postgresql_has_locks_for_a_thousand_partitions(services: dict[str, dict[str, Any]], database_url: str) -> None:
    """The server of the file, and the one of `sharequeue up`."""
    assert "max_locks_per_transaction=256" in services["postgres"]["command"]

    async def locks() -> str:
        connection = await asyncpg.connect(database_url)
        try:
            found: str = await connection.fetchval("SHOW max_locks_per_transaction")
        finally:
            await connection.close()
        return found

    assert asyncio.run(locks()) == "256"
