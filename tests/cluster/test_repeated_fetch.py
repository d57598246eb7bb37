"""A fetch whose client hung up is repeated under its id: the records of the repeat's answer stay held."""

import signal
from collections.abc import Iterator

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack
from tests.cluster.calls import acknowledge, acknowledgements_of, fetch, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster


@pytest.fixture
def share_coordinator(stack: Stack) -> Iterator[ServiceProcess]:
    """It may be paused; it is resumed at the end."""
    service = stack.service("share coordinator")
    yield service
    assert service.process is not None
    service.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("through", ["the leader", "another gateway"])
def test_a_disconnect_does_not_release_records_of_the_repeated_fetch(
    cluster: GatewayCluster, clients: list[httpx.Client], share_coordinator: ServiceProcess, name: str, through: str
) -> None:
    """The first fetch has acquired, and waits for its acknowledgement to be durable, when its client hangs up."""
    topic_id = make_topic(clients[0], name, 1)
    produce(clients[0], name, 0, 1)
    first = fetch(clients[0], name, topics=[name], member_id="m", max_wait_ms=5000)
    produce(clients[0], name, 0, 5)
    leader = cluster.leader_of(name, topic_id, 0)
    entry = next(gateway for gateway in cluster.gateways if (gateway is leader) == (through == "the leader"))
    body = {"topics": [name], "member_id": "m", "fetch_id": "f", "max_wait_ms": 0}
    assert share_coordinator.process is not None
    share_coordinator.process.send_signal(signal.SIGSTOP)
    acknowledging = {**body, "acknowledgements": acknowledgements_of(first, "accept")}
    with httpx.Client(base_url=entry.url, timeout=1) as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post(f"/v1/share-groups/{name}/fetch", json=acknowledging)
    repeated = fetch(clients[cluster.gateways.index(entry)], name, **body)
    assert places(repeated) == {(0, offset) for offset in range(1, 6)}
    assert {batch["delivery_count"] for batch in repeated["batches"]} == {1}
    share_coordinator.process.send_signal(signal.SIGCONT)
    assert fetch(clients[0], name, topics=[name], member_id="n", max_wait_ms=2000)["batches"] == []
    acknowledge(clients[0], name, repeated)
