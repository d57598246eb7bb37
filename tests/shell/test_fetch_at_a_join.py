"""A fetch under way when another gateway joins goes on at the new leader, also for a client that hangs up."""

import asyncio
import time
from typing import Any

from msgspec import Raw
from sharequeue_gateway.cluster.generation import Generation, Node
from sharequeue_gateway.delivery.fetcher import Fetcher
from sharequeue_gateway.delivery.fetching_members import FetchingMembers
from sharequeue_gateway.delivery.waiting import WaitingFetches
from sharequeue_gateway.http.fetch_api import FetchApi
from sharequeue_gateway.routing.acknowledge import RoutedAcknowledger
from sharequeue_gateway.routing.fetch import RoutedFetch
from sharequeue_gateway.routing.routing import Routing

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.messages.leaders import AcquiredEntry, LeaderFetchResponse, YieldResponse
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import AcknowledgeResponse, FetchRequest
from sharequeue_http.application.endpoint import Call
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.codec import encode
from tests.shell.coordinator_wire import CoordinatorWire
from tests.shell.test_load_registry import READ, Parts, described, run
from tests.shell.test_work_for_a_fetch import Client

NOWHERE: Any = None
APPLIED = AcknowledgementResult(status="applied")
SETTLED = AcknowledgeResponse(results=[APPLIED], failed_count=0, acquisition_lock_timeout_ms=30_000)


def fetch_api(gateway: Parts) -> FetchApi:
    """Fetches of a gateway that knows the topic and the group."""
    gateway.metadata._learn(described(1))
    gateway.metadata._configs["g"] = ShareGroupConfig()
    routing, fetcher = (
        Routing(gateway.cluster),
        Fetcher(gateway.leader, NOWHERE, NOWHERE, gateway.cluster, Clock(), WaitingFetches()),
    )
    acknowledger = RoutedAcknowledger(routing, NOWHERE, gateway.metadata)
    return FetchApi(
        clock=Clock(),
        metadata=gateway.metadata,
        fetcher=fetcher,
        routing=routing,
        routed=RoutedFetch(routing, fetcher, NOWHERE, NOWHERE, acknowledger, Clock()),
        acknowledger=NOWHERE,
        sessions=NOWHERE,
        members=FetchingMembers(),
        ceiling=Ceiling(10, 50, "fetches", time.monotonic),
        watch=None,
    )


def test_records_of_a_new_leader_are_released_if_the_client_has_hung_up() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        client: Any = Client()
        request = FetchRequest(topics=["orders"], member_id="n", max_wait_ms=0)
        fetching = asyncio.create_task(fetch_api(gateway).fetch_records(Call(client, {"group": "g"}, b"", request, "")))
        state = await coordinator.expect(apis.READ_STATE)
        gateway.cluster.follow(Generation(1, (Node("gateway-1", coordinator.url),)))
        state.set_result(READ)
        await coordinator.answer(apis.YIELD_SHARE_PARTITIONS, YieldResponse(held=[]))  # Redis is away
        fetched = await coordinator.expect(apis.FETCH_FROM_LEADER)
        client.gone = True  # the fetch is not told, as if the answer had come in the same moment
        entry: Any = encode(
            AcquiredEntry(topic_id="id-1", partition=0, first_offset=0, last_offset=4, delivery_count=1)
        )
        fetched.set_result(LeaderFetchResponse(batches=[Raw(entry)], errors=[], acquisition_lock_timeout_ms=30_000))
        await coordinator.answer(apis.ACKNOWLEDGE_AT_LEADER, SETTLED)
        await fetching
        await gateway.cluster.close()

    run(work)
