"""The further steps of an append that takes part in a transaction: one to an open transaction, and one that commits it.

`locked_append` asks these at each step. The fast path, `append_store.append`, asks the transaction's row itself.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from sharequeue.protocol.errors import ConcurrentTransactions
from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.key_store import NewKey
from sharequeue_gateway.record_log.locked_append import LookUp, NotOpen, Within
from sharequeue_gateway.record_log.log import AppendResult
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

MOST_NOT_OPEN: Final = 1000
"""How many transactions are remembered as not open."""


class KnownEnds:
    """Finds out what became of transactions that are not open, and remembers those that appends were refused for."""

    def __init__(self, database: LogDatabase, ending: Ending) -> None:
        self._database = database
        self._ending = ending
        self._not_open: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.count = ending.count

    def __contains__(self, asked: tuple[str, str]) -> bool:
        """Return whether an append to this transaction by this owner was refused."""
        return asked in self._not_open

    async def refusal(
        self, transaction_id: str, owner: str, past: bool, look_up: LookUp
    ) -> tuple[ApiError, AppendResult | None]:
        """Find the end of a transaction; end it first if its time has passed.

        No statement can append to it any more, so an earlier try of the append is found now, or never happened.
        Returns: why the append is refused, and the earlier try.
        """
        if past:
            found = await self._ending.end(transaction_id, End(TIME_OUT))
        else:
            found = await self._database.query(transaction_store.find, transaction_id, owner)
        happened = await look_up()
        self._not_open[transaction_id, owner] = None
        if len(self._not_open) > MOST_NOT_OPEN:
            self._not_open.popitem(last=False)
        return append_refusal(transaction_id, found, happened is not None), happened


class InTransaction(Within):
    """An append to an open transaction of a client."""

    def __init__(self, ends: KnownEnds, transaction_id: str, owner: str) -> None:
        self._ends = ends
        self._transaction_id = transaction_id
        self.owner = owner

    @property
    def gathers(self) -> bool:
        return (self._transaction_id, self.owner) not in self._ends

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
        return (await self._ends.refusal(self._transaction_id, self.owner, past, look_up))[0]


class Settles(Within):
    """An append that commits a transaction with acknowledgements. The transaction has no records of its own: those of
    the append are plain ones, which nobody ever sees uncommitted."""

    def __init__(self, database: LogDatabase, ends: KnownEnds, transaction_id: str, settling: Settling) -> None:
        self._database = database
        self._ends = ends
        self._transaction_id = transaction_id
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
        self._ends.count(COMMIT, seconds)

    async def find_end(self, past: bool, look_up: LookUp) -> AppendResult | ApiError:
        refusal, happened = await self._ends.refusal(self._transaction_id, self.owner, past, look_up)
        return refusal if happened is None else happened
