"""Decides the answer to a call on a transaction, by its outcome. Pure.

    absent ──begin──▶ open ──commit──────────────────────────▶ committed ──25 h──▶ forgotten
                        └───abort, time-out, fence, terminate─▶ aborted ────25 h──▶ forgotten

One that wrote nothing is forgotten when its time has passed. Source of codes and names: Kafka, KIP-98 and KIP-890.

A transaction may have parts. Each is a transaction of its own for those who write to it. The commit of the whole names
the parts that count, and commits them with it; every other end of a part, and of the whole, aborts the part.

A transaction with a transactional id is of those who may use that id, another one of the principal that began it. One
that began without a principal is of everybody who knows its id. For all others it is as if it had never begun.
"""

import re
from collections.abc import Collection
from enum import IntEnum
from typing import Any, Final, NamedTuple

from sharequeue.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdNotFound,
)
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.forms.mistakes import quoted

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
MOST_SHOWN: Final = 64
MOST_PARTITIONS: Final = 1000
"""The partitions that a transaction and the parts it commits may write to."""


class State(IntEnum):
    """As in the column `state`."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2


class Reason(IntEnum):
    """The cause of the end of a transaction, as in the column `reason`."""

    CLIENT = 0
    TIMED_OUT = 1
    FENCED = 2
    ADMINISTRATOR = 3
    REFUSED = 4


class Wish(NamedTuple):
    """The end that a call wants for a transaction."""

    state: State
    reason: Reason


COMMIT: Final = Wish(State.COMMITTED, Reason.CLIENT)
ABORT: Final = Wish(State.ABORTED, Reason.CLIENT)
TIME_OUT: Final = Wish(State.ABORTED, Reason.TIMED_OUT)
FENCE: Final = Wish(State.ABORTED, Reason.FENCED)
TERMINATE: Final = Wish(State.ABORTED, Reason.ADMINISTRATOR)
REFUSE: Final = Wish(State.ABORTED, Reason.REFUSED)

_WHY: Final = {
    Reason.CLIENT: "its client aborted it",
    Reason.TIMED_OUT: "it was open for longer than its timeout_ms",
    Reason.FENCED: "a newer producer has its transactional id",
    Reason.ADMINISTRATOR: "an operator ended it",
    Reason.REFUSED: "an acknowledgement of its commit was refused",
}


class Transaction(NamedTuple):
    """A transaction, as far as it is known. Times are of PostgreSQL's clock, in ms.

    `partitions`: those that it wrote to; of an open one it is not known here. `timeout_ms` and `part_of`, the
    transaction that it is a part of, are not kept with an outcome. `settled`: the digest of the acknowledgements that
    it committed; None: it had none.
    """

    transaction_id: str
    transactional_id: str | None
    producer_epoch: int
    principal: str
    state: State
    reason: Reason
    began_at_ms: int
    timeout_ms: int | None = None
    ended_at_ms: int | None = None
    partitions: int = 0
    part_of: str | None = None
    settled: bytes | None = None

    def known(self) -> dict[str, Any]:
        """Return what an error says about it."""
        said: dict[str, Any] = {"transaction_id": self.transaction_id, "state": self.state.name.lower()}
        if self.state != State.OPEN:
            said["reason"] = self.reason.name.lower()
        if self.ended_at_ms is not None:
            said["ended_at_ms"] = self.ended_at_ms
        return said


def end_answer(wish: Wish, transaction_id: str, found: Transaction | None, settled: bytes | None = None) -> Transaction:
    """The answer to a call that ends a transaction. `found`: the transaction as stored after the call.

    Args:
        settled: the digest of the acknowledgements of a commit.
    Raises: TransactionalIdNotFound: the outcome is not known any more, so it is not definite;
        InvalidTxnState, ProducerFenced: it ended in another way, or was committed with other acknowledgements.
    """
    if found is None:
        raise _not_found(transaction_id, definite=False)
    if wish == COMMIT and found.state == State.COMMITTED and found.settled != settled:
        raise InvalidTxnState(
            f"transaction {transaction_id} was committed with other acknowledgements than those of this request, which"
            " settled nothing",
            extra=found.known(),
        )
    if found.state == wish.state and not (wish == ABORT and found.reason == Reason.FENCED):
        return found
    raise _ended(found)


def append_refusal(transaction_id: str, found: Transaction | None, appended: bool) -> ApiError:
    """The refusal of an append to a transaction that is not open. `appended`: its records are in the transaction.

    An absent transaction has no batch, so that refusal is definite.
    """
    if found is None:
        return _not_found(transaction_id, definite=True)
    return _ended(found, {"appended": True} if appended else {})


def check_transaction_id(transaction_id: str) -> None:
    """Raises: TransactionalIdNotFound: no begin has answered such an id, so the call surely did nothing."""
    if not _ID.match(transaction_id):
        raise _not_found(transaction_id[:MOST_SHOWN], definite=True)


def check_commit(found: Transaction, parts: Collection[str], open_parts: Collection[str], places: int) -> None:
    """Check whether an open transaction may commit with parts. `places`: the partitions that they all wrote to.

    Raises: InvalidTxnState: it is a part itself, or one of the parts is not open; InvalidRequest: too many partitions.
        The transaction stays open.
    """
    if found.part_of is not None:
        raise InvalidTxnState(
            f"transaction {found.transaction_id} is a part: the commit of {found.part_of} names the parts that count",
            extra=found.known(),
        )
    for part in parts:
        if part not in open_parts:
            raise InvalidTxnState(
                f"{part} is not an open part of transaction {found.transaction_id}, which stays open",
                extra=found.known(),
            )
    if parts and places > MOST_PARTITIONS:
        raise InvalidRequest(
            f"transaction {found.transaction_id} and its parts wrote to more than {MOST_PARTITIONS} partitions, which is the"
            " most that one commit may have; it stays open",
            limit=MOST_PARTITIONS,
        )


def check_whole(transaction_id: str, whole: Transaction | None, past: bool) -> None:
    """Check whether a part of a transaction may begin. `past`: its time has passed.

    Raises: TransactionalIdNotFound, InvalidTxnState, ProducerFenced.
    """
    if whole is None:
        raise _not_found(transaction_id, definite=True)
    if whole.state != State.OPEN:
        raise _ended(whole)
    if past:
        raise _ended(whole._replace(state=State.ABORTED, reason=Reason.TIMED_OUT))
    if whole.part_of is not None:
        raise InvalidTxnState(f"transaction {transaction_id} is a part, and has no parts", extra=whole.known())


def check_epoch(transactional_id: str, current: int | None, given: int) -> None:
    """Check whether a producer with this epoch may begin. `current`: None: no producer has begun with this id.

    Raises: TransactionalIdNotFound, ProducerFenced, InvalidProducerEpoch.
    """
    if current is None:
        raise TransactionalIdNotFound(
            f"the transactional id {transactional_id!r} is not known, or not any more: begin without producer_epoch"
        )
    if given < current:
        raise ProducerFenced(
            f"a newer producer has the transactional id {transactional_id!r}: end this one",
            extra={"producer_epoch": current},
        )
    if given > current:
        raise InvalidProducerEpoch(
            f"producer_epoch {given} of {transactional_id!r} was never answered: begin without producer_epoch",
            extra={"producer_epoch": current},
        )


def still_open(found: Transaction) -> InvalidTxnState:
    """A producer begins while its transaction is open."""
    return InvalidTxnState(
        f"transaction {found.transaction_id} of the transactional id {found.transactional_id!r} is open: end it, or begin"
        " without producer_epoch, which aborts it",
        extra=found.known(),
    )


def _ended(found: Transaction, extra: dict[str, Any] | None = None) -> ApiError:
    said = found.known() | (extra or {})
    if found.state == State.COMMITTED:
        return InvalidTxnState(f"transaction {found.transaction_id} was committed", extra=said)
    kind = ProducerFenced if found.reason == Reason.FENCED else InvalidTxnState
    return kind(f"transaction {found.transaction_id} was aborted: {_WHY[found.reason]}", extra=said)


def _not_found(transaction_id: str, *, definite: bool) -> TransactionalIdNotFound:
    return TransactionalIdNotFound(
        f"no transaction {quoted(transaction_id)!r} is known: it never began, wrote nothing, or ended more than 25 hours ago",
        definite=definite,
        extra={"transaction_id": transaction_id},
    )
