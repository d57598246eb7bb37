"""When an acknowledgement with records is answered: its commit decides it, and the states of its groups follow."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sharequeue_gateway.delivery.acknowledging import APPLIED
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.http.groups.offsets_api import GroupsApi
from sharequeue_gateway.http.single_records.in_flight_api import InFlightApi
from sharequeue_gateway.record_log.log import AppendResult
from sharequeue_gateway.routing import settling
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.routing.settled_commits import SettledCommits
from sharequeue_gateway.routing.settling import Settler, Wanted

from sharequeue.protocol.errors import InvalidRecordState
from sharequeue.protocol.messages.groups import ListOffsetsQuery
from sharequeue.protocol.messages.in_flight import InFlightQuery
from sharequeue.protocol.messages.leaders import HeldForTransaction, HoldResponse
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue_http.application.endpoint import Call
from tests.shell.coordinator_wire import CoordinatorWire
from tests.shell.test_load_registry import KEY, ORDERS, Parts, run
from tests.shell.test_work_for_a_fetch import HANG_S

ACCEPT = Acknowledgement(topic="orders", partition=0, first_offset=0, last_offset=0, type="accept")


class Leader:
    """The leader of the records and their log. `may_apply`: until then the state write is under way."""

    def __init__(self, result: AcknowledgementResult) -> None:
        self.result = result
        self.steps: list[str] = []
        self.may_apply = asyncio.Event()

    async def hold(self, *_: object) -> HoldResponse:
        self.steps.append("hold")
        return HoldResponse(results=[self.result], held=[HeldForTransaction(KEY, 1, 1, [])])

    async def begin(self, _: object) -> Any:
        return SimpleNamespace(transaction_id="t")

    async def append_and_settle(self, *_: object) -> AppendResult:
        self.steps.append("commit")
        return AppendResult((0,), None)

    async def end(self, *_: object) -> None:
        self.steps.append("abort")

    async def ended(self, *_: object) -> None:
        await self.may_apply.wait()
        self.steps.append("apply")


def commits_of(gateway: Parts, leader: Any) -> SettledCommits:
    gateway.metadata.by_name["orders"] = ORDERS
    return SettledCommits(Settler(Routing(gateway.cluster), leader, leader, gateway.metadata), leader)


def test_a_commit_is_answered_before_the_state_has_it_and_a_look_at_the_offsets_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settling, "TELL_S", HANG_S)

    async def work(_: CoordinatorWire, gateway: Parts) -> None:
        leader = Leader(APPLIED)
        commits = commits_of(gateway, leader)
        async with asyncio.timeout(HANG_S / 2):
            result = await commits.append([Wanted("g", "m", [ACCEPT])], (), None)
            assert (result.base_offsets, leader.steps) == ((0,), ["hold", "commit"])
            looking = asyncio.create_task(commits.applied())
            await asyncio.sleep(0)
            assert not looking.done()
            leader.may_apply.set()
            await looking
        assert leader.steps == ["hold", "commit", "apply"]

    run(work)


@pytest.mark.parametrize("report", ["offsets", "in-flight"])
def test_a_report_of_a_group_waits_for_the_states_of_what_was_answered(report: str) -> None:
    """Behind the wait nothing is there to be asked, so each look ends with an AttributeError."""
    tokens, nowhere = PageTokens("secret"), cast(Any, None)

    async def work(_: CoordinatorWire, gateway: Parts) -> None:
        leader = Leader(APPLIED)
        commits = commits_of(gateway, leader)
        await commits.append([Wanted("g", "m", [ACCEPT])], (), None)
        groups = GroupsApi(*[nowhere] * 6, _tokens=tokens, _commits=commits)
        asked = Call(nowhere, {"group": "g"}, b"", ListOffsetsQuery(), "request-1")
        in_flight = InFlightApi(*[nowhere] * 6, _commits=commits, _tokens=tokens)
        look = (
            groups.list_share_group_offsets(asked) if report == "offsets" else in_flight.list_of("g", InFlightQuery())
        )
        looking = asyncio.create_task(look)
        await asyncio.sleep(0)
        assert not looking.done()
        leader.may_apply.set()
        with pytest.raises(AttributeError):
            await looking
        assert leader.steps[-1] == "apply"

    run(work)


def test_a_refusal_is_answered_when_the_leader_has_let_the_records_go() -> None:
    """The member may settle the other records of the request at once."""

    async def work(_: CoordinatorWire, gateway: Parts) -> None:
        refused = AcknowledgementResult(status="failed", code="INVALID_RECORD_STATE", kafka_code=121, retriable=False)
        leader = Leader(refused)
        leader.may_apply.set()
        with pytest.raises(InvalidRecordState):
            await commits_of(gateway, leader).append([Wanted("g", "m", [ACCEPT])], (), None)
        assert leader.steps == ["hold", "abort", "apply"]

    run(work)
