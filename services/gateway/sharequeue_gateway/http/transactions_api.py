"""The calls of transactions. Any gateway takes any of them: they are decided in the record log."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import msgspec

from sharequeue.protocol.errors import InvalidTransactionTimeout
from sharequeue.protocol.messages import transactions as messages
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.fetching_members import FetchingMembers
from sharequeue_gateway.http.access.owners import Owners
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.record_log.owner import ANY_OWNER
from sharequeue_gateway.record_log.store import Query
from sharequeue_gateway.record_log.transactions import list_store, open_store, settlements, transaction_store
from sharequeue_gateway.record_log.transactions.transaction_rules import (
    ABORT,
    COMMIT,
    TERMINATE,
    State,
    Transaction,
    Wish,
    check_transaction_id,
    end_answer,
)
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction, PostgresTransactions
from sharequeue_gateway.routing.settled_commits import SettledCommits
from sharequeue_gateway.routing.settling import Wanted
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import ApiError, InvalidRequest

MOST_BLOCKED: Final = 1000
"""Share-partitions that one description names."""
MOST_GROUPS: Final = 200
"""Groups whose level one description asks for."""
ASKED_AT_ONCE: Final = 20
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
_place: Final = msgspec.json.Decoder(tuple[_Moment, Annotated[str, msgspec.Meta(max_length=64)]])
"""A place of `list_store`."""


@dataclass(eq=False)
class TransactionsApi:
    """The handlers of the calls of transactions."""

    _transactions: PostgresTransactions
    _commits: SettledCommits
    _query: Query
    _metadata: Metadata
    _members: FetchingMembers
    _max_timeout_ms: int
    _owners: Owners
    _tokens: PageTokens

    async def begin_transaction(self, call: Call) -> messages.BegunTransaction:
        request: messages.BeginTransactionRequest = call.request
        if not 1 <= request.timeout_ms <= self._max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"timeout_ms must be from 1 to {self._max_timeout_ms} (transaction_max_timeout_ms), not"
                f" {request.timeout_ms}",
                limit=self._max_timeout_ms,
                pointers=[("/timeout_ms", f"not from 1 to {self._max_timeout_ms}")],
            )
        if request.producer_epoch is not None and request.transactional_id is None:
            raise InvalidRequest(
                "producer_epoch needs a transactional_id",
                pointers=[("/producer_epoch", "without transactional_id")],
            )
        if request.part_of is not None:
            check_transaction_id(request.part_of)
        if request.part_of is not None and request.transactional_id is not None:
            raise InvalidRequest(
                "part_of must not come with a transactional_id: a part belongs to the producer of its whole",
                pointers=[("/part_of", "beside transactional_id")],
            )
        return await self._transactions.begin(
            NewTransaction(
                request.timeout_ms,
                request.transactional_id,
                request.producer_epoch,
                self._owners.of(call.caller.principal),
                request.part_of,
            )
        )

    async def commit_transaction(self, call: Call) -> messages.EndedTransaction:
        request: messages.CommitTransactionRequest = call.request or messages.CommitTransactionRequest()
        if not request.acknowledgements:
            return await self._end(call, COMMIT, request.note, request.parts)
        transaction_id = call.path["transaction"]
        check_transaction_id(transaction_id)
        call.raw = b""  # a large request is not kept until it is durable
        wanted = [Wanted(entry.group_id, entry.member_id, entry.acknowledgements) for entry in request.acknowledgements]
        owner = self._owners.of(call.caller.principal).patterns
        ended = _ended(await self._commits.commit(transaction_id, wanted, request.note, request.parts, owner))
        for entry in wanted:
            self._members.seen[entry.group_id][entry.member_id] = self._members.now_s
        return ended

    async def abort_transaction(self, call: Call) -> messages.EndedTransaction:
        return await self._end(call, ABORT)

    async def terminate_transaction(self, call: Call) -> messages.EndedTransaction:
        return await self._end(call, TERMINATE)

    async def _end(
        self, call: Call, wish: Wish, note: str | None = None, parts: Sequence[str] = ()
    ) -> messages.EndedTransaction:
        transaction_id = call.path["transaction"]
        check_transaction_id(transaction_id)
        owner = ANY_OWNER if wish is TERMINATE else self._owners.of(call.caller.principal).patterns
        return _ended(await self._transactions.end(transaction_id, wish, note=note, parts=parts, owner=owner))

    async def describe_transaction(self, call: Call) -> messages.TransactionDescription:
        transaction_id = call.path["transaction"]
        check_transaction_id(transaction_id)
        found = await self._transactions.find(transaction_id, self._owners.seen(call.caller.principal))
        if found is None:
            end_answer(COMMIT, transaction_id, None)
            raise AssertionError("not reached")
        places = await self._query(transaction_store.places_of, transaction_id)
        known = found.known()
        unapplied = [] if found.settled is None else await self._query(settlements.of_transaction, transaction_id)
        blocks, more = await self._blocked(transaction_id) if found.state == State.OPEN else (None, False)
        return messages.TransactionDescription(
            transaction_id=transaction_id,
            transactional_id=found.transactional_id,
            producer_epoch=found.producer_epoch,
            state=known["state"],
            began_at_ms=found.began_at_ms,
            partitions=[
                messages.TransactionPartition(
                    topic=self._metadata.name_of(topic_id),
                    topic_id=topic_id,
                    partition=partition,
                    first_offset=first_offset,
                )
                for topic_id, partition, first_offset in places
            ],
            part_of=found.part_of,
            reason=known.get("reason"),
            timeout_ms=found.timeout_ms,
            ended_at_ms=found.ended_at_ms,
            blocks=blocks,
            more_blocked=more,
            unapplied=[
                messages.UnappliedSettlement(**key._asdict(), topic=self._metadata.name_of(key.topic_id))
                for key in unapplied
            ],
        )

    async def _blocked(self, transaction_id: str) -> tuple[list[messages.BlockedSharePartition] | None, bool]:
        """The share-partitions that wait for the end of an open transaction, and whether there may be others."""
        readers = await self._query(open_store.groups_behind, transaction_id, MOST_GROUPS + 1)
        looked_at = readers[:MOST_GROUPS]
        committed = []
        try:
            for first in range(0, len(looked_at), ASKED_AT_ONCE):
                some = looked_at[first : first + ASKED_AT_ONCE]
                configs = await asyncio.gather(*map(self._metadata.config_of, some))
                committed += [group for group, config in zip(some, configs, strict=True) if config.read_committed]
        except ApiError:
            return None, False
        found = await self._query(open_store.share_partitions_behind, transaction_id, committed, MOST_BLOCKED + 1)
        blocks = [
            messages.BlockedSharePartition(**key._asdict(), topic=self._metadata.name_of(key.topic_id))
            for key in found[:MOST_BLOCKED]
        ]
        return blocks, len(found) > MOST_BLOCKED or len(readers) > MOST_GROUPS

    async def list_transactions(self, call: Call) -> messages.TransactionList:
        query: messages.ListTransactionsQuery = call.request
        after = self._tokens.place(query.page_token, _place, "listTransactions", None)
        asked = query, after, self._owners.listed(call.caller.principal)
        listed = messages.TransactionList(transactions=[])
        if query.state == "open":
            listed.transactions, place = await self._query(list_store.list_open, *asked)
        else:
            listed.ended, place = await self._query(list_store.list_ended, *asked)
        listed.next_page_token = None if place is None else self._tokens.token(place)
        return listed


def _ended(found: Transaction) -> messages.EndedTransaction:
    return messages.EndedTransaction(
        transaction_id=found.transaction_id,
        state=found.state.name.lower(),
        reason=found.reason.name.lower(),
        partitions=found.partitions,
        ended_at_ms=found.ended_at_ms or 0,
    )
