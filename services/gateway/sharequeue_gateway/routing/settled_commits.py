"""Commits that settle: of a client's transaction, and of one acknowledgement that carries records.

    commit with acknowledgements      T of the client        find ─▶ hold ─▶ commit ─▶ tell
    acknowledge with `produce`        T of its own: begin ─▶ hold ─▶ append, settle and end T in one commit ─▶ tell

A refused acknowledgement aborts T: its records came from what the member does not hold any more.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sharequeue.protocol.errors import (
    ConcurrentTransactions,
    InvalidRecordState,
    InvalidTxnState,
    TransactionalIdNotFound,
)
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.owner import ANY_OWNER, ANYBODY, Owner
from sharequeue_gateway.record_log.transactions.settlements import Settlement, Settling
from sharequeue_gateway.record_log.transactions.transaction_rules import (
    COMMIT,
    REFUSE,
    State,
    Transaction,
    check_commit,
    end_answer,
)
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction, PostgresTransactions
from sharequeue_gateway.routing.settling import Refused, Settler, Wanted, digest_of, told
from sharequeue_http.forms.errors import ApiError

TIMEOUT_MS: Final = 30_000
"""Of the transaction of one acknowledgement: if its gateway dies, its records are let go after this time."""


@dataclass(eq=False)
class SettledCommits:
    """Commits transactions together with acknowledgements."""

    _settler: Settler
    _transactions: PostgresTransactions

    async def commit(
        self,
        transaction_id: str,
        wanted: Sequence[Wanted],
        note: str | None,
        parts: Sequence[str],
        owner: str = ANY_OWNER,
    ) -> Transaction:
        """Commit a transaction, and settle what its client acknowledges. A repeat is answered the same.

        `owner`: patterns of the transactions that the caller may commit.
        Raises: InvalidTxnState: it is not open; or an acknowledgement was refused, so it is aborted: `results` say why.
            ConcurrentTransactions, CoordinatorNotAvailable, RequestTimedOut: repeat the request. Others as of an end.
        """
        places = self._settler.check(wanted)
        digest = digest_of(wanted)
        found = await self._transactions.find(transaction_id, owner)
        if found is None or found.state != State.OPEN:
            return end_answer(COMMIT, transaction_id, found, digest)
        check_commit(found, (), (), 0)  # a part settles nothing
        try:
            settling = Settling(digest, await self._settler.hold(transaction_id, wanted))
            ended = await self._transactions.end(
                transaction_id, COMMIT, note=note, parts=parts, owner=owner, settling=settling
            )
            del settling  # it may be large, and its leaders read it from the log
            return ended
        except Refused as refused:
            aborted = await self._transactions.end(transaction_id, REFUSE)
            raise InvalidTxnState(
                f"nothing is settled and the transaction is aborted, because {refused.first.detail}",
                extra=aborted.known() | refused.extra(),
            ) from None
        finally:
            await told(self._settler.tell(transaction_id, self._settler.keys_of(places)))

    async def append(
        self,
        wanted: Sequence[Wanted],
        appends: Sequence[PartitionAppend],
        key: IdempotencyKey | None,
        owner: Owner = ANYBODY,
    ) -> AppendResult:
        """Append records and settle what a member acknowledges: all of it, or nothing.

        Returns: the result; the first one, if a request with this key has happened.
        Raises: InvalidRecordState (121): an acknowledgement was refused: `results` say why. ConcurrentTransactions: the
            transaction of this request ended too early, so nothing has happened. Others as of an append.
        """
        places = self._settler.check(wanted)
        digest = digest_of(wanted)
        begun = await self._transactions.begin(NewTransaction(TIMEOUT_MS, owner=owner, durable=False))
        transaction_id = begun.transaction_id
        committed: list[Settlement] = []
        try:
            settlements = await self._settler.hold(transaction_id, wanted)
            settling = Settling(digest, settlements)
            result = await self._transactions.append_and_settle(transaction_id, settling, appends, key)
        except (Refused, ApiError) as fault:
            await self._abort(transaction_id)
            # an earlier try may have happened since, and settled these
            if key is not None and (first := await self._transactions.first_answer(key)) is not None:
                return first
            if isinstance(fault, Refused):
                raise InvalidRecordState(
                    f"nothing is settled or stored, because {fault.first.detail}", extra=fault.extra()
                ) from None
            if isinstance(fault, (InvalidTxnState, TransactionalIdNotFound)):  # the client has named no transaction
                raise ConcurrentTransactions(
                    "the transaction of this request ended before its commit: it took too long, an operator aborted it,"
                    " or PostgreSQL crashed and lost it; nothing is settled or stored: repeat the request"
                ) from fault
            raise
        else:
            if result.repeated:
                await self._abort(transaction_id)
            else:
                committed = settlements
            return result
        finally:
            telling = self._settler.tell(transaction_id, self._settler.keys_of(places), committed)
            if not committed:  # otherwise the answer is decided, and durable
                await told(telling)

    async def applied(self) -> None:
        """Return when the states have what this gateway has answered, but do not wait long."""
        await told(self._settler.telling)

    async def _abort(self, transaction_id: str) -> None:
        with contextlib.suppress(ApiError):  # it was committed, or its time-out aborts it
            await self._transactions.end(transaction_id, REFUSE)
