"""Transactions: begin, end, describe and list them, and the sweep of those whose time has passed.

A transaction belongs to no gateway: any of them takes each call. `transaction_rules` says what a call is answered,
`ending` ends transactions, and `appends` says what an append to one does besides; the SQL is in `begin_store`,
`transaction_store`, `open_store` and `list_store`.
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sharequeue.protocol.errors import ConcurrentTransactions
from sharequeue.protocol.messages.transactions import BegunTransaction
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import looking
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.appending import Appender
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.locked_append import answer_of
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.owner import ANY_OWNER, ANYBODY, Owner
from sharequeue_gateway.record_log.transactions import begin_store, open_store, transaction_store
from sharequeue_gateway.record_log.transactions.appends import InTransaction, Settles
from sharequeue_gateway.record_log.transactions.ending import End, Ending
from sharequeue_gateway.record_log.transactions.settlements import Settling
from sharequeue_gateway.record_log.transactions.transaction_rules import (
    FENCE,
    TIME_OUT,
    State,
    Transaction,
    Wish,
    check_epoch,
    check_whole,
    end_answer,
    still_open,
)
from sharequeue_gateway.record_log.transactions.transaction_sizes import TransactionSizes
from sharequeue_http.forms.errors import ApiError, Throttled
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

SWEPT_AT_ONCE: Final = 1000
TRIES: Final = 3
"""How often a begin ends an open transaction of the same transactional id before it gives up."""


class TransactionOptions(NamedTuple):
    """`count_end`: called with the end of each transaction that ended here, and the seconds that its end took."""

    most_bytes: int = 1 << 30
    """Of one transaction at one gateway."""
    most_open: int = 10_000
    sweep_s: float = 1.0
    percent_each: int = 50
    """Of `most_open`: what one principal may have open while others have some."""
    count_end: Callable[[Wish, float], None] = lambda end, seconds: None
    count_forgotten: Callable[[int], None] = lambda count: None
    """Called with how many open transactions a sweep has deleted that wrote nothing."""


DEFAULTS: Final = TransactionOptions()


class NewTransaction(NamedTuple):
    """`producer_epoch`: of a producer that has begun before; None: a new one, which ends what is open and fences it.

    `part_of`: the open transaction that the new one is a part of; it has the same deadline. `durable`: as in
    `begin_store.begin`.
    """

    timeout_ms: int
    transactional_id: str | None = None
    producer_epoch: int | None = None
    owner: Owner = ANYBODY
    part_of: str | None = None
    durable: bool = True


class PostgresTransactions:
    """`run` must be running."""

    def __init__(
        self, database: LogDatabase, appender: Appender, ending: Ending, options: TransactionOptions = DEFAULTS
    ) -> None:
        self._database = database
        self._appender = appender
        self._ending = ending
        self._sizes = TransactionSizes(options.most_bytes)
        self._most_open = options.most_open
        self._most_each = max(options.most_open * options.percent_each // 100, 1)
        self._sweep_s = options.sweep_s
        self._count_forgotten = options.count_forgotten
        self.open_now = open_store.OpenNow(0)
        """What the last sweep of this gateway saw open, in the whole service."""

    async def begin(self, wish: NewTransaction) -> BegunTransaction:
        """Begin a transaction.

        Raises: Throttled: too many are open; ProducerFenced, InvalidProducerEpoch, TransactionalIdNotFound: the epoch
            is not the current one; InvalidTxnState: the producer has an open one, or the whole of a part has ended;
            ConcurrentTransactions; StorageError.
        """
        if wish.part_of is not None:
            return await self._database.query(self._insert_part, wish.part_of, wish)
        if wish.transactional_id is None:
            return await self._database.query(self._insert, wish, 0, None)
        return await self._begin_with_id(wish.transactional_id, wish)

    async def _begin_with_id(self, transactional_id: str, wish: NewTransaction) -> BegunTransaction:
        epoch = wish.producer_epoch
        if epoch is None:
            epoch = await self._database.query(begin_store.raise_epoch, transactional_id, wish.owner.principal)
        for _ in range(TRIES):
            if wish.producer_epoch is None:
                for open_one, _ in await self._database.query(begin_store.open_of, transactional_id):
                    if open_one.producer_epoch < epoch:  # otherwise a newer producer has begun, and this one is refused
                        await self._ending.end(open_one.transaction_id, End(FENCE))
            begun, in_the_way = await self._database.query(self._insert_with_id, transactional_id, epoch, wish)
            if begun is not None:
                return begun
            for open_one, past in in_the_way:
                if past:
                    await self._ending.end(open_one.transaction_id, End(TIME_OUT))
                elif wish.producer_epoch is not None:
                    raise still_open(open_one)
        raise ConcurrentTransactions(
            f"other producers begin with the transactional id {transactional_id!r}; repeat the request"
        )

    async def _insert_with_id(
        self, connection: Any, transactional_id: str, epoch: int, wish: NewTransaction
    ) -> tuple[BegunTransaction | None, Sequence[tuple[Transaction, bool]]]:
        """Begin under the lock of the producer's row. Returns: the transaction, or the open ones in its way.

        The note is read here: the transaction before may have committed since the epoch was raised.
        """
        async with connection.transaction():
            current, note = await begin_store.lock_producer(connection, transactional_id, wish.owner.principal)
            check_epoch(transactional_id, current, epoch)
            in_the_way = await begin_store.open_of(connection, transactional_id)
            if in_the_way:
                return None, in_the_way
            return await self._insert(connection, wish, epoch, note), ()

    async def _insert(
        self, connection: Any, wish: NewTransaction, epoch: int, note: str | None, of_whole: str = ""
    ) -> BegunTransaction:
        """`of_whole`: the principal of the whole, for a part that a caller without one begins."""
        transaction_id = str(uuid.uuid4())
        deadline_ms = await begin_store.begin(
            connection,
            transaction_id,
            wish.transactional_id,
            epoch,
            wish.owner.principal or of_whole,
            wish.timeout_ms,
            self._most_open,
            most_each=self._most_each if wish.owner.principal else None,
            durable=wish.durable,
            part_of=wish.part_of,
        )
        if deadline_ms is None:
            raise await self._too_many_of(connection, wish.owner.principal)
        return BegunTransaction(
            transaction_id=transaction_id,
            transactional_id=wish.transactional_id,
            producer_epoch=epoch,
            timeout_ms=wish.timeout_ms,
            expires_at_ms=deadline_ms,
            committed_note=note,
        )

    async def _insert_part(self, connection: Any, whole_id: str, wish: NewTransaction) -> BegunTransaction:
        """Begin a part under the lock of the whole's row: an end of the whole finds it, or it does not begin."""
        async with connection.transaction():
            whole, past = await transaction_store.share(connection, whole_id, wish.owner.patterns)
            if whole is None:
                whole = await transaction_store.outcome(connection, whole_id, wish.owner.patterns)
            check_whole(whole_id, whole, past)
            assert whole is not None
            wish = wish._replace(timeout_ms=whole.timeout_ms or 0)
            return await self._insert(connection, wish, 0, None, whole.principal)

    async def _too_many_of(self, connection: Any, principal: str) -> Throttled:
        mine = await begin_store.open_of_principal(connection, principal) if principal else 0
        if mine < self._most_each:
            return Throttled(
                f"{self._most_open} transactions are open (max_open_transactions); end some, or repeat the request later",
                limit=self._most_open,
                retry_after_s=1,
            )
        return Throttled(
            f"{principal} has {mine} open transactions; while others have some, one principal has {self._most_each}, and"
            " alone it leaves a tenth (max_open_transactions, principal_percent): end some, or repeat the request later",
            limit=self._most_each,
            retry_after_s=1,
        )

    async def append(
        self,
        transaction_id: str,
        appends: Sequence[PartitionAppend],
        key: IdempotencyKey | None = None,
        owner: Owner = ANYBODY,
    ) -> AppendResult:
        """Append records to an open transaction, which each of these appends names.

        Raises: as `Appender.append`; InvalidTxnState, ProducerFenced, TransactionalIdNotFound: it is not open;
            TooLarge: it would have too many bytes or partitions.
        """
        size = sum([sum(map(len, append.tails)) for append in appends])
        counted = transaction_id, owner.principal
        self._sizes.take(counted, size)
        try:
            within = InTransaction(self._database, self._ending, transaction_id, owner.patterns)
            result = await self._appender.append(appends, key, within)
        except ApiError as error:
            if error.definite:
                self._sizes.give_back(counted, size)
            raise
        if result.repeated:
            self._sizes.give_back(counted, size)
        return result

    async def append_and_settle(
        self, transaction_id: str, settling: Settling, appends: Sequence[PartitionAppend], key: IdempotencyKey | None
    ) -> AppendResult:
        """Append plain records; the same commit ends an open transaction and settles what is pending on it.

        Raises: as `append`. If the transaction is not open any more, nothing was appended or settled.
        """
        settles = Settles(self._database, self._ending, transaction_id, settling)
        return await self._appender.append(appends, key, settles)

    async def first_answer(self, key: IdempotencyKey) -> AppendResult | None:
        """Find the answer that is stored with a key; None: the key is new."""
        found = await self._database.query(answer_of, key)
        if found is not None:
            await self._database.query(store.wait_for_standby)
        return found

    async def end(
        self,
        transaction_id: str,
        wish: Wish,
        *,
        note: str | None = None,
        parts: Sequence[str] = (),
        owner: str = ANY_OWNER,
        settling: Settling | None = None,
    ) -> Transaction:
        """Commit or abort. The outcome is durable when it returns, and a repeat is answered the same.

        Args:
            parts: those to commit with it; the others are aborted. settling: the acknowledgements of a commit;
            see Ending. owner: patterns of the transactions that the caller may end.

        Raises: TransactionalIdNotFound, InvalidTxnState, ProducerFenced: see `transaction_rules`; and those of Ending.
        """
        found = await self._ending.end(transaction_id, End(wish, note, parts, owner, settling=settling))
        return end_answer(wish, transaction_id, found, None if settling is None else settling.digest)

    async def find(self, transaction_id: str, owner: str = ANY_OWNER) -> Transaction | None:
        """Return what is known of a transaction that these patterns fit."""
        return await self._database.query(transaction_store.find, transaction_id, owner)

    # Sweep

    async def run(self) -> None:
        """Sweep again and again. Any number of gateways may. Never returns."""
        async for _ in Every(self._sweep_s):
            with looking("transactions", "cannot sweep transactions"):
                await self.sweep()

    async def sweep(self) -> None:
        """End the transactions whose time has passed, forget those that wrote nothing, and old transactional ids.

        Then look at what is open.
        """
        found = SWEPT_AT_ONCE
        while found >= SWEPT_AT_ONCE:
            found, due, timed_out = await self._database.query(open_store.sweep, SWEPT_AT_ONCE)
            self._count_forgotten(timed_out)
            for transaction_id in due:
                if not await self._time_out(transaction_id):
                    found = 0  # it is tried again by the next sweep
        while await self._database.query(begin_store.forget_producers, SWEPT_AT_ONCE) >= SWEPT_AT_ONCE:
            pass
        self.open_now = await self._database.query(open_store.open_now)

    async def _time_out(self, transaction_id: str) -> bool:
        """Returns: whether it has ended; False: another one uses it, or its end failed."""
        try:
            ended = await self._ending.end(transaction_id, End(TIME_OUT, skip_locked=True))
        except ApiError as error:
            log.warning(
                "cannot end a transaction whose time has passed",
                extra=fields(transaction_id=transaction_id, cause=error.detail),
            )
            return False
        if ended is None or ended.state == State.OPEN:
            return False
        log.info("a transaction timed out", extra=fields(transaction_id=transaction_id, partitions=ended.partitions))
        return True
