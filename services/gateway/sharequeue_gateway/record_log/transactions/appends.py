"""The further steps of an append that takes part in a transaction: one to an open transaction, and one that commits it.

`locked_append` asks these at each step. The fast path, `append_store.append`, asks the transaction's row itself.
"""

from collections.abc import Sequence
from typing import Any

from sharequeue.protocol.errors import ConcurrentTransactions
from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.key_store import NewKey
from sharequeue_gateway.record_log.locked_append import LookUp, NotOpen, Within
from sharequeue_gateway.record_log.log import AppendResult
from sharequeue_gateway.record_log.owner import ANY_OWNER
from sharequeue_gateway.record_log.transactions import settlements, transaction_store
from sharequeue_gateway.record_log.transactions.ending import End, Ending
from sharequeue_gateway.record_log.transactions.settlements import Settling
from sharequeue_gateway.record_log.transactions.transaction_rules import (
    COMMIT,
    TIME_OUT,
    append_refusal,
)
from sharequeue_gateway.record_log.transactions.transaction_store import Verdict
from sharequeue_http.forms.errors import ApiError, TooLarge


class _OfTransaction(Within):
    """The transaction of an append, and how its end is found."""

    def __init__(self, database: LogDatabase, ending: Ending, transaction_id: str, owner: str = ANY_OWNER) -> None:
        self._database = database
        self._ending = ending
        self._transaction_id = transaction_id
        self.owner = owner

    async def _refusal(self, past: bool, look_up: LookUp) -> tuple[ApiError, AppendResult | None]:
        """Find the end of the transaction; end it first if its time has passed.

        No statement can append to it any more, so an earlier try of the append is found now, or never happened.
        Returns: why the append is refused, and the earlier try.
        """
        if past:
            found = await self._ending.end(self._transaction_id, End(TIME_OUT))
        else:
            found = await self._database.query(transaction_store.find, self._transaction_id, self.owner)
        happened = await look_up()
        return append_refusal(self._transaction_id, found, happened is not None), happened


class InTransaction(_OfTransaction):
    """An append to an open transaction of a client."""

    gathers = True

    async def lock(self, connection: Any, places: Sequence[TopicIdPartition], repeated: bool) -> None:
        """Lock the transaction until the append has committed."""
        found, past = await transaction_store.share(connection, self._transaction_id, self.owner)
        if past or found is None:
            raise NotOpen(past)

    async def write(self, connection: Any, places: Sequence[TopicIdPartition], base_offsets: Sequence[int]) -> None:
        """The transaction writes to these partitions. Raises: TooLarge."""
        count = await transaction_store.register(connection, self._transaction_id, places, base_offsets)
        if count > store.MOST_OF_TRANSACTION:
            raise TooLarge(
                f"transaction {self._transaction_id} would write to {count} partitions; the most is"
                f" {store.MOST_OF_TRANSACTION}: use one more transaction",
                limit=store.MOST_OF_TRANSACTION,
            )

    async def find_end(self, past: bool, look_up: LookUp) -> ApiError:
        return (await self._refusal(past, look_up))[0]


class Settles(_OfTransaction):
    """An append that commits a transaction with acknowledgements. The transaction has no records of its own: those of
    the append are plain ones, which nobody ever sees uncommitted."""

    def __init__(self, database: LogDatabase, ending: Ending, transaction_id: str, settling: Settling) -> None:
        super().__init__(database, ending, transaction_id)
        self._settling = settling

    async def lock(self, connection: Any, places: Sequence[TopicIdPartition], repeated: bool) -> None:
        """Lock the partitions, and commit the transaction within the append's own.

        Raises: also ConcurrentTransactions: another client has written to it.
        """
        if repeated:
            return
        transaction_id = self._transaction_id
        if await transaction_store.row_of(connection, transaction_id, lock="FOR UPDATE") is None:
            raise NotOpen(past=False)  # an earlier try has committed it, or it was aborted
        await store.lock(connection, places)
        last = await transaction_store.look_to_end(connection, transaction_id)
        if last.past:
            raise NotOpen(past=True)
        if last.places:
            raise ConcurrentTransactions("another client has written to the transaction of this request; repeat it")
        verdict = Verdict(
            transaction_id, [transaction_id], *COMMIT, last.now, last.now_ms, settled=self._settling.digest
        )
        await transaction_store.end_with_records(connection, verdict)
        await settlements.add(connection, transaction_id, self._settling.settlements)

    async def at_once(self, connection: Any, row: store.Row, key: NewKey) -> bool:
        """Commit the transaction with the append, if nothing is in the way."""
        return await settlements.commit_at_once(connection, self._transaction_id, self._settling, row, key)

    def count(self, seconds: float) -> None:
        self._ending.count(COMMIT, seconds)

    async def find_end(self, past: bool, look_up: LookUp) -> AppendResult | ApiError:
        refusal, happened = await self._refusal(past, look_up)
        return refusal if happened is None else happened
