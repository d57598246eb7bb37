"""PostgreSQL and Redis over TLS: services check the certificates of the stores by an authority that the URL names."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest

from sharequeue.stack.migrate import upgrade
from tests.certificates import Authority
from tests.http.calls import Gateway, acknowledge_range, wait_until
from tests.stores.servers import PASSWORD, SecurePostgres, SecureRedis
from tests.system.test_tls import MODULES, SecureStack

WRONG = {
    "authority": "unable to get local issuer certificate",
    "host": "IP address mismatch",
    "expired": "certificate has expired",
}
"""What is wrong with a certificate, and the words for it."""


def wrong_pair(authority: Authority, folder: Path, wrong: str) -> tuple[Path, Path]:
    """A certificate that does not prove to be this machine's."""
    other = Authority(folder / "other") if wrong == "authority" else authority
    return other.pair(wrong, "10.0.0.9" if wrong == "host" else "127.0.0.1", expired=wrong == "expired")


@pytest.mark.parametrize("wrong", WRONG)
def test_a_service_does_not_start_on_a_postgres_whose_certificate_is_wrong(
    secure_postgres: SecurePostgres, tmp_path: Path, wrong: str
) -> None:
    secure_postgres.present(wrong_pair(secure_postgres.authority, tmp_path, wrong))
    prefix = "SHAREQUEUE_SHARE_COORDINATOR_"
    settings = {"DATABASE_URL": secure_postgres.url, "CLUSTER_TOKEN": "0123456789abcdef", "PORT": "0"}
    settings["COORDINATOR_URL"] = "http://127.0.0.1:1"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHAREQUEUE_")}
    ended = subprocess.run(
        [sys.executable, "-m", MODULES["SHARE_COORDINATOR"]],
        env=environment | {prefix + name: value for name, value in settings.items()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    line = json.loads(said.splitlines()[-1])
    assert line["message"] == "cannot start"
    assert f"PostgreSQL shows a certificate that is not accepted ({WRONG[wrong]}" in line["cause"]
    assert secure_postgres.password not in said


@pytest.fixture
def stack(
    tmp_path: Path, secure_postgres: SecurePostgres, secure_redis: SecureRedis
) -> Iterator[tuple[SecureStack, Gateway]]:
    """The three services over TLS on stores over TLS; and its gateway."""
    secure_postgres.present(secure_postgres.authority.pair("right", "127.0.0.1"))
    upgrade(secure_postgres.url)
    made = SecureStack(tmp_path, secure_postgres.url, secure_redis.url)
    with made.client() as client:
        yield made, Gateway(client)
    made.close()
    for kind in MODULES:
        log = made.log_file(kind).read_text()
        assert f":{PASSWORD}@" not in log
        assert secure_postgres.password not in log


def dependency(gateway: Gateway, name: str) -> str:
    """What a gateway says about one of its dependencies."""
    try:
        return str(gateway.http.get("/readyz").json()["dependencies"][name])
    except httpx.TransportError:
        return ""


def work_through(gateway: Gateway, name: str, value: str) -> None:
    """Produce a record, fetch it and accept it."""
    (offset,) = gateway.produce(name, value)
    assert gateway.acquire(name, name, max_wait_ms=10_000) == [f"{offset}-{offset}×1"]
    answer = gateway.try_acknowledge(name, [acknowledge_range(name, offset, offset, "accept", delivery_count=1)])
    assert answer.json()["failed_count"] == 0, answer.text


async def end_connections(server: SecurePostgres) -> None:
    connection = await asyncpg.connect(server.url.replace("verify-full", "require").partition("&")[0])
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    await connection.close()


def test_a_gateway_works_without_a_redis_whose_certificate_is_wrong(
    stack: tuple[SecureStack, Gateway], secure_redis: SecureRedis, tmp_path: Path, name: str
) -> None:
    """From its start on, and later; and with the right certificate Redis is in use again."""
    secure, gateway = stack
    for number, wrong in enumerate(WRONG):
        secure_redis.present(wrong_pair(secure_redis.authority, tmp_path, wrong))
        if not number:
            for kind in MODULES:
                secure.start(kind)
        wait_until(lambda: "shows a certificate that is not accepted" in dependency(gateway, "redis"))
        assert WRONG[wrong] in secure.log_file("GATEWAY").read_text()
        work_through(gateway, name, wrong)
        secure_redis.present(secure_redis.authority.pair("redis", "127.0.0.1"))
        wait_until(lambda: dependency(gateway, "redis") == "ok")
    work_through(gateway, name, "with Redis")


def test_services_go_on_when_a_certificate_of_postgres_is_renewed_and_wait_while_it_is_wrong(
    stack: tuple[SecureStack, Gateway], secure_postgres: SecurePostgres, tmp_path: Path, name: str
) -> None:
    secure, gateway = stack
    for kind in MODULES:
        secure.start(kind)
    wait_until(lambda: all(map(secure.ready, MODULES)))
    work_through(gateway, name, "first")
    secure_postgres.present(secure_postgres.authority.pair("renewed", "127.0.0.1"))
    asyncio.run(end_connections(secure_postgres))
    wait_until(lambda: all(map(secure.ready, MODULES)))
    work_through(gateway, name, "with the renewed one")
    secure_postgres.present(wrong_pair(secure_postgres.authority, tmp_path, "expired"))
    asyncio.run(end_connections(secure_postgres))
    wait_until(lambda: WRONG["expired"] in dependency(gateway, "postgresql"))
    refused = gateway.http.post(f"/v1/topics/{name}/records", json={"records": [{"value": "refused"}]})
    assert (refused.status_code, refused.json()["definite"]) == (503, True), refused.text
    secure_postgres.present(secure_postgres.authority.pair("later", "127.0.0.1"))
    wait_until(lambda: all(map(secure.ready, MODULES)))
    work_through(gateway, name, "with the later one")
