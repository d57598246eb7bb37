"""Settles records in a transaction, over all leaders: hold them, have the log decide, tell the leaders.

    hold ──▶ each leader: is it held by this member? ──▶ pending, durably     a "no": Refused; the transaction aborts
    commit, with a row for each share-partition: in the log                   the one moment at which it is decided
    tell ──▶ each leader asks the log, and applies                            lost: the leader asks by itself

Nothing is let go here: records pending on a transaction stay so until the log says that it has ended. So a call that is
late, lost or repeated changes nothing, whichever gateway makes it.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue import background
from sharequeue.clock import Clock
from sharequeue.protocol.codec import encode
from sharequeue.protocol.errors import (
    BY_CODE,
    ApiError,
    CoordinatorNotAvailable,
    InvalidRequest,
    TooLarge,
)
from sharequeue.protocol.messages.leaders import HoldRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.types import MAX_ACKNOWLEDGEMENTS, SettledBatch, SharePartitionKey
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import ask_for_topics, failed, failed_of
from sharequeue_gateway.delivery.holding import HeldHere, Holder
from sharequeue_gateway.leader.pending_transactions import PendingTransactions
from sharequeue_gateway.record_log.transactions.settlements import Settlement
from sharequeue_gateway.routing.routing import Routing

PATIENCE_MS: Final = 8000
"""How long a leader is looked for that moves, and a transaction is waited for that is about to end."""
PAUSE_S: Final = 0.1
TELL_S: Final = 1.0
"""How long an answer waits for the leaders to apply what is decided."""
MOST_SHARE_PARTITIONS: Final = 1000

_encode: Final = msgspec.json.Encoder().encode


class Wanted(NamedTuple):
    """An acknowledgement of what a member holds."""

    group_id: str
    member_id: str
    acknowledgement: Acknowledgement


class Refused(Exception):
    """An acknowledgement was refused, so none of them is settled. `results`: of all, in order."""

    def __init__(self, results: list[AcknowledgementResult]) -> None:
        super().__init__()
        self.results = results

    @property
    def first(self) -> AcknowledgementResult:
        """The first one that was itself refused."""
        return next(result for result in self.results if result.code != LET_GO.code)

    def extra(self) -> dict[str, Any]:
        """What the problem says about it."""
        return {"results": msgspec.to_builtins(self.results), "failed_count": failed_of(self.results)}


LET_GO: Final = AcknowledgementResult(
    status="failed",
    code="INVALID_TXN_STATE",
    kafka_code=BY_CODE["INVALID_TXN_STATE"].kafka_code,
    detail="not settled, because another acknowledgement of the transaction was refused; the member still holds it",
    retriable=True,
)


class Settler:
    """Holds records at their leaders, and tells the leaders how a transaction ended."""

    def __init__(
        self, routing: Routing, local: Holder, pending: PendingTransactions, metadata: Metadata, clock: Clock
    ) -> None:
        self._routing = routing
        self._local = local
        self._pending = pending
        self._metadata = metadata
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, wanted: Sequence[Wanted]) -> None:
        """Raises: CoordinatorNotAvailable: a gateway of an earlier release would hand pending records out; TooLarge;
        InvalidRequest (422): with Kafka's defaults."""
        if self._metadata.kafka_defaults:
            raise InvalidRequest(
                "acknowledgements in a transaction are not Kafka's: this gateway runs with kafka_defaults"
            )
        if not self._routing.cluster.generation.settles_in_transactions:
            raise CoordinatorNotAvailable(
                "an older gateway is running that knows no acknowledgements in transactions: upgrade every gateway"
            )
        if len(wanted) > MAX_ACKNOWLEDGEMENTS:
            raise TooLarge(
                f"{len(wanted)} acknowledgements; one transaction settles {MAX_ACKNOWLEDGEMENTS} at most",
                limit=MAX_ACKNOWLEDGEMENTS,
            )
        places = {(group_id, item.topic, item.partition) for group_id, _, item in wanted}
        if len(places) > MOST_SHARE_PARTITIONS:
            raise TooLarge(
                f"acknowledgements of {len(places)} share-partitions; one transaction settles {MOST_SHARE_PARTITIONS} at"
                " most",
                limit=MOST_SHARE_PARTITIONS,
            )

    async def hold(self, transaction_id: str, wanted: Sequence[Wanted]) -> list[Settlement]:
        """Have all of these wait for an open transaction.

        Returns: what a commit settles. All of it is pending, durably.
        Raises: Refused: a member does not hold a record. CoordinatorNotAvailable, ConcurrentTransactions and others: no
            answer in time; nothing is settled, the transaction is open, and the same call may be repeated.
        """
        results: dict[int, AcknowledgementResult] = {}
        held: dict[SharePartitionKey, HeldHere] = {}
        patience_ms = self._clock.now_ms() + PATIENCE_MS
        left = list(range(len(wanted)))
        while left:
            split = await self._split(wanted, left)
            answers = await asyncio.gather(
                *(
                    self._at(
                        node, group_id, member_id, transaction_id, [wanted[index].acknowledgement for index in some]
                    )
                    for (node, group_id, member_id), some in split.items()
                )
            )
            for some, (of_some, here) in zip(split.values(), answers, strict=True):
                results.update(zip(some, of_some, strict=True))
                for each in here:
                    _add(held, each)
            left = [index for index in left if results[index].status != "applied"]
            if any(results[index].status == "failed" and not results[index].retriable for index in left):
                raise Refused([_refused(results[index]) for index in range(len(wanted))])
            if not left:
                break
            if self._clock.now_ms() >= patience_ms:
                raise _no_answer(results[left[0]])
            self._routing.cluster.look_again()
            await asyncio.sleep(PAUSE_S)
        return [
            Settlement(each.key, each.state_epoch, each.leader_epoch, _encode(each.batches)) for each in held.values()
        ]

    def keys_of(self, wanted: Sequence[Wanted]) -> list[SharePartitionKey]:
        """The share-partitions of acknowledgements whose topics are known."""
        keys: dict[SharePartitionKey, None] = {}
        for group_id, _, item in wanted:
            topic = self._metadata.known_topic(item.topic)
            if topic is not None:
                keys[SharePartitionKey(group_id, topic.topic_id, item.partition)] = None
        return list(keys)

    async def tell(self, transaction_id: str, keys: Iterable[SharePartitionKey]) -> None:
        """Tell the leaders that a transaction has ended. Returns when they have applied it, but does not wait long."""
        by_leader: dict[Node, list[SharePartitionKey]] = {}
        for key in keys:
            by_leader.setdefault(self._routing.cluster.leader_of(key), []).append(key)
        tasks = [
            background.start(self._tasks, self._tell(node, transaction_id, led)) for node, led in by_leader.items()
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=TELL_S)

    async def _tell(self, node: Node, transaction_id: str, keys: Sequence[SharePartitionKey]) -> None:
        try:
            if node == self._routing.cluster.me:
                await self._pending.ended(transaction_id, keys)
            else:
                await self._routing.gateways.transaction_ended(node, transaction_id, keys)
        except ApiError:
            self._routing.cluster.look_again()  # the leader asks by itself

    async def _split(self, wanted: Sequence[Wanted], indexes: Sequence[int]) -> dict[tuple[Node, str, str], list[int]]:
        """Indexes by leader, group and member. Those with an unknown topic stay here,
        where the check gives the reason."""
        await ask_for_topics(self._metadata, (wanted[index].acknowledgement for index in indexes))
        split: dict[tuple[Node, str, str], list[int]] = {}
        for index in indexes:
            group_id, member_id, item = wanted[index]
            topic = self._metadata.known_topic(item.topic)
            node = self._routing.cluster.me
            if topic is not None:
                node = self._routing.leader_of(group_id, topic, item.partition)
            split.setdefault((node, group_id, member_id), []).append(index)
        return split

    async def _at(
        self,
        node: Node,
        group_id: str,
        member_id: str,
        transaction_id: str,
        acknowledgements: list[Acknowledgement],
    ) -> tuple[Sequence[AcknowledgementResult], Sequence[HeldHere]]:
        if node == self._routing.cluster.me:
            return await self._local.hold(group_id, member_id, transaction_id, acknowledgements)
        request = HoldRequest(member_id=member_id, transaction_id=transaction_id, acknowledgements=acknowledgements)
        try:
            answer = await self._routing.gateways.hold(node, group_id, request)
        except ApiError as error:
            return [failed(error)] * len(acknowledgements), ()
        return answer.results, [
            HeldHere(
                SharePartitionKey(group_id, each.topic_id, each.partition),
                each.state_epoch,
                each.leader_epoch,
                each.batches,
            )
            for each in answer.held
        ]


def digest_of(wanted: Sequence[Wanted]) -> bytes:
    """Names the acknowledgements of a commit, so that a repeat is told from another commit."""
    return hashlib.sha256(encode(wanted)).digest()


def _add(held: dict[SharePartitionKey, HeldHere], more: HeldHere) -> None:
    known = held.get(more.key)
    if known is None:
        held[more.key] = more
        return
    if known.state_epoch != more.state_epoch:
        raise CoordinatorNotAvailable("the group's state was reset just now; repeat the request")
    batches: list[SettledBatch] = [*known.batches, *more.batches]
    held[more.key] = more._replace(leader_epoch=max(known.leader_epoch, more.leader_epoch), batches=batches)


def _refused(result: AcknowledgementResult) -> AcknowledgementResult:
    return LET_GO if result.status == "applied" else result


def _no_answer(result: AcknowledgementResult) -> ApiError:
    """No leader gave a word in time, or the records are pending on another transaction. Nothing is settled."""
    return ApiError(
        f"{result.detail or 'a leader did not answer'}; nothing is settled, and the transaction is open",
        error=BY_CODE[result.code or "COORDINATOR_NOT_AVAILABLE"],
        definite=True,
    )
