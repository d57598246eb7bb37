"""A transaction of a producer: begun, its records sent, then committed or aborted. The block that uses it decides.

A commit also settles the records of consumers that were acknowledged with it. Until then these consumers hold them.

block ends ───────────▶ flush ──▶ commit ──▶ committed: `outcome` says when
                          │         └──────▶ refused, or unknown: ApiError
block raises, or a record failed that nobody has seen, or was appended outside
                          └───────▶ abort ──▶ the exception of the block or of the record

A commit that is cancelled may have happened: an abort decides, and is refused if the commit came first.
"""

import asyncio
import contextlib
from dataclasses import replace
from types import TracebackType
from typing import Final, Literal, Self

from sharequeue.client.consuming.deliveries import Delivery, OutcomeRun, Record, outcome_runs
from sharequeue.client.consuming.outcomes import RENEW, Outcome, outcome_of
from sharequeue.client.errors import IllegalState
from sharequeue.client.sending import Options, Sender
from sharequeue.protocol import apis
from sharequeue.protocol.errors import InvalidTxnState
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.messages.transactions import (
    BeginTransactionRequest,
    BegunTransaction,
    CommitTransactionRequest,
    EndedTransaction,
    EndTransactionRequest,
    MemberAcknowledgements,
)
from sharequeue_http.calling.caller import Client
from sharequeue_http.forms.errors import ApiError

BEGIN: Final = replace(apis.BEGIN_TRANSACTION, idempotent=True)
"""A lost begin is begun again: what the first one began has no records. With a transactional id and an epoch it stands
in the way of the next one, which names it."""


class Owner:
    """The producer as the service knows it. `producer_epoch`: None before its first transaction."""

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        self.producer_epoch: int | None = None

    async def begin(self, client: Client, timeout_ms: int) -> BegunTransaction:
        """Begin. Raises: ApiError: refused; ProducerFenced if a newer producer has the transactional id."""
        lost: list[bool] = []
        request = BeginTransactionRequest(
            transactional_id=self.transactional_id, producer_epoch=self.producer_epoch, timeout_ms=timeout_ms
        )
        try:
            begun: BegunTransaction = await client.call(BEGIN, request, in_doubt=lambda: lost.append(True))
        except InvalidTxnState as error:
            in_the_way = None if error.problem is None else error.problem.transaction_id
            if not lost or not isinstance(in_the_way, str):
                raise
            await client.call(
                apis.ABORT_TRANSACTION, EndTransactionRequest(), path={"transaction": in_the_way}
            )  # the lost begin of this producer: of its epoch there is no other
            begun = await client.call(BEGIN, request)
        if self.transactional_id is not None:
            self.producer_epoch = begun.producer_epoch
        return begun


class Transaction(Sender):
    """Records that become visible to `read_committed` groups together, or never. `Producer.transaction` makes it.

    The block of `async with` is the transaction. At its end all records are flushed, and the transaction is committed.
    If the block raises, it is aborted. A failure of a record that nobody awaited aborts it too, and is raised. After
    the block either `outcome` is there, or an ApiError was raised: its `problem` has `state` and `reason`, what became
    of it. Is it not `definite`, the transaction may have been committed; `describeTransaction` tells.

    Example:
        async with producer.transaction() as t:
            await t.send("orders", {"id": 1})
            await t.send("payments", {"order": 1})
            t.acknowledge(record)              # of a ShareConsumer or RecordStream: settled by the commit
    """

    _name = "transaction"

    def __init__(self, client: Client, options: Options, owner: Owner, timeout_ms: int, note: str | None) -> None:
        super().__init__(client, options)
        self._owner = owner
        self._timeout_ms = timeout_ms
        self._note = note
        self._acknowledged: dict[Delivery, dict[int, Outcome]] = {}
        self._commit_request: CommitTransactionRequest | None = None
        self._begun: BegunTransaction | None = None
        self._outcome: EndedTransaction | None = None
        self._asked = False
        self._closed = True

    @property
    def transaction_id(self) -> str:
        """Its id, for other calls. Raises: IllegalState: it has not begun."""
        return self._known().transaction_id

    @property
    def committed_note(self) -> str | None:
        """The note of the last commit with the same transactional id. Raises: IllegalState: it has not begun."""
        return self._known().committed_note

    @property
    def outcome(self) -> EndedTransaction | None:
        """Return what became of it: when it was committed or aborted. None while it is open, or if that is not
        known."""
        return self._outcome

    @property
    def in_doubt(self) -> bool:
        """Return whether it may have been committed, or not: the answer to its commit was lost."""
        return self._asked and self._outcome is None

    def _known(self) -> BegunTransaction:
        if self._begun is None:
            raise IllegalState("the transaction has not begun: use it with `async with`")
        return self._begun

    def acknowledge(
        self,
        record: Record,
        type: Literal["accept", "release", "reject"] = "accept",
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        begun: bool = True,
    ) -> None:
        """Have the commit settle a record that a consumer holds; the arguments are ShareConsumer.acknowledge's.

        The consumer keeps its lock alive until then. If the transaction is aborted, it still holds the record, which
        needs another outcome. If it does not hold it any more, nothing of the transaction happens, and the end of the
        block raises an ApiError whose `problem` has `results`.

        Raises: IllegalState: the transaction is not open, or the record has an outcome. ValueError: as there, or renew.
        """
        if self._closed:
            raise IllegalState("the transaction is not open: use it with `async with`")
        outcome = outcome_of(type, reason, delay_ms, begun)
        if outcome is RENEW:
            raise ValueError("a transaction does not renew locks")
        record.delivery.give_to_transaction(record.offset)
        self._acknowledged.setdefault(record.delivery, {})[record.offset] = outcome

    async def __aenter__(self) -> Self:
        if self._begun is not None:
            raise IllegalState("a transaction is used once: make one more with producer.transaction()")
        self._begun = await self._owner.begin(self._client, self._timeout_ms)
        self._transaction_id = self._begun.transaction_id
        self._closed = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._end(fault)
        finally:
            self._tell_consumers()

    def _tell_consumers(self) -> None:
        """Their records are settled, or held as before. If the outcome is not known, they are neither."""
        if self.in_doubt:
            return
        settled = self._outcome is not None and self._outcome.state == "committed"
        for delivery, outcomes in self._acknowledged.items():
            delivery.take_from_transaction(outcomes, settled=settled)
        self._acknowledged = {}

    async def _end(self, fault: BaseException | None) -> None:
        if fault is not None:
            await self._abort()
            return
        try:
            self._closed = True
            await self.flush()
            if self._outside is not None:
                raise self._outside
        except BaseException:
            await self._abort()
            raise
        self._asked = True
        try:
            await self._commit()
        except asyncio.CancelledError:
            await self._abort()
            raise
        except ApiError as error:
            self._asked = not error.definite
            raise

    async def _commit(self) -> None:
        if self._commit_request is None:  # a repeat sends the same one
            self._commit_request = CommitTransactionRequest(note=self._note, acknowledgements=self._settling())
        self._outcome = await self._client.call(
            apis.COMMIT_TRANSACTION, self._commit_request, path={"transaction": self.transaction_id}
        )

    def _settling(self) -> list[MemberAcknowledgements]:
        """Return what the commit settles, by member."""
        members: dict[tuple[str, str], list[Acknowledgement]] = {}
        for delivery, outcomes in self._acknowledged.items():
            members.setdefault((delivery.group, delivery.member_id), []).extend(
                OutcomeRun(delivery, *run).message() for run in outcome_runs(outcomes)
            )
        return [
            MemberAcknowledgements(group_id=group, member_id=member_id, acknowledgements=acknowledgements)
            for (group, member_id), acknowledgements in members.items()
        ]

    async def _abort(self) -> None:
        """Send nothing more and abort. If the service cannot be reached, the time-out aborts it.

        Only one whose commit was cancelled can be committed by now: then the commit is repeated,
        which tells the outcome.
        """
        await self._give_up()
        with contextlib.suppress(ApiError):
            try:
                self._outcome = await self._client.call(
                    apis.ABORT_TRANSACTION, EndTransactionRequest(), path={"transaction": self.transaction_id}
                )
            except ApiError as error:
                state = None if error.problem is None else error.problem.state
                self._asked = self._asked and state != "aborted"
                if state == "committed":
                    await self._commit()
