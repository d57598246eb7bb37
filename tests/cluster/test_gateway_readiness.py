"""`/readyz` with several gateways: 503 only where another gateway would do better."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sharequeue_gateway.http.readiness import LASTING_S

from sharequeue.stack.stack import Stack
from tests.cluster.conftest import NewCluster
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import wait_until


@pytest.fixture(scope="module")
def stack(new_cluster: NewCluster) -> Iterator[Stack]:
    """A stack of its own: these tests take dependencies away from it."""
    with new_cluster() as stack:
        yield stack


def readiness(url: str, *, strict: bool = False) -> dict[str, Any]:
    answer = httpx.get(f"{url}/readyz", params={"strict": strict}, timeout=30, verify=False)
    found: dict[str, Any] = answer.json()
    assert answer.status_code == (503 if found["status"] == "unavailable" else 200)
    return found


def statuses(cluster: GatewayCluster, *, strict: bool = False) -> list[str]:
    return [readiness(gateway.url, strict=strict)["status"] for gateway in cluster.gateways]


@pytest.mark.soak
def test_a_gateway_without_redis_is_unavailable_while_others_have_it(cluster: GatewayCluster) -> None:
    cut_off = cluster.gateways[2]
    usual = cut_off.environment["SHAREQUEUE_GATEWAY_REDIS_URL"]
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, and not listening: connections are refused
        cut_off.stop()
        cut_off.environment["SHAREQUEUE_GATEWAY_REDIS_URL"] = f"redis://127.0.0.1:{nobody.getsockname()[1]}/0"
        cluster.start()
        every = ["produce", "fetch", "acknowledge", "manage"]
        wait_until(lambda: statuses(cluster) == ["ready", "ready", "unavailable"])
        wait_until(lambda: [readiness(cut_off.url)[name] for name in ("lacks", "works")] == [["redis"], every])
        wait_until(lambda: readiness(cut_off.url, strict=True)["status"] == "degraded")
    cut_off.stop()
    cut_off.environment["SHAREQUEUE_GATEWAY_REDIS_URL"] = usual
    cluster.start()
    wait_until(lambda: statuses(cluster) == ["ready"] * 3)


@pytest.mark.parametrize(
    ("part", "works"),
    [
        ("share coordinator", ["produce", "manage"]),
        ("group coordinator", ["produce", "fetch", "acknowledge"]),
    ],
)
def test_gateways_that_lose_a_coordinator_together_stay_in_the_load_balancer(
    stack: Stack, cluster: GatewayCluster, part: str, works: list[str]
) -> None:
    """Killed, paused or slow: the leases run out too. A busy machine may lack more for a moment."""
    service, strict = stack.service(part), "unavailable" if part == "share coordinator" else "degraded"

    def degraded() -> bool:
        answers = [readiness(gateway.url) for gateway in cluster.gateways]
        told = [(answer["status"], answer["lacks"], answer["works"]) for answer in answers]
        return told == [("degraded", [part], works)] * 3 and statuses(cluster, strict=True) == [strict] * 3

    service.kill()
    try:
        wait_until(degraded)
        lasting_s = time.monotonic() + 2 * LASTING_S
        wait_until(lambda: degraded() and time.monotonic() > lasting_s)
    finally:
        service.start()
    wait_until(lambda: statuses(cluster) == ["ready"] * 3, 30)


def test_a_gateway_that_lost_its_lease_and_hears_no_other_gateway_is_unavailable(
    stack: Stack, cluster: GatewayCluster
) -> None:
    """It may be cut off from all of them: only its own word would keep it in the load balancer."""
    cut_off, others = cluster.gateways[0], cluster.gateways[1:]
    paused = [stack.service("group coordinator").pid, *(gateway.pid for gateway in others)]
    for pid in paused:
        os.kill(pid, signal.SIGSTOP)
    try:
        unavailable = ("unavailable", ["group coordinator"])
        wait_until(lambda: tuple(map(readiness(cut_off.url).get, ("status", "lacks"))) == unavailable)
    finally:
        for pid in paused:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: statuses(cluster) == ["ready"] * 3, 30)


def test_a_stopping_gateway_is_unavailable_until_it_has_left(stack: Stack, cluster: GatewayCluster) -> None:
    """It cannot leave while the group coordinator is paused, and answers so long."""
    coordinator, stopping = stack.service("group coordinator").pid, cluster.gateways[1]
    os.kill(coordinator, signal.SIGSTOP)
    try:
        os.kill(stopping.pid, signal.SIGTERM)
        wait_until(lambda: readiness(stopping.url)["dependencies"].get("gateway") == "is stopping")
        assert readiness(stopping.url)["status"] == "unavailable"
    finally:
        os.kill(coordinator, signal.SIGCONT)
    wait_until(lambda: not stopping.running())
