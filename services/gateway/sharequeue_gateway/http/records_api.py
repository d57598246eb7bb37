"""Acknowledge: checks the request, advances the session, builds the answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from sharequeue.protocol import apis
from sharequeue.protocol.errors import BY_CODE, checked_group_id
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement, AcknowledgeRequest, AcknowledgeResponse
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import SMALL, Acknowledger, check_count, failed_of
from sharequeue_gateway.delivery.fetching_members import FetchingMembers
from sharequeue_gateway.http.access.refused import acknowledge_others
from sharequeue_gateway.http.settle_api import SettleApi
from sharequeue_gateway.routing.acknowledge import RoutedAcknowledger
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.routing.sessions import Sessions
from sharequeue_gateway.share_partition.session import CLOSE
from sharequeue_http.answer import JSON, Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.exchange import too_large
from sharequeue_http.forms.api import MAX_CALL_BYTES
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError


@dataclass(eq=False)
class RecordsApi:
    """The handler of acknowledgeRecords."""

    _metadata: Metadata
    _routing: Routing
    _acknowledger: Acknowledger
    _routed_acknowledger: RoutedAcknowledger
    _sessions: Sessions
    _settle: SettleApi
    _members: FetchingMembers

    async def acknowledge_records(self, call: Call) -> Answer:
        """Acknowledgements of a client. If they are in a share session, the gateway that keeps it gets them."""
        request: AcknowledgeRequest = call.request
        if len(call.raw) > SMALL:
            if len(call.raw) > MAX_CALL_BYTES and not request.produce:
                raise too_large(MAX_CALL_BYTES)
            check_count(request.acknowledgements)
        group_id = call.path["group"]
        if group_id not in self._metadata.configs:
            checked_group_id(group_id)
        self._members.seen[group_id][request.member_id] = self._members.now_s
        if request.produce:
            return await self._settle.acknowledge_and_produce(call)
        if request.share_session_epoch is not None:
            home = self._routing.home_elsewhere(group_id, request.member_id)
            if home is not None:
                return await self._routing.gateways.in_session(
                    home, apis.ACKNOWLEDGE_IN_SESSION, group_id, request, call.caller.principal
                )
            return await self.acknowledge_here(call)
        wanted = LeaderAcknowledgeRequest(
            member_id=request.member_id, acknowledgements=request.acknowledgements, atomic=request.atomic
        )
        if call.refused or not (self._routing.cluster.alone or self._leads(group_id, request.acknowledgements)):
            results = await acknowledge_others(group_id, wanted, call.refused, self._routed_acknowledger.acknowledge)
            return self._acknowledge_answer(group_id, results)
        results = await self._acknowledger.acknowledge(group_id, wanted)
        if failed_of(results):
            results = await self._routed_acknowledger.repeat_moved(group_id, wanted, results)
        return self._acknowledge_answer(group_id, results)

    def _leads(self, group_id: str, acknowledgements: Sequence[Acknowledgement]) -> bool:
        topics = self._metadata.by_name
        named = ((topics.get(entry.topic), entry.partition) for entry in acknowledgements)
        return self._routing.leads_these(group_id, named)

    async def acknowledge_here(self, call: Call) -> Answer:
        """As `acknowledge_records`; a share session is kept by this gateway."""
        request: AcknowledgeRequest = call.request
        if request.share_session_epoch is None or request.produce:
            return await self.acknowledge_records(call)
        group_id = checked_group_id(call.path["group"])
        session = self._sessions.acknowledge(group_id, request.member_id, request.share_session_epoch)
        wanted = LeaderAcknowledgeRequest(
            member_id=request.member_id, acknowledgements=request.acknowledgements, atomic=request.atomic
        )
        results = await acknowledge_others(group_id, wanted, call.refused, self._routed_acknowledger.acknowledge)
        if request.share_session_epoch == CLOSE:
            await self._sessions.release(session)
        return self._acknowledge_answer(group_id, results)

    acknowledge_in_session = acknowledge_here

    def _acknowledge_answer(self, group_id: str, results: list[AcknowledgementResult]) -> Answer:
        """Raises: ApiError: nothing was applied."""
        failed_count = failed_of(results)
        if results and failed_count == len(results):
            raise _all_failed(results, failed_count)
        config = self._metadata.configs.get(group_id)
        lock_ms = self._metadata.lock_duration_ms(group_id) if config is None else config.record_lock_duration_ms
        response = AcknowledgeResponse(results=results, failed_count=failed_count, acquisition_lock_timeout_ms=lock_ms)
        return (
            Answer(encode(response), headers=headers_with(failed_count)) if failed_count else Answer(encode(response))
        )


def headers_with(failed_count: int) -> tuple[tuple[bytes, bytes], ...]:
    """The headers of an answer in which so many acknowledgements failed, at least one."""
    return (JSON, (b"acknowledge-failed", b"%d" % failed_count))


def _all_failed(results: Sequence[AcknowledgementResult], failed_count: int) -> ApiError:
    """The error if nothing was applied. It has the status of the first result, so the answer is not a 200."""
    first = results[0]
    return ApiError(
        first.detail or "no acknowledgement was applied",
        error=BY_CODE[first.code or "UNKNOWN_SERVER_ERROR"],
        definite=all(result.status == "failed" for result in results),
        extra={"results": results, "failed_count": failed_count},
    )
