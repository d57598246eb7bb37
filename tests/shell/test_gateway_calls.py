"""The time of each gateway that the group coordinator asks in turn."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from sharequeue_coordinator.metadata import gateway_calls
from sharequeue_coordinator.metadata.gateway_calls import GatewayCalls
from sharequeue_coordinator.metadata.topic_admin import REMOVAL_S

from sharequeue.protocol import apis
from sharequeue.protocol.messages.cluster import Gateway
from sharequeue.repeats import EVERY_GATEWAY
from sharequeue_http.forms.errors import CoordinatorNotAvailable, RequestTimedOut


@pytest.mark.parametrize("each_s", [None, REMOVAL_S])
def test_a_silent_gateway_takes_no_time_from_the_removal_at_the_next_one(
    monkeypatch: pytest.MonkeyPatch, each_s: float | None
) -> None:
    """Other questions end within the time of all."""
    asked: list[float] = []

    async def live() -> list[Gateway]:
        return [Gateway(node_id=f"gateway-{n}", url=f"http://gateway-{n}") for n in range(4)]

    async def silent(*given: Any) -> None:
        asked.append(given[-1])
        raise RequestTimedOut("it says nothing")

    calls = GatewayCalls(live, cluster_token="")
    monkeypatch.setattr(calls, "_ask", silent)
    monkeypatch.setattr(gateway_calls, "time", SimpleNamespace(monotonic=lambda: sum(asked)))
    with pytest.raises(CoordinatorNotAvailable, match="no gateway can remove it: it says nothing"):
        asyncio.run(calls.ask_one(apis.DELETE_TOPIC_RECORDS, None, "remove it", each_s=each_s))
    assert asked == [REMOVAL_S] * 4 if each_s else sum(asked[:-1]) <= EVERY_GATEWAY.patience_s
