"""Settles records in a transaction, over all leaders: hold them, have the log decide, tell the leaders.

    hold ──▶ each leader: is it held by this member? ──▶ pending, durably     a "no": Refused; the transaction aborts
    commit, with a row for each share-partition: in the log                   the one moment at which it is decided
    tell ──▶ each leader asks the log, unless its own gateway has committed   lost: the leader asks by itself
             this, and applies it

Nothing is let go here: records pending on a transaction stay so until the log says that it has ended. So a call that is
late, lost or repeated changes nothing, whichever gateway makes it.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue import background
from sharequeue.protocol import apis
from sharequeue.protocol.errors import BY_CODE, KAFKA_CODES
from sharequeue.protocol.messages.leaders import HeldForTransaction, HoldRequest, HoldResponse
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.types import MAX_SETTLED, SharePartitionKey
from sharequeue.repeats import LEADER_MOVED, Tries
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import count_of, failed, failed_of
from sharequeue_gateway.delivery.holding import Holder
from sharequeue_gateway.leader.pending_transactions import PendingTransactions
from sharequeue_gateway.record_log.transactions.settlements import Settlement, encoded
from sharequeue_gateway.routing.acknowledge import leaders_of
from sharequeue_gateway.routing.routing import Routing
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable, InvalidRequest, TooLarge

TELL_S: Final = 1.0
"""How long a caller waits for the leaders to apply what is decided."""
MOST_SHARE_PARTITIONS: Final = 1000

Place = tuple[str, str, int]
"""A share-partition as a client names it: group, topic and partition."""


class Wanted(NamedTuple):
    """The acknowledgements of a member."""

    group_id: str
    member_id: str
    acknowledgements: Sequence[Acknowledgement]


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
        """Return what the problem says about it."""
        return {"results": self.results, "failed_count": failed_of(self.results)}


LET_GO: Final = AcknowledgementResult(
    status="failed",
    code="INVALID_TXN_STATE",
    kafka_code=KAFKA_CODES[BY_CODE["INVALID_TXN_STATE"]],
    detail="another acknowledgement was refused; still held",
    retriable=True,
)


@dataclass(eq=False)
class Settler:
    """Holds records at their leaders, and tells the leaders how a transaction ended."""

    _routing: Routing
    _local: Holder
    _pending: PendingTransactions
    _metadata: Metadata
    telling: set[asyncio.Task[None]] = field(init=False, default_factory=set)
    """Calls to leaders about transactions that have ended. A task ends when its leader has applied the end."""

    def check(self, wanted: Sequence[Wanted]) -> set[Place]:
        """Check what can be checked before. Returns: the share-partitions.

        Raises: TooLarge; InvalidRequest (422): with Kafka's defaults, or a renewal.
        """
        if self._metadata.kafka_defaults:
            raise InvalidRequest(
                "acknowledgements in a transaction are not Kafka's: this gateway runs with kafka_defaults"
            )
        count = sum(count_of(each.acknowledgements) for each in wanted)
        if count > MAX_SETTLED:
            raise TooLarge(
                f"{count} acknowledgements; one transaction settles {MAX_SETTLED} at most",
                limit=MAX_SETTLED,
            )
        places: set[Place] = set()
        for each in wanted:
            for item in each.acknowledgements:
                if item.type == "renew" or (item.types is not msgspec.UNSET and b'"renew"' in bytes(item.types)):
                    raise InvalidRequest("a transaction does not renew locks: send renew to acknowledge")
                places.add((each.group_id, item.topic, item.partition))
                if len(places) > MOST_SHARE_PARTITIONS:
                    raise TooLarge(
                        f"acknowledgements of more than {MOST_SHARE_PARTITIONS} share-partitions; one transaction settles"
                        f" {MOST_SHARE_PARTITIONS} at most",
                        limit=MOST_SHARE_PARTITIONS,
                    )
        return places

    async def hold(self, transaction_id: str, wanted: Sequence[Wanted]) -> list[Settlement]:
        """Have all of these wait for an open transaction.

        Returns: what a commit settles. All of it is pending, durably.
        Raises: Refused: a member does not hold a record. CoordinatorNotAvailable, ConcurrentTransactions and others: no
            answer in time; nothing is settled, the transaction is open, and the same call may be repeated.
        """
        items: list[Acknowledgement] = []
        owners: list[Wanted] = []
        for each in wanted:
            items += each.acknowledgements
            owners += [each] * len(each.acknowledgements)
        results = [LET_GO] * len(items)
        held: dict[SharePartitionKey, HeldForTransaction] = {}
        left: Sequence[int] = range(len(items))
        tries = Tries(LEADER_MOVED)
        while True:
            asked = [(owners[index].group_id, items[index]) for index in left]
            split: dict[tuple[Node, str, str], list[int]] = {}
            for index, node in zip(left, await leaders_of(self._routing, self._metadata, asked), strict=True):
                split.setdefault((node, *owners[index][:2]), []).append(index)
            answers = await asyncio.gather(
                *(self._at(*place, transaction_id, [items[index] for index in some]) for place, some in split.items())
            )
            for some, answer in zip(split.values(), answers, strict=True):
                for index, result in zip(some, answer.results, strict=True):
                    results[index] = result
                for there in answer.held:
                    _add(held, there)
            left = [index for index in left if results[index].status != "applied"]
            if any(results[index].status == "failed" and not results[index].retriable for index in left):
                raise Refused([LET_GO if result.status == "applied" else result for result in results])
            if not left:
                return [
                    Settlement(each.key, each.state_epoch, each.leader_epoch, encoded(each.batches))
                    for each in held.values()
                ]
            self._routing.cluster.look_again()
            if not await tries.pause():
                raise _no_answer(results[left[0]])

    def keys_of(self, places: Iterable[Place]) -> list[SharePartitionKey]:
        """The share-partitions whose topics are known."""
        known = ((group_id, self._metadata.by_name.get(name), partition) for group_id, name, partition in places)
        return [
            SharePartitionKey(group_id, topic.topic_id, partition)
            for group_id, topic, partition in known
            if topic is not None
        ]

    def tell(
        self,
        transaction_id: str,
        keys: Iterable[SharePartitionKey],
        committed: list[Settlement] | None = None,
    ) -> Collection[asyncio.Task[None]]:
        """Tell the leaders that a transaction has ended. Returns: the calls that are under way, for `told`.

        `committed`: the settlements that this gateway has just committed in the log. A leader here does not ask the
        log for them, and empties the list.
        """
        by_leader: dict[Node, list[SharePartitionKey]] = {}
        for key in keys:
            by_leader.setdefault(self._routing.cluster.leader_of(key), []).append(key)
        return [
            background.start(self.telling, self._tell(node, transaction_id, led, committed))
            for node, led in by_leader.items()
        ]

    async def _tell(
        self,
        node: Node,
        transaction_id: str,
        keys: Sequence[SharePartitionKey],
        committed: list[Settlement] | None,
    ) -> None:
        try:
            if node == self._routing.cluster.me:
                await self._pending.ended(transaction_id, keys, committed)
            else:
                await self._routing.gateways.transaction_ended(node, transaction_id, keys)
        except ApiError:
            self._routing.cluster.look_again()  # the leader asks by itself

    async def _at(
        self, node: Node, group_id: str, member_id: str, transaction_id: str, items: list[Acknowledgement]
    ) -> HoldResponse:
        request = HoldRequest(member_id=member_id, transaction_id=transaction_id, acknowledgements=items)
        if node == self._routing.cluster.me:
            return await self._local.hold(group_id, request)
        try:
            answer: HoldResponse = await self._routing.gateways.call(node, apis.HOLD_AT_LEADER, request, group=group_id)
            return answer
        except ApiError as error:
            return HoldResponse(results=[failed(error)] * len(items), held=[])


async def told(telling: Collection[asyncio.Task[None]]) -> None:
    """Return when these calls have ended, or after TELL_S."""
    if telling:
        await asyncio.wait(telling, timeout=TELL_S)


def digest_of(wanted: Iterable[Wanted]) -> bytes:
    """Names the acknowledgements of a commit, so that a repeat can be distinguished from another commit."""
    sent = [(each.group_id, each.member_id, item) for each in wanted for item in each.acknowledgements]
    return hashlib.sha256(encode(sent)).digest()


def _add(held: dict[SharePartitionKey, HeldForTransaction], more: HeldForTransaction) -> None:
    known = held.get(more.key)
    if known is None:
        held[more.key] = more
        return
    if known.state_epoch != more.state_epoch:
        raise CoordinatorNotAvailable("the group's state was reset just now; repeat the request")
    known.batches.extend(more.batches)
    held[more.key] = known._replace(leader_epoch=max(known.leader_epoch, more.leader_epoch))


def _no_answer(result: AcknowledgementResult) -> ApiError:
    """No leader gave a word in time, or the records are pending on another transaction. Nothing is settled."""
    return ApiError(
        f"{result.detail or 'a leader did not answer'}; nothing is settled, and the transaction is open",
        error=BY_CODE[result.code or "COORDINATOR_NOT_AVAILABLE"],
        definite=True,
    )
