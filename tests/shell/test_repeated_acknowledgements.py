"""What a gateway answers when it repeats an acknowledgement whose leader gave no answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from sharequeue_gateway.routing.acknowledge import RoutedAcknowledger

from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue_http.forms.errors import RequestTimedOut


class Leaders:
    """The first leader is lost before it answers, the second one finds the records below its start offset."""

    def __init__(self) -> None:
        self.calls = 0

    async def call(self, *_: Any, group: str) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise RequestTimedOut("the connection was lost")
        return SimpleNamespace(results=[AcknowledgementResult(status="ignored")])


class Known:
    """A gateway's metadata with one topic."""

    by_name = {"t": SimpleNamespace(topic_id="id", partitions=1)}

    def knows(self, *_: object) -> bool:
        return True


@pytest.mark.parametrize(("type_", "status"), [("accept", "unknown"), ("renew", "ignored")])
def test_a_try_without_an_answer_stays_unknown_if_the_repeat_finds_its_records_finished(
    type_: str, status: str
) -> None:
    """Their lock may have ended at the last attempt before: then they are dead letters, and were not accepted."""
    leaders = Leaders()
    cluster = SimpleNamespace(me="me", alone=False, look_again=lambda: None)
    routing = SimpleNamespace(gateways=leaders, cluster=cluster, leader_of=lambda *_: "other")
    acknowledger = RoutedAcknowledger(routing, None, Known())  # type: ignore[arg-type]
    entry = Acknowledgement(topic="t", partition=0, first_offset=0, last_offset=0, delivery_count=1, type=type_)
    request = LeaderAcknowledgeRequest(member_id="m", acknowledgements=[entry])
    (result,) = asyncio.run(acknowledger.acknowledge("g", request))
    assert (result.status, leaders.calls) == (status, 2)
