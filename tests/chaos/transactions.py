"""Producers with transactions that end in every way there is, and a reader of committed records."""

import asyncio
import itertools
import random
import time
from typing import Final

from tests.chaos.clients import Answer, Gateways
from tests.chaos.history import CommittedRead, End, History, Outcome, Produce

TELL_S: Final = 12.0
"""How long a producer repeats a commit or an abort to learn the outcome."""
TIMEOUTS_MS: Final = (400, 1500, 6000, 6000)
ENDED: Final = frozenset({"committed", "aborted", "forgotten"})
HANG_UPS: Final = 0.06
TAIL: Final = 200
"""How many offsets the reader looks back."""


async def tell(gateways: Gateways, history: History, transaction: str, wish: str, *, hang_up: bool = False) -> str:
    """One call that ends or describes a transaction, noted in the history. Returns: the state that it told."""
    path = f"/v1/transactions/{transaction}"
    if wish == "describe":
        answer = await gateways.ask("GET", path)
    else:
        answer = await gateways.ask("POST", f"{path}/{wish}", {}, hang_up=hang_up)
    document = answer.document or {}
    known = answer.ok or answer.code in (48, 90)
    state = document["state"] if known else "forgotten" if answer.code == 105 else "unknown"
    history.ends.append(End(answer.span, transaction, wish, state))
    return str(state)


class TransactionalProducer:
    """One transaction after another: some commit, some abort, some are too late, some are left open,
    some are fenced."""

    def __init__(
        self, name: str, gateways: Gateways, history: History, topics: dict[str, int], values: "itertools.count[int]"
    ) -> None:
        self._name = name
        self._random = random.Random(name)
        self.gateways = gateways
        self._history = history
        self._topics = topics
        self._values = values
        self._keys = itertools.count()
        self.begun: list[str] = []
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await self._transaction()
            await asyncio.sleep(self._random.uniform(0.02, 0.2))

    async def _transaction(self) -> None:
        draw = self._random
        timeout_ms = draw.choice(TIMEOUTS_MS)
        body = {"timeout_ms": timeout_ms}
        if draw.random() < 0.5:  # a new producer, which fences the one before: its transaction may be open
            body["transactional_id"] = self._name
        answer = await self.gateways.ask("POST", "/v1/transactions", body)
        if not answer.ok:
            return  # what an unanswered begin has begun stays empty
        transaction: str = answer.document["transaction_id"]
        self.begun.append(transaction)
        for _ in range(draw.randint(0, 4)):
            if not await self._produce(transaction):
                break
            await asyncio.sleep(draw.uniform(0, 0.15))
        await self._end(transaction, timeout_ms)

    async def _produce(self, transaction: str) -> bool:
        """Returns: whether the transaction takes more."""
        draw = self._random
        topic = draw.choice(list(self._topics))
        values = tuple(next(self._values) for _ in range(draw.randint(1, 8)))
        partitions = self._topics[topic]
        spread, partition = draw.random() < 0.5, draw.randrange(partitions)
        records = [{"value": v, "partition": draw.randrange(partitions) if spread else partition} for v in values]
        headers = {"Transaction-Id": transaction}
        if draw.random() < 0.6:
            headers["Idempotency-Key"] = f"{self._name}-{next(self._keys)}"
        hang_up = draw.random() < HANG_UPS
        until_s = time.monotonic() + TELL_S
        while True:
            answer = await self.gateways.ask(
                "POST", f"/v1/topics/{topic}/records", {"records": records}, headers=headers, hang_up=hang_up
            )
            places = (
                tuple((each["partition"], each["offset"]) for each in answer.document["records"]) if answer.ok else ()
            )
            outcome = Outcome.UNKNOWN if _appended(answer) else answer.outcome
            self._history.produced.append(Produce(answer.span, topic, values, outcome, places, transaction))
            if answer.ok or "Idempotency-Key" not in headers or time.monotonic() > until_s:
                return True
            if answer.code in (48, 90, 105):
                return False
            hang_up = False
            await asyncio.sleep(0.1)

    async def _end(self, transaction: str, timeout_ms: int) -> None:
        draw = self._random
        chance = draw.random()
        if chance < 0.55:
            await self._until_told(transaction, "commit")
        elif chance < 0.7:
            await self._until_told(transaction, "abort")
        elif chance < 0.78:  # both at the same time: one of them decides
            await asyncio.gather(self._until_told(transaction, "commit"), self._until_told(transaction, "abort"))
        elif chance < 0.86:  # too late, or just in time
            await asyncio.sleep(min(timeout_ms / 1000 + draw.uniform(-0.1, 0.1), 2))
            await self._until_told(transaction, "commit")
        elif chance < 0.9:
            await self._until_told(transaction, "terminate")
        # otherwise the producer dies: the time-out or the next producer of this name ends it

    async def _until_told(self, transaction: str, wish: str) -> None:
        hang_up = self._random.random() < 2 * HANG_UPS
        until_s = time.monotonic() + TELL_S
        while True:
            state = await tell(self.gateways, self._history, transaction, wish, hang_up=hang_up)
            if state in ENDED or time.monotonic() > until_s:
                return
            hang_up = False
            await asyncio.sleep(0.1)


def _appended(answer: Answer) -> bool:
    """Whether a refusal says that the records are in the transaction, which has ended."""
    return not answer.ok and bool((answer.document or {}).get("appended"))


async def outcomes(gateways: Gateways, history: History, transactions: list[str], patience_s: float) -> None:
    """Describe each transaction until none is open: their time-outs end them."""
    until_s = time.monotonic() + patience_s
    for transaction in transactions:
        while await tell(gateways, history, transaction, "describe") not in ENDED and time.monotonic() < until_s:  # noqa: ASYNC110 - what is waited for happens elsewhere
            await asyncio.sleep(0.2)


class CommittedReader:
    """Reads the tail of each partition up to an answer without records, committed records only, again and again."""

    def __init__(self, gateways: Gateways, history: History, topics: dict[str, int]) -> None:
        self.gateways = gateways
        self._history = history
        self._ends = {(topic, partition): 0 for topic, count in topics.items() for partition in range(count)}

    async def run(self) -> None:
        while True:
            for topic, partition in self._ends:
                offset, end = -1, max(0, self._ends[topic, partition] - TAIL)
                while end != offset:
                    offset = end
                    await self._read(topic, partition, offset)
                    end = self._ends[topic, partition]
            await asyncio.sleep(0.05)

    async def _read(self, topic: str, partition: int, offset: int) -> bool:
        """Returns: whether the read came to the log end."""
        path = f"/v1/topics/{topic}/partitions/{partition}/records"
        query = f"?offset={offset}&max_records=5000&isolation_level=read_committed"
        answer = await self.gateways.ask("GET", path + query)
        if not answer.ok:
            return False
        end: int = answer.document["next_offset"]
        values = tuple((record["offset"], record["value"]) for record in answer.document["records"])
        self._history.committed_reads.append(CommittedRead(answer.span, topic, partition, offset, end, values))
        self._ends[topic, partition] = end
        return end >= answer.document["log_end_offset"]

    async def read_all(self, patience_s: float) -> list[str]:
        """Read each partition to its end. Returns: where something still holds the reader back."""
        until_s = time.monotonic() + patience_s
        held = []
        for topic, partition in self._ends:
            self._ends[topic, partition] = 0
            while not await self._read(topic, partition, self._ends[topic, partition]):
                if time.monotonic() > until_s:
                    held.append(f"committed reads of {topic}-{partition} do not reach the log end")
                    break
                await asyncio.sleep(0.1)
        return held
