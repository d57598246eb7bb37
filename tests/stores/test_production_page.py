"""docs/production.md: two machines are two addresses of the loopback network here; every command of the page runs."""

import asyncio
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from sharequeue.stack.process import free_port
from tests.certificates import Authority
from tests.http.calls import wait_until
from tests.stores.servers import PASSWORD, SecurePostgres, SecureRedis
from tests.system.test_pages import DOCS
from tests.system.test_readme import blocks

PAGE = (DOCS / "production.md").read_text()
SERVICES = ("share_coordinator", "coordinator", "gateway")
MACHINES = ("127.77.0.1", "127.77.0.2")
CLUSTER_TOKEN = "a token of this test"
READY_S = 180
"""No start, stop or command of the page takes so long, even on a busy machine."""


class Machines:
    """The services of the two machines, started as the unit of the page says."""

    def __init__(self, home: Path, postgres: SecurePostgres, redis: SecureRedis, authority: Authority) -> None:
        self._home = home
        self.login = ""
        """What begins the shell of each command."""
        ports = {port: str(free_port(self)) for port in ("8080", "8081", "8082")}
        self._replaced = {
            "10.0.0.9:5432": f"127.0.0.1:{postgres.port}",
            "10.0.0.9:6379": f"127.0.0.1:{redis.tls_port}",
            "10.0.0.1": MACHINES[0],
            "10.0.0.2": MACHINES[1],
            **{f":{port}": f":{free}" for port, free in ports.items()},
        }
        self._ports = dict(zip(("gateway", "coordinator", "share_coordinator"), ports.values(), strict=True))
        self._running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self.urls = [f"https://{machine}:{self._ports['gateway']}" for machine in MACHINES]
        self.trust = ssl.create_default_context(cafile=str(authority.file))
        for machine in MACHINES:
            self._furnish(machine, authority)

    def _furnish(self, machine: str, authority: Authority) -> None:
        """Put the files of the page into the machine's folder."""
        folder = self._home / machine
        folder.mkdir()
        certificate, key = authority.pair(machine, machine)
        (folder / "ca.pem").write_bytes(authority.file.read_bytes())
        (folder / "tls.pem").write_bytes(certificate.read_bytes())
        (folder / "tls.key.pem").write_bytes(key.read_bytes())
        (folder / "cluster_token").write_text(f"{CLUSTER_TOKEN}\n")
        for language, content in blocks(PAGE):
            if language == "ini":
                name, settings = re.fullmatch(r"# /etc/sharequeue/(\S+)\n(.*)", content, re.DOTALL).groups()  # type: ignore[union-attr]
                own = re.sub(r"(?m)^(\w+_(?:HOST|NODE_ID)=.*)10\.0\.0\.1$", rf"\g<1>{machine}", settings)
                (folder / name).write_text(self.here(own, machine))

    def here(self, text: str, machine: str = MACHINES[0]) -> str:
        """A text of the page with the addresses and the folder of this test."""
        for shown, ours in {**self._replaced, "/etc/sharequeue": str(self._home / machine)}.items():
            text = text.replace(shown, ours)
        return text

    def environment(self, machine: str) -> dict[str, str]:
        """The file of one machine, as systemd reads it; the ports of this test beside it."""
        lines = [line.partition("=") for line in (self._home / machine / "env").read_text().splitlines()]
        own = {name: value.strip('"') for name, _, value in lines}
        return own | {f"SHAREQUEUE_{service.upper()}_PORT": port for service, port in self._ports.items()}

    def client(self, place: int) -> httpx.Client:
        """A client of the gateway of one machine, with the administrator's key."""
        headers = {"Authorization": f"Bearer {self.key()}"}
        return httpx.Client(base_url=self.urls[place], headers=headers, verify=self.trust, timeout=30)

    def key(self) -> str:
        return (self._home / MACHINES[0] / "admin.key").read_text().strip()

    def logs(self) -> str:
        return "".join(log.read_text() for log in self._home.glob("*.log"))

    def start(self) -> None:
        for machine in MACHINES:
            for service in SERVICES:
                self._start(machine, service)
        wait_until(self._ready, READY_S)

    def _start(self, machine: str, service: str) -> None:
        (unit,) = [content for language, content in blocks(PAGE) if language == "systemd"]
        (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        program, *arguments = command.split()
        assert program == "/opt/sharequeue/bin/python"
        with (self._home / f"{machine}-{service}.log").open("ab") as log:
            self._running[machine, service] = subprocess.Popen(
                [sys.executable, *(argument.replace("%i", service) for argument in arguments)],
                env={**os.environ, **self.environment(machine)},
                stdout=log,
                stderr=log,
            )

    def restart_one_by_one(self) -> Iterator[int]:
        """In the order of the page; each is ready before the next. Yields: the machine whose gateway was not restarted
        last."""
        words = {"share coordinators": "share_coordinator", "group coordinators": "coordinator", "gateways": "gateway"}
        (order,) = re.findall(r"Restart the services one at a time, in this order: ([a-z, ]+)\.", PAGE)
        for word in order.split(", "):
            for number, machine in enumerate(MACHINES):
                service = words[word]
                stopping = self._running[machine, service]
                stopping.terminate()
                assert stopping.wait(READY_S) == 0
                self._start(machine, service)
                url = f"https://{machine}:{self._ports[service]}/readyz"
                wait_until(lambda url=url: self._readiness(url).get("status") == "ready", READY_S)
                yield 1 - number

    def _ready(self) -> bool:
        assert all(process.poll() is None for process in self._running.values()), self.logs()
        return all(len(self._readiness(f"{url}/readyz").get("gateways", ())) == 2 for url in self.urls)

    def _readiness(self, url: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = httpx.get(url, verify=self.trust, timeout=30).json()
        except httpx.TransportError:
            return {}
        return found

    def stop(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait(READY_S)
        self._running.clear()

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", self.here(f"{self.login}\n{command}")],
            cwd=self._home,
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


async def make_superuser(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE ROLE postgres SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
    await connection.close()


@pytest.fixture
def machines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    authority: Authority,
    secure_postgres: SecurePostgres,
    secure_redis: SecureRedis,
) -> Iterator[Machines]:
    asyncio.run(make_superuser(secure_postgres.url))
    path = (secure_postgres.programs, Path(sys.executable).parent)
    monkeypatch.setenv("PATH", ":".join((*map(str, path), os.environ["PATH"])))
    found = Machines(tmp_path, secure_postgres, secure_redis, authority)
    yield found
    found.stop()


def work_through(client: httpx.Client, value: str) -> None:
    """Produce a record and accept it, in a group of its own."""
    group = f"/v1/share-groups/{value.replace(' ', '-')}"
    client.post("/v1/topics/steps/records", json={"records": [{"value": value}]}).raise_for_status()
    fetch = {"topics": ["steps"], "member_id": "w", "max_records": 100, "max_wait_ms": 1000}

    def fetched() -> list[dict[str, Any]]:
        return client.post(f"{group}/fetch", json=fetch).json().get("batches", [])

    accepted = [
        {**{name: batch[name] for name in ("topic", "partition", "first_offset", "last_offset")}, "type": "accept"}
        for batch in wait_until(fetched, 30)
    ]
    body = {"member_id": "w", "acknowledgements": accepted}
    results = client.post(f"{group}/acknowledge", json=body).raise_for_status().json()["results"]
    assert {result["status"] for result in results} == {"applied"}


def test_every_command_of_the_page_runs_on_two_machines(machines: Machines) -> None:
    shell = [content for language, content in blocks(PAGE) if language == "sh"]
    begin, use, probe, disk, backup = shell
    login, *make = begin.splitlines()
    machines.login = login
    for line in make:
        machines.run(line)
    machines.start()
    used = machines.run(use)
    assert '"status":"ready"' in used
    assert '"first_offset":0' in used
    for line in probe.splitlines():
        machines.run(line)
    machines.run(disk)
    for number, place in enumerate(machines.restart_one_by_one()):
        with machines.client(place) as client:
            work_through(client, f"during the upgrade {number}")
    assert number == 5, "three services on two machines"
    with machines.client(1) as client:
        transaction = client.post("/v1/transactions", json={"timeout_ms": 900_000}).json()["transaction_id"]
        of_it = {"Transaction-Id": transaction}
        produce = {"records": [{"value": "half of it"}]}
        client.post("/v1/topics/payments/records", json=produce, headers=of_it).raise_for_status()
        machines.run(backup)
        produce = {"records": [{"value": "after the backup"}]}
        client.post("/v1/topics/orders/records", json=produce).raise_for_status()
        client.post("/v1/topics/payments/records", json=produce, headers=of_it).raise_for_status()
    machines.stop()
    (restore,) = [content for language, content in blocks(PAGE) if language == "restore"]
    machines.run(restore)
    machines.start()
    with machines.client(0) as client:
        records = client.get("/v1/topics/orders/partitions/0/records").json()["records"]
        assert [record["value"] for record in records] == [1]
        for how in ("commit", "abort"):  # the producer has lived through the restore
            refused = client.post(f"/v1/transactions/{transaction}/{how}", json={})
            assert (refused.status_code, refused.json()["reason"]) == ({"commit": 409, "abort": 200}[how], "timed_out")
        path = "/v1/topics/payments/partitions/0/records?isolation_level=read_committed"
        read = client.get(path).json()
        assert (read["records"], read["next_offset"], read["log_end_offset"]) == ([], 2, 2), "nothing holds it back"
        deadline = time.monotonic() + 60
        fetch = {"topics": ["orders"], "member_id": "w-2", "max_wait_ms": 1000}
        while not (found := client.post("/v1/share-groups/billing/fetch", json=fetch).json().get("batches")):
            assert time.monotonic() < deadline, "the record of the backup is not delivered again"
        assert found[0]["records"][0]["value"] == 1
    logs = machines.logs()
    for secret in (f":{PASSWORD}@", CLUSTER_TOKEN, machines.key()):
        assert secret not in logs
