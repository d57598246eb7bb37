"""Clerks who consume orders, and book them in ledgers: each order is settled and booked in one step, or neither.

    orders ──fetch──▶ clerk ──┬─ begin, produce debit and credit, commit with the acknowledgement ─▶ ledger-0
    (group `clerks`)          └─ one acknowledgement that carries both records ────────────────────▶ ledger-0

Each clerk writes to a ledger of his own. Some die with a transaction open and records held, some commit after their
locks have ended. An order that is not booked comes to another clerk; one that is booked never comes again.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from typing import Any, Final

from tests.chaos.clients import Answer, Gateways
from tests.chaos.ledgers import ACCOUNTS, PATIENCE_S, Broken, Entry, ledger_of, partition_of

ORDERS: Final = "orders"
GROUP: Final = "clerks"
PARTITIONS: Final = 2
LOCK_S: Final = 2.0
TIMEOUT_MS: Final = 5000
SETTINGS: Final = {
    "share.isolation.level": "read_committed",
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": str(int(LOCK_S * 1000)),
    "share.delivery.count.limit": "100",
}
RANGE: Final = ("topic", "partition", "first_offset", "last_offset", "delivery_count")


def entries_of(order: Entry) -> list[Entry]:
    return [
        {"transfer": order["order"], "account": order["from"], "amount": -order["amount"]},
        {"transfer": order["order"], "account": order["to"], "amount": order["amount"]},
    ]


class Customer:
    """Orders transfers, each once."""

    def __init__(self, gateways: Gateways, seed: int) -> None:
        self.gateways = gateways
        self._random = random.Random(f"customer {seed}")
        self.orders: list[Entry] = []
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            source, target = self._random.sample(range(ACCOUNTS), 2)
            order = {
                "order": len(self.orders),
                "from": source,
                "to": target,
                "amount": self._random.randint(1, 500),
            }
            self.orders.append(order)
            records = {"records": [{"value": order, "partition": self._random.randrange(PARTITIONS)}]}
            path, key = f"/v1/topics/{ORDERS}/records", {"Idempotency-Key": f"order-{order['order']}"}
            until_s = time.monotonic() + PATIENCE_S
            while not (await self.gateways.ask("POST", path, records, headers=key)).ok:
                if time.monotonic() > until_s:
                    raise Broken(f"order {order} is not taken")
                await asyncio.sleep(0.05)
            await asyncio.sleep(self._random.uniform(0.01, 0.1))

    def books(self) -> Counter[tuple[int, int, int]]:
        """What the ledgers must have in the end."""
        return Counter(
            (entry["transfer"], entry["account"], entry["amount"])
            for order in self.orders
            for entry in entries_of(order)
        )


class Clerk:
    """One clerk after the other, for one ledger."""

    def __init__(self, number: int, gateways: Gateways, seed: int) -> None:
        self._ledger = ledger_of(number)
        self._name = f"clerk-{number}"
        self._random = random.Random(f"{self._name} {seed}")
        self.gateways = gateways
        self._numbers = itertools.count()
        self._member = f"{self._name}-0"
        self._left_open = True
        """A transaction of this ledger may be open: then no record that needs none is sent,
        because it would be held back."""
        self.ways: Counter[str] = Counter()
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            for batch in await self._fetch():
                await self._work(batch)

    async def _fetch(self) -> list[dict[str, Any]]:
        body = {
            "member_id": self._member,
            "topics": [ORDERS],
            "max_records": self._random.randint(1, 4),
            "max_wait_ms": 200,
        }
        answer = await self.gateways.ask("POST", f"/v1/share-groups/{GROUP}/fetch", body, wait_s=0.2)
        if not answer.ok:
            await asyncio.sleep(0.05)
            return []
        batches: list[dict[str, Any]] = answer.document["batches"]
        return batches

    async def _work(self, batch: dict[str, Any]) -> None:
        accept = {name: batch[name] for name in RANGE} | {"type": "accept"}
        entries = [entry for record in batch["records"] for entry in entries_of(record["value"])]
        chance = self._random.random()
        if chance < 0.1:
            self.ways["released"] += 1
            body = {"member_id": self._member, "acknowledgements": [accept | {"type": "release"}]}
            await self.gateways.ask("POST", f"/v1/share-groups/{GROUP}/acknowledge", body)
        elif chance < 0.5 and not self._left_open:
            await self._in_one_call(accept, entries)
        else:
            await self._in_a_transaction(accept, entries)

    async def _in_one_call(self, accept: dict[str, Any], entries: list[Entry]) -> None:
        """An acknowledgement with its records, until its outcome is told."""
        records = [{"value": entry, "partition": partition_of(entry["account"])} for entry in entries]
        body = {
            "member_id": self._member,
            "acknowledgements": [accept],
            "produce": [{"topic": self._ledger, "records": records}],
        }
        key = {"Idempotency-Key": f"{self._name}-{next(self._numbers)}"}
        until_s = time.monotonic() + PATIENCE_S
        while True:
            answer = await self.gateways.ask("POST", f"/v1/share-groups/{GROUP}/acknowledge", body, headers=key)
            if answer.ok or answer.code == 121:
                self.ways["in one call" if answer.ok else "refused in one call"] += 1
                return
            if time.monotonic() > until_s:
                raise Broken(f"nobody says what became of {key}: {answer.document}")
            await asyncio.sleep(0.05)

    async def _in_a_transaction(self, accept: dict[str, Any], entries: list[Entry]) -> None:
        transaction = await self._begin()
        if transaction is None:
            return
        dies_at = self._random.randrange(len(entries) + 1) if self._random.random() < 0.15 else None
        for number, entry in enumerate(entries):
            if number == dies_at or not await self._enter(transaction, entry):
                break
        if dies_at is not None:  # the next clerk of this ledger ends the transaction; the locks end by themselves
            self.ways["died"] += 1
            self._member = f"{self._name}-{next(self._numbers)}"
            return
        if self._random.random() < 0.1:
            await asyncio.sleep(LOCK_S + 0.3)
            self.ways["late"] += 1
        await self._commit(transaction, accept)

    async def _begin(self) -> str | None:
        self._left_open = True
        body = {"transactional_id": self._name, "timeout_ms": TIMEOUT_MS}
        answer = await self.gateways.ask("POST", "/v1/transactions", body)
        return answer.document["transaction_id"] if answer.ok else None

    async def _enter(self, transaction: str, entry: Entry) -> bool:
        """Returns: whether the transaction is open still. An entry that is lost makes the commit impossible."""
        records = {"records": [{"value": entry, "partition": partition_of(entry["account"])}]}
        headers = {"Transaction-Id": transaction, "Idempotency-Key": f"{self._name}-{next(self._numbers)}"}
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            answer = await self.gateways.ask("POST", f"/v1/topics/{self._ledger}/records", records, headers=headers)
            if answer.ok:
                return True
            if answer.code in (48, 90, 105):
                return False
            await asyncio.sleep(0.05)
        raise Broken(f"nobody says what became of an entry of {transaction}")

    async def _commit(self, transaction: str, accept: dict[str, Any]) -> None:
        """Commit with the acknowledgement, until the outcome is told."""
        settled = {"group_id": GROUP, "member_id": self._member, "acknowledgements": [accept]}
        until_s = time.monotonic() + PATIENCE_S
        while True:
            path = f"/v1/transactions/{transaction}/commit"
            answer: Answer = await self.gateways.ask("POST", path, {"acknowledgements": [settled]})
            state = (answer.document or {}).get("state")
            if state in ("committed", "aborted") or answer.code == 105:
                self.ways[f"{state} in a transaction"] += 1
                self._left_open = False
                return
            if time.monotonic() > until_s:
                raise Broken(f"nobody says what became of {transaction}: {answer.document}")
            await asyncio.sleep(0.05)


async def lag(gateways: Gateways) -> int:
    answer = await gateways.until_answered("GET", f"/v1/share-groups/{GROUP}/offsets")
    return sum(each["lag"] for topic in answer.document["topics"] for each in topic["partitions"])
