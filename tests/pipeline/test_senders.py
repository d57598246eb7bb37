"""How many produce requests of a task are under way at once, and in which order they arrive."""

import threading
from collections.abc import Callable

import pytest
from sharequeue_pipeline import PipelineError
from sharequeue_pipeline.options import sink_options
from sharequeue_pipeline.sink.senders import AT_ONCE, Request, Senders

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.pipeline.proxy import Instead, Proxy, Rule
from tests.pipeline.test_sink import values

WAIT_S = 60


def send(proxy: Proxy, topic: str, count: int, **options: str) -> list[int]:
    """Send so many requests of one record. Returns: the numbers of the requests, in the order of their answers."""
    requests = [Request(topic, b'{"records":[{"value":%d}]}' % each, f"{topic}:{each}:", 1) for each in range(count)]
    with Senders(sink_options({"url": proxy.url, "topic": topic, **options})) as senders:
        return [int(request.key.split(":")[1]) for request, _ in senders.sent(requests)]


def keys(proxy: Proxy) -> list[int]:
    """The numbers of the requests, in the order of their arrival."""
    return [int(headers["idempotency-key"].split(":")[1]) for _, _, headers in proxy.requests]


def gathering(most: int) -> tuple[Rule, Callable[[], int]]:
    """A rule that lets requests pass when so many are under way. Returns: also the most that were."""
    together = threading.Barrier(most, timeout=WAIT_S)
    lock = threading.Lock()
    under_way = seen = 0

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        nonlocal under_way, seen
        with lock:
            under_way += 1
            seen = max(seen, under_way)
        together.wait()
        with lock:
            under_way -= 1
        return None

    return rule, lambda: seen


def test_requests_of_a_sorted_write_are_under_way_at_once(gateway: Gateway, name: str, stack: Stack) -> None:
    gateway.create_topic(name)
    with Proxy(stack.url).running() as proxy:
        proxy.rule, most = gathering(AT_ONCE)
        assert send(proxy, name, 3 * AT_ONCE) == list(range(3 * AT_ONCE))
    assert most() == AT_ONCE
    assert sorted(values(gateway, name)) == list(range(3 * AT_ONCE))


@pytest.mark.parametrize("options", [{"sort": "false"}, {"transactional": "true", "transactionalId": "one"}])
def test_records_that_keep_their_order_go_one_request_at_a_time(
    gateway: Gateway, name: str, stack: Stack, options: dict[str, str]
) -> None:
    gateway.create_topic(name)
    with Proxy(stack.url).running() as proxy:
        proxy.rule, most = gathering(1)
        assert send(proxy, name, 9, **options) == list(range(9))
        assert most() == 1
        assert keys(proxy) == list(range(9))
    assert values(gateway, name) == list(range(9))


def test_a_refused_request_ends_the_write(gateway: Gateway, name: str, stack: Stack) -> None:
    """Those under way are answered before the fault comes, and a repeated write appends nothing twice."""
    gateway.create_topic(name)

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        third = headers["idempotency-key"].split(":")[1] == "2"
        return Instead(403, {}) if third else None

    with Proxy(stack.url).running() as proxy:
        proxy.rule = rule
        with pytest.raises(PipelineError, match="refuses the token"):
            send(proxy, name, 50)
        assert max(keys(proxy)) <= 2 + AT_ONCE
        proxy.rule = lambda method, path, headers: None
        send(proxy, name, 50)
    assert sorted(values(gateway, name)) == list(range(50))
