"""Names what a record log may lack. `GET /v1` lists the names that the log has.

The column `needs` of the table of calls says which of them a request needs. A gateway whose log lacks one answers 501
with its name, before the call does anything.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final

from sharequeue.protocol.errors import BY_CODE
from sharequeue_http.forms.errors import ApiError


class Capability(StrEnum):
    IDEMPOTENCY_KEYS = "idempotency_keys"
    DEAD_LETTERS = "dead_letters"
    REDRIVE_TO_GROUP = "redrive_to_group"
    TRANSACTIONS = "transactions"
    SETTLE_AND_PRODUCE = "settle_and_produce"
    UNIQUE_RECORDS = "unique_records"
    SCHEDULED_RECORDS = "scheduled_records"
    REPLACE_RECORD_BATCHES = "replace_record_batches"
    RETENTION_UNSETTLED = "retention_unsettled"
    CLEANUP_SETTLED = "cleanup_settled"


ALL: Final = frozenset(Capability)

Needs = Callable[[Any], Iterable[str]]
"""The capabilities that a call (`Call`) needs, by its headers and its decoded request."""


class UnsupportedVersion(ApiError):
    error = BY_CODE["UNSUPPORTED_VERSION"]


def check(needs: Needs, call: Any, offered: frozenset[str]) -> None:
    """Raises: UnsupportedVersion: the call needs a capability that is not offered."""
    for name in needs(call):
        if name not in offered:
            raise UnsupportedVersion(
                f"the record log of this service lacks `{name}`; GET /v1 lists what it has", extra={"capability": name}
            )


def always(name: str) -> Needs:
    return lambda _: (name,)


def in_produce(call: Any) -> Iterable[str]:
    """Of a produce request, which may name a transaction and be unique."""
    if call.header("transaction-id") is not None:
        yield Capability.TRANSACTIONS
    if call.header("idempotency-key") is not None:
        yield Capability.IDEMPOTENCY_KEYS
    if getattr(call.request, "unique", None) is not None:
        yield Capability.UNIQUE_RECORDS


def in_acknowledge(call: Any) -> Iterable[str]:
    return (Capability.SETTLE_AND_PRODUCE,) if call.request.produce else ()


def in_redrive(call: Any) -> Iterable[str]:
    yield Capability.DEAD_LETTERS
    if call.request.to == "retry":
        yield Capability.REDRIVE_TO_GROUP


def in_topic(call: Any) -> Iterable[str]:
    """Of the settings of a topic that is created or changed."""
    config = call.request.config
    if config.get("retention.unsettled") == "keep" or config.get("retention.unsettled.max.bytes", "-1") != "-1":
        yield Capability.RETENTION_UNSETTLED
    if config.get("cleanup.settled") == "true":
        yield Capability.CLEANUP_SETTLED
