"""The listeners of the three services speak https, and the services check each other's certificates."""

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from sharequeue.stack.process import free_port
from tests.certificates import Authority
from tests.http.calls import wait_until

MODULES = {"GATEWAY": "sharequeue_gateway", "COORDINATOR": "sharequeue_coordinator"}
MODULES["SHARE_COORDINATOR"] = "sharequeue_share_coordinator"


class SecureStack:
    """The three services as programs, each with the certificate for localhost of one authority."""

    def __init__(self, folder: Path, database_url: str, redis_url: str) -> None:
        self.authority = Authority(folder)
        self.pair = self.authority.pair("localhost", "localhost")
        ports = {kind: free_port() for kind in MODULES}
        self.urls = {kind: f"https://localhost:{port}" for kind, port in ports.items()}
        self.settings = {
            kind: {
                "DATABASE_URL": database_url,
                "CLUSTER_TOKEN": "0123456789abcdef",
                "PORT": str(ports[kind]),
                "URL": self.urls[kind],
                "TLS_CERTIFICATE_FILE": str(self.pair[0]),
                "TLS_KEY_FILE": str(self.pair[1]),
                "CA_FILE": str(self.authority.file),
            }
            for kind in MODULES
        }
        self.settings["GATEWAY"] |= {"REDIS_URL": redis_url, "REDIS_TIMEOUT_MS": "2500"}
        for kind, other in ("GATEWAY", "COORDINATOR"), ("SHARE_COORDINATOR", "COORDINATOR"):
            self.settings[kind][f"{other}_URL"] = self.urls[other]
        for kind in "GATEWAY", "COORDINATOR":
            self.settings[kind]["SHARE_COORDINATOR_URL"] = self.urls["SHARE_COORDINATOR"]
        self.folder = folder
        self._running = ExitStack()

    def start(self, kind: str, **settings: str) -> subprocess.Popen[bytes]:
        variables = {f"SHAREQUEUE_{kind}_{name}": value for name, value in (self.settings[kind] | settings).items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SHAREQUEUE_")}
        log = self._running.enter_context(self.log_file(kind).open("ab"))
        process = subprocess.Popen(
            [sys.executable, "-m", MODULES[kind]], env=inherited | variables, stderr=log, stdout=log
        )
        self._running.callback(process.wait, 60)
        self._running.callback(process.terminate)
        return process

    def log_file(self, kind: str) -> Path:
        return self.folder / f"{kind}.log"

    def client(self, kind: str = "GATEWAY") -> httpx.Client:
        """A client that makes its connections itself, and trusts the authority alone."""
        trusted = ssl.create_default_context(cafile=str(self.authority.file))
        return httpx.Client(base_url=self.urls[kind], verify=trusted, timeout=60)

    def ready(self, kind: str) -> bool:
        try:
            with self.client(kind) as client:
                return bool(client.get("/readyz", params={"strict": "true"}).json()["status"] == "ready")
        except httpx.TransportError:
            return False

    def serves(self, kind: str) -> bool:
        """Whether a service answers one who asks for no certificate."""
        try:
            return httpx.get(f"{self.urls[kind]}/livez", verify=False, timeout=60).status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._running.close()


@pytest.fixture
def secure(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[SecureStack]:
    stack = SecureStack(tmp_path, database_url, redis_url)
    yield stack
    stack.close()


def test_records_go_through_three_services_that_speak_https(secure: SecureStack, name: str) -> None:
    for kind in MODULES:
        secure.start(kind)
    wait_until(lambda: all(map(secure.ready, MODULES)))
    with secure.client() as client:
        produced = client.post(f"/v1/topics/{name}/records", json={"records": [{"value": "x" * 100_000}] * 20})
        assert produced.status_code == 200, produced.text
        fetched = client.post(f"/v1/share-groups/{name}/fetch", json={"topics": [name], "member_id": "w"})
        assert fetched.status_code == 200, fetched.text
        assert fetched.text.count("x" * 100_000) == 20
    with pytest.raises(httpx.TransportError):
        httpx.get(secure.urls["GATEWAY"].replace("https", "http") + "/livez", timeout=60)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(secure.urls["GATEWAY"] + "/livez", timeout=60)


def test_the_listener_of_operations_has_the_certificate_of_its_service(secure: SecureStack) -> None:
    port = free_port()
    secure.start("SHARE_COORDINATOR", OPERATIONS_PORT=str(port))
    wait_until(lambda: secure.serves("SHARE_COORDINATOR"))
    with secure.client("SHARE_COORDINATOR") as client:
        assert client.get("/metrics").status_code == 404
        assert "sharequeue_owned_shards" in client.get(f"https://localhost:{port}/metrics").text
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{port}/metrics", timeout=60)


@pytest.mark.parametrize("wrong", ["authority", "host", "expired"])
def test_a_service_does_not_call_one_whose_certificate_is_not_right(secure: SecureStack, wrong: str) -> None:
    other = Authority(secure.folder / "other") if wrong == "authority" else secure.authority
    certificate, key = other.pair(wrong, "example.org" if wrong == "host" else "localhost", expired=wrong == "expired")
    secure.start("COORDINATOR", TLS_CERTIFICATE_FILE=str(certificate), TLS_KEY_FILE=str(key))
    secure.start("SHARE_COORDINATOR")

    def said() -> str:
        try:
            with secure.client("SHARE_COORDINATOR") as client:
                return client.get("/readyz", params={"strict": "true"}).text
        except httpx.TransportError:
            return ""

    wait_until(lambda: "coordinator" in said())
    wait_until(lambda: secure.serves("COORDINATOR"))
    assert json.loads(said())["status"] != "ready", said()


def test_a_changed_certificate_is_taken_and_a_broken_one_is_not(secure: SecureStack) -> None:
    secure.start("SHARE_COORDINATOR")

    def shown() -> str:
        trusted = ssl.create_default_context(cafile=str(secure.authority.file))
        host, port = secure.urls["SHARE_COORDINATOR"].removeprefix("https://").split(":")
        with (
            socket.create_connection((host, int(port)), 60) as plain,
            trusted.wrap_socket(plain, server_hostname=host) as tls,
        ):
            return str((tls.getpeercert() or {})["serialNumber"])

    def served() -> str | None:
        try:
            return shown()
        except OSError:
            return None

    def logged(message: str) -> bool:
        lines = secure.log_file("SHARE_COORDINATOR").read_text().splitlines()
        return any(message in json.loads(line)["message"] for line in lines if line.startswith("{"))

    wait_until(lambda: served() is not None)
    first = served()
    good = secure.pair[1].read_bytes()
    secure.pair[1].write_text("no key")
    assert shown() == first
    assert logged("changed certificates are not used")
    secure.pair[1].write_bytes(good)
    secure.authority.pair("localhost", "localhost")
    wait_until(lambda: served() not in (None, first))


def test_another_authority_is_taken_and_the_one_before_it_is_not_trusted_any_more(secure: SecureStack) -> None:
    """By two services while they run. Their connections to each other end soon, and each question makes another one."""
    two = ("COORDINATOR", "SHARE_COORDINATOR")
    processes = [psutil.Process(secure.start(kind, IDLE_TIMEOUT_MS="100").pid) for kind in two]
    ports = {int(secure.urls[kind].rpartition(":")[2]) for kind in two}

    def connected() -> bool:
        return any(
            each.raddr and each.raddr.port in ports for process in processes for each in process.net_connections()
        )

    def told(kind: str, word: str, authority: Path | None = None) -> bool:
        """Whether a service with a certificate of an authority, or with any, has this word for the other one."""
        wait_until(lambda: not connected())
        trusted = False if authority is None else ssl.create_default_context(cafile=str(authority))
        try:
            dependencies = httpx.get(f"{secure.urls[kind]}/readyz", verify=trusted, timeout=60).json()["dependencies"]
        except httpx.TransportError:
            return False
        return any(name.endswith("coordinator") and word in text for name, text in dependencies.items())

    other, trusted = Authority(secure.folder / "other"), secure.authority.file
    first, former = trusted.read_bytes(), [file.read_bytes() for file in secure.pair]
    wait_until(lambda: all(told(kind, "ok", trusted) for kind in two))
    trusted.write_bytes(first + other.file.read_bytes())
    for file, renewed in zip(secure.pair, other.pair("localhost", "localhost"), strict=True):
        renewed.replace(file)
    wait_until(lambda: all(told(kind, "ok", other.file) for kind in two))
    trusted.write_text("nothing")
    for kind in two:
        assert told(kind, "ok", other.file), "what was read before stays"
        assert "changed certificates are not used" in secure.log_file(kind).read_text()
    trusted.write_bytes(other.file.read_bytes())
    assert all(told(kind, "ok", other.file) for kind in two)
    for file, before in zip(secure.pair, former, strict=True):
        file.write_bytes(before)
    wait_until(lambda: all(told(kind, "CERTIFICATE_VERIFY_FAILED") for kind in two))


@pytest.mark.parametrize("broken", ["TLS_CERTIFICATE_FILE", "TLS_KEY_FILE", "CA_FILE"])
def test_files_that_cannot_be_used_stop_the_start_with_one_sentence(secure: SecureStack, broken: str) -> None:
    nothing = secure.folder / "nothing.pem"
    nothing.write_text("nothing")
    assert secure.start("COORDINATOR", **{broken: str(nothing)}).wait(60) == 2
    (line,) = secure.log_file("COORDINATOR").read_text().splitlines()
    assert str(nothing) in line
