"""Services that are paused while a test runs, and the stack as the next test needs it: it settles records again."""

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, acknowledge_range, wait_until

PATIENCE_S = 60


@contextmanager
def paused(stack: Stack, service: str) -> Iterator[None]:
    """A service does nothing while the block runs. Afterwards the stack settles records again."""
    pid = stack.service(service).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
    until_it_settles(stack)


def until_it_settles(stack: Stack) -> None:
    """Wait until every service is ready, and acknowledgements are durable again.

    A gateway that a share coordinator did not answer in time refuses fetches until one of its writes succeeds, and a
    write of before may still be under way. Writes to a share coordinator go one after the other.
    """
    name = f"after-an-outage-{uuid.uuid4().hex}"
    wait_until(lambda: all(service.ready() for service in stack.services), PATIENCE_S)
    with httpx.Client(base_url=stack.url, timeout=PATIENCE_S, verify=False) as http:
        gateway = Gateway(http)
        gateway.produce(name, 1)
        wait_until(lambda: _fetched(gateway, name), PATIENCE_S)
        accept = [acknowledge_range(name, 0, 0, "accept", delivery_count=1)]
        wait_until(lambda: gateway.try_acknowledge(name, accept).status_code == 200, PATIENCE_S)
    wait_until(lambda: not any(_fails(url) for url in stack.urls), PATIENCE_S)


def _fetched(gateway: Gateway, name: str) -> bool:
    answer = gateway.try_fetch(name, name, max_wait_ms=1000)
    return answer.status_code == 200 and bool(answer.json()["batches"])


def _fails(url: str) -> bool:
    with httpx.Client(base_url=url, timeout=PATIENCE_S, verify=False) as http:
        return Gateway(http).metrics()["sharequeue_share_coordinators_failing"] > 0
