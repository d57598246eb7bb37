"""No key, token or password is in what a stack writes, answers or shows of its processes, whatever happens to it."""

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.http.calls import wait_until

WRONG_PASSWORD = "wr0ng-and-as-secret"
FILES = ("admin.key", "cluster.token", "redis.password", "postgresql.password")
KINDS = {"gateway": "GATEWAY", "group coordinator": "COORDINATOR", "share coordinator": "SHARE_COORDINATOR"}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Three programs with stores of their own, whose callers need keys."""
    with temporary_stack(tmp_path / "data", require_keys=True) as stack:
        yield stack


class Listener:
    """Makes calls, and keeps all that was answered, but the one answer that shows a new key."""

    def __init__(self, stack: Stack, secrets: dict[str, str]) -> None:
        self._http = httpx.Client(timeout=60, verify=False)
        self._addresses = stack.addresses
        self._secrets = secrets
        self.heard: list[str] = []
        self.statuses: set[int] = set()

    def call(self, service: str, method: str, path: str, secret: str | None = "key", **options: object) -> int:
        """One call of a service, with one of the secrets as the caller's. Returns: the status, or 0."""
        headers = {} if secret is None else {"Authorization": f"Bearer {self._secrets[secret]}"}
        headers |= options.pop("headers", {})  # type: ignore[operator]
        try:
            answer = self._http.request(method, self._addresses[service] + path, headers=headers, **options)  # type: ignore[arg-type]
        except httpx.TransportError:
            return 0
        self.heard.append(f"{service} {method} {path.partition('sq_')[0]}: {dict(answer.headers)} {answer.text}")
        self.statuses.add(answer.status_code)
        return answer.status_code

    def make_key(self) -> str:
        answer = self._http.post(
            f"{self._addresses['gateway']}/v1/keys",
            json={"principal": "User:worker"},
            headers={"Authorization": f"Bearer {self._secrets['admin.key']}"},
        )
        return str(answer.raise_for_status().json()["key"])

    def pages(self) -> None:
        """All that operators read."""
        for service in self._addresses:
            for path in ("/livez", "/readyz", "/readyz?strict=true", "/metrics", "/nowhere"):
                for secret in ("admin.key", "cluster.token", None):
                    self.call(service, "GET", path, secret)

    def calls(self) -> None:
        """Calls of several kinds and callers."""
        for secret in ("key", "admin.key", "cluster.token", None):
            self.call("gateway", "POST", "/v1/topics", secret, json={"name": "orders"})
            self.call("gateway", "POST", "/v1/topics/orders/records", secret, json={"records": [{"value": 1}]})
            self.call("gateway", "GET", "/v1/topics/orders/partitions/0/records", secret)
            self.call(
                "gateway", "POST", "/v1/share-groups/g/fetch", secret, json={"topics": ["orders"], "member_id": "m"}
            )
            self.call("gateway", "GET", "/v1/keys", secret)
            self.call("gateway", "POST", "/v1/transactions", secret, json={"transactional_id": "t"})
            for service in self._addresses:
                self.call(service, "GET", "/v1/metadata/access?x=1", secret if secret != "cluster.token" else None)
                self.call(service, "POST", "/v1/shards", secret, content=b"{")

    def mistakes(self) -> None:
        """Calls that show a secret where none belongs."""
        key = self._secrets["key"]
        for place in (
            f"/v1/topics/{key}",
            f"/v1/topics?token={key}",
            f"/{key}",
            f"/v1/keys/{key}",
            f"/v1/acls?{key}=1",
        ):
            for method in ("GET", "DELETE", "PATCH"):
                self.call("gateway", method, place, "admin.key")
        for body in (
            {"name": f"{key}/"},
            {"name": key, "partitions": key},
            {key: 1},
            {"principal": key},
            {"name": "t", "config": {"retention.ms": key}},
            {"topics": [key], "member_id": key},
            {"transactional_id": key, "timeout_ms": key},
            {"acls": [{"principal": key, "operation": key, "resource_type": "TOPIC", "resource_name": key}]},
        ):
            for path in ("/v1/topics", "/v1/keys", "/v1/acls", "/v1/share-groups/g/fetch"):
                self.call("gateway", "POST", path, "admin.key", json=body)
                self.call("gateway", "POST", path, "admin.key", content=json.dumps(body).encode()[:-2])
        for name in ("Idempotency-Key", "Transaction-Id", "Host", "Origin", "Content-Type", "traceparent"):
            self.call("gateway", "POST", "/v1/topics/orders/records", headers={name: key}, json={"records": []})
        for scheme in ("Basic", "Bearer Bearer", "bearer"):
            self.call("gateway", "GET", "/v1/topics", headers={"Authorization": f"{scheme} {key}x"})
        self.call("gateway", "DELETE", f"/v1/keys/{key.split('_')[1]}", "key")


def break_stores(stack: Stack, listener: Listener) -> None:
    """Take one store after the other away while all is called, and start services that cannot reach it."""
    for store in (stack.redis, stack.postgres):
        assert store is not None
        store.kill()
        listener.calls()
        listener.pages()
        for service in stack.services:
            service.kill()
            service.start()
        wait_until(
            lambda: any(
                not service.running() or listener.call(service.name, "GET", "/livez") for service in stack.services
            )
        )
        store.launch()
        store.wait()
        start(stack)


def give_wrong_passwords(stack: Stack) -> None:
    """Start each service with a password that its store refuses, until it says so; then with the right one.

    What a service tells of it says `password`, in the words of the store or in its own.
    """
    for service in stack.services:
        right = dict(service.environment)
        prefix = f"SHAREQUEUE_{KINDS[service.name]}"
        for name in ("DATABASE_URL", "REDIS_URL"):
            if (url := right.get(f"{prefix}_{name}")) is not None:
                before, _, after = url.rpartition("@")
                user = before.rpartition(":")[0]
                service.environment = {**right, f"{prefix}_{name}": f"{user}:{WRONG_PASSWORD}@{after}"}
                service.kill()
                written = service.log_file.stat().st_size
                service.start()
                wait_until(partial(tells_of_password, service, written))
                service.environment = right
                service.kill()
                service.start()
                wait_until(service.ready)


def tells_of_password(service: ServiceProcess, written: int) -> bool:
    """Whether its log has, after the first `written` bytes, that its store refuses the password."""
    return b"assw" in service.log_file.read_bytes()[written:]


def start(stack: Stack) -> None:
    for service in stack.services:
        service.kill()
        service.start()
    for service in stack.services:
        wait_until(service.ready)


def command_lines() -> str:
    lines = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return "\n".join(lines)


@pytest.mark.soak
def test_no_secret_is_shown_whatever_happens(stack: Stack, tmp_path: Path) -> None:
    data = tmp_path / "data"
    secrets = {name: (data / name).read_text().strip() for name in FILES}
    listener = Listener(stack, secrets)
    secrets["key"] = listener.make_key()
    texts = {"command lines": command_lines()}
    listener.calls()
    listener.mistakes()
    listener.pages()
    break_stores(stack, listener)
    give_wrong_passwords(stack)
    texts["command lines"] += command_lines()
    listener.calls()
    listener.pages()
    assert {200, 400, 401, 403, 404, 503} <= listener.statuses
    assert len(texts["command lines"]) > 1000
    texts |= {f"answer {number}": heard for number, heard in enumerate(listener.heard)}
    texts |= {str(file.relative_to(data)): file.read_text(errors="replace") for file in data.rglob("*.log")}
    assert {
        "logs/gateway.log",
        "logs/group-coordinator.log",
        "logs/share-coordinator.log",
        "postgresql.log",
    } <= texts.keys()
    hidden = {name: text.split("_")[2] if text.startswith("sq_") else text for name, text in secrets.items()}
    hidden["wrong password"] = WRONG_PASSWORD
    found = [
        f"the {name} is in {where}: …{text[max(0, text.index(secret) - 200) : text.index(secret)]}"
        for where, text in texts.items()
        for name, secret in hidden.items()
        if secret in text
    ]
    assert found == []
