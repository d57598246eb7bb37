"""What a record log lacks: a call that needs it is refused with the name, and the others are served."""

from types import SimpleNamespace
from typing import Any

import pytest
from sharequeue_gateway.http.app import within

from sharequeue.protocol import apis, capabilities
from sharequeue.protocol.capabilities import UnsupportedVersion
from sharequeue.protocol.messages.operations import ServiceDescription
from sharequeue_http.forms.api import Api

ALONE = ServiceDescription(record_log="kafka", capabilities=[])
ALL = ServiceDescription(record_log="postgres", capabilities=sorted(capabilities.ALL))


def outcome(api: Api, service: ServiceDescription, header: str | None = None, **request: Any) -> str:
    """Call within a service. Returns: `served`, or the status and the capability that is missing."""

    async def serve(_: Any) -> str:
        return "served"

    call: Any = SimpleNamespace(request=SimpleNamespace(**request), header={header: "x"}.get)
    try:
        within(api, serve, service)(call).__await__().send(None)
    except StopIteration as answer:
        return str(answer.value)
    except UnsupportedVersion as error:
        return f"{error.status} {error.extra['capability']}"
    raise AssertionError("the call waits")


CALLS: tuple[tuple[Api, dict[str, Any], str], ...] = (
    (apis.BEGIN_TRANSACTION, {}, "transactions"),
    (apis.LIST_TRANSACTIONS, {}, "transactions"),
    (apis.PRODUCE_RECORDS, {"header": "transaction-id"}, "transactions"),
    (apis.PRODUCE_ARROW, {"header": "transaction-id"}, "transactions"),
    (apis.PRODUCE_RAW_RECORD, {"header": "idempotency-key"}, "idempotency_keys"),
    (apis.REDRIVE_DEAD_LETTERS, {"to": "source"}, "dead_letters"),
    (apis.PRODUCE_RECORDS, {"unique": object()}, "unique_records"),
    (apis.PRODUCE_RECORDS, {"unique": None}, "served"),
    (apis.PRODUCE_RAW_RECORD, {}, "served"),
    (apis.ACKNOWLEDGE_RECORDS, {"produce": [object()]}, "settle_and_produce"),
    (apis.ACKNOWLEDGE_RECORDS, {"produce": []}, "served"),
    (apis.SCHEDULE_RECORDS, {}, "scheduled_records"),
    (apis.REPLACE_RECORD_BATCHES, {}, "replace_record_batches"),
    (apis.CREATE_TOPIC, {"config": {"retention.unsettled": "keep"}}, "retention_unsettled"),
    (apis.UPDATE_TOPIC, {"config": {"retention.unsettled.max.bytes": "9"}}, "retention_unsettled"),
    (apis.UPDATE_TOPIC, {"config": {"retention.unsettled.max.bytes": "-1"}}, "served"),
    (apis.UPDATE_TOPIC, {"config": {"cleanup.settled": "true"}}, "cleanup_settled"),
    (apis.CREATE_TOPIC, {"config": {"retention.unsettled": "delete", "cleanup.settled": "false"}}, "served"),
    (apis.FETCH_RECORDS, {}, "served"),
)


@pytest.mark.parametrize(("api", "request_of", "lacking"), CALLS)
def test_a_call_that_needs_a_missing_capability_is_refused_with_its_name(
    api: Api, request_of: dict[str, Any], lacking: str
) -> None:
    assert outcome(api, ALONE, **request_of) == ("served" if lacking == "served" else f"501 {lacking}")
    assert outcome(api, ALL, **request_of) == "served"


def test_a_log_that_has_every_capability_pays_nothing() -> None:
    async def serve(_: Any) -> None: ...

    assert within(apis.BEGIN_TRANSACTION, serve, ALL) is serve
