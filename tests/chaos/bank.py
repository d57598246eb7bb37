"""A bank of 100 accounts: each transaction moves money, and readers count it while everything is killed.

    ledger-0            ledger-1            …        a teller for each ledger, with a transactional id
    ┌────────────┐      ┌────────────┐
    │ partition 0│      │            │               a transfer: {transfer, account, amount} twice, in two requests,
    │ partition 1│      │            │               and mostly in two partitions; 1 to 3 transfers a transaction
    │ partition 2│      │            │
    └────────────┘      └────────────┘

A ledger has one transaction at a time, because a new teller fences the one before. So at each last stable offset, read
of all partitions in one snapshot, its entries add up to nothing.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from typing import Any, Final

from sharequeue.stack.stack import Stack
from tests.chaos.clients import Answer, Gateways

ACCOUNTS: Final = 100
LEDGERS: Final = 4
PARTITIONS: Final = 3
OPENING: Final = 1000
"""The money of each account at the beginning. It may fall below nothing."""
TIMEOUT_MS: Final = 5000
PATIENCE_S: Final = 150.0

Entry = dict[str, int]


class Broken(AssertionError):
    """The bank has lost or made money, or an outcome was not kept."""


def ledger_of(number: int) -> str:
    return f"ledger-{number}"


def partition_of(account: int) -> int:
    return account // LEDGERS % PARTITIONS


class Teller:
    """Moves money within one ledger. Now and then it dies in the middle, and another one begins under its name."""

    def __init__(self, number: int, gateways: Gateways, seed: str) -> None:
        self._number = number
        self._name = f"teller-{number}"
        self._random = random.Random(f"{self._name} {seed}")
        self.gateways = gateways
        self._keys = itertools.count()
        self._transfers = itertools.count()
        self.wished: dict[str, list[Entry]] = {}
        """The entries of each transaction, also of those that were not sent."""
        self.told: dict[str, str] = {}
        """What answers said became of a transaction."""
        self.zombies = 0
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            begun = await self._begin()
            if begun is not None:
                await self._work(begun)

    async def _begin(self) -> str | None:
        """Begin as a new teller: the one before is fenced, whatever it was doing."""
        body = {"transactional_id": self._name, "timeout_ms": TIMEOUT_MS}
        answer = await self.gateways.ask("POST", "/v1/transactions", body)
        if not answer.ok:
            await asyncio.sleep(0.05)
            return None
        transaction: str = answer.document["transaction_id"]
        self.wished[transaction] = []
        return transaction

    async def _work(self, transaction: str) -> None:
        draw = self._random
        entries = [entry for _ in range(draw.randint(1, 3)) for entry in self._transfer()]
        self.wished[transaction] = entries
        dies_at = draw.randrange(len(entries)) if draw.random() < 0.25 else len(entries)
        for entry in entries[:dies_at]:
            if not await self._enter(transaction, entry):
                await self.end(transaction, "abort")
                return
        if dies_at < len(entries):
            if draw.random() < 0.5:
                await self._rise_again(transaction, entries[dies_at:])
            return
        await self.end(transaction, "abort" if draw.random() < 0.15 else "commit")

    def _transfer(self) -> list[Entry]:
        mine = range(self._number, ACCOUNTS, LEDGERS)
        source, target = self._random.sample(mine, 2)
        amount, number = self._random.randint(1, 500), next(self._transfers)
        return [
            {"transfer": number, "account": source, "amount": -amount},
            {"transfer": number, "account": target, "amount": amount},
        ]

    async def _enter(self, transaction: str, entry: Entry, *, tries: int = 100) -> bool:
        """Produce one entry, once. Returns: whether the transaction has it."""
        records = {"records": [{"value": entry, "partition": partition_of(entry["account"])}]}
        headers = {"Transaction-Id": transaction, "Idempotency-Key": f"{self._name}-{next(self._keys)}"}
        for _ in range(tries):
            path = f"/v1/topics/{ledger_of(self._number)}/records"
            answer = await self.gateways.ask("POST", path, records, headers=headers)
            if answer.ok:
                return True
            if answer.code in (48, 90, 105):
                return False
            await asyncio.sleep(0.05)
        return False

    async def end(self, transaction: str, wish: str) -> str:
        """Commit or abort until the outcome is told. Returns: the state."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            answer = await self.gateways.ask("POST", f"/v1/transactions/{transaction}/{wish}", {})
            state = _state_of(answer)
            if state is not None:
                self._note(transaction, state)
                return state
            if answer.code == 105:  # it wrote nothing; otherwise the books will not agree
                return "forgotten"
            await asyncio.sleep(0.05)
        raise Broken(f"nobody says what became of {transaction}")

    def _note(self, transaction: str, state: str) -> None:
        before = self.told.setdefault(transaction, state)
        if before != state:
            raise Broken(f"{transaction} was told {before}, and then {state}")

    async def _rise_again(self, transaction: str, entries: list[Entry]) -> None:
        """The teller was only slow: another one has begun by now, and refuses it."""
        newer = None
        while newer is None and not self.stopping:
            newer = await self._begin()
        if newer is None:
            return
        self.zombies += 1
        for entry in entries:
            if await self._enter(transaction, entry):
                raise Broken(f"{transaction} took an entry after another teller has begun")
        if await self.end(transaction, "commit") == "committed":
            raise Broken(f"{transaction} was committed after another teller has begun")
        await self._work(newer)

    async def outcomes(self) -> None:
        """Find out what became of all transactions. Those that were left open time out."""
        for transaction in self.wished:
            until_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < until_s:
                answer = await self.gateways.ask("GET", f"/v1/transactions/{transaction}")
                state = _state_of(answer)
                if state in ("committed", "aborted"):
                    self._note(transaction, state)
                    break
                if answer.code == 105:
                    self.told.setdefault(transaction, "forgotten")
                    break
                await asyncio.sleep(0.1)
            else:
                raise Broken(f"{transaction} is not ended")

    def books(self) -> Counter[tuple[int, int, int]]:
        """The entries of all committed transactions: (transfer, account, amount)."""
        return Counter(
            (entry["transfer"], entry["account"], entry["amount"])
            for transaction, entries in self.wished.items()
            if self.told[transaction] == "committed"
            for entry in entries
        )


def _state_of(answer: Answer) -> str | None:
    """`committed` or `aborted`, if the answer tells it; `open` of a description."""
    if answer.ok or answer.code in (48, 90):
        state: str = answer.document["state"]
        return state
    return None


class Auditor:
    """Adds up the committed entries of all ledgers, again and again."""

    def __init__(self, gateways: Gateways, seed: str) -> None:
        self.gateways = gateways
        self._random = random.Random(f"auditor {seed}")
        self._kept: dict[tuple[int, int], tuple[int, list[tuple[int, Entry]]]] = {}
        """By ledger and partition, how far it was read, and the entries with their offsets."""
        self.audits = 0

    async def run(self) -> None:
        while True:
            for ledger in range(LEDGERS):
                await self.audit(ledger)
            await asyncio.sleep(0.02)

    async def audit(self, ledger: int, *, whole: bool = False) -> list[Entry] | None:
        """Read a ledger up to its last stable offsets. Returns: its entries; None: some gateway did not answer.

        Raises: Broken: they do not add up to nothing.
        """
        topic = ledger_of(ledger)
        described = await self.gateways.ask("GET", f"/v1/topics/{topic}")
        if not described.ok:
            return None
        afresh = whole or self._random.random() < 0.2
        entries: list[Entry] = []
        for bounds in described.document["partitions"]:
            partition, stable = bounds["partition"], bounds["last_stable_offset"]
            if afresh:
                self._kept.pop((ledger, partition), None)
            if not await self._read(ledger, partition, stable):
                return None
            entries += [entry for offset, entry in self._kept[ledger, partition][1] if offset < stable]
        total = sum(entry["amount"] for entry in entries)
        if total:
            halves = Counter(entry["transfer"] for entry in entries)
            lone = [entry for entry in entries if halves[entry["transfer"]] != 2]
            raise Broken(f"{topic} has {total} too much at {described.document['partitions']}: {lone[:6]}")
        self.audits += 1
        return entries

    async def _read(self, ledger: int, partition: int, stable: int) -> bool:
        """Read on to the last stable offset, through any gateway."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            read_to, entries = self._kept.setdefault((ledger, partition), (0, []))
            if read_to >= stable:
                return True
            path = f"/v1/topics/{ledger_of(ledger)}/partitions/{partition}/records"
            query = f"?offset={read_to}&max_records={self._random.choice((3, 50, 2000))}&isolation_level=read_committed"
            answer = await self.gateways.ask("GET", path + query)
            if not answer.ok:
                return False
            entries += [(record["offset"], record["value"]) for record in answer.document["records"]]
            if answer.document["next_offset"] == read_to and time.monotonic() > until_s:
                raise Broken(f"{path}{query} does not come to {stable}: {answer.document}")
            self._kept[ledger, partition] = answer.document["next_offset"], entries


class Bank:
    """The ledgers, a teller for each, and two auditors."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._gateways = Gateways(stack.urls, f"bank {seed}")
        self.tellers = [
            Teller(number, Gateways(stack.urls, f"teller {number} {seed}"), str(seed)) for number in range(LEDGERS)
        ]
        self.auditors = [Auditor(Gateways(stack.urls, f"auditor {n} {seed}"), f"{n} {seed}") for n in range(2)]

    async def open(self) -> None:
        for number in range(LEDGERS):
            body = {"name": ledger_of(number), "partitions": PARTITIONS}
            await self._gateways.until_answered("POST", "/v1/topics", body)

    async def close(self) -> None:
        for gateways in (self._gateways, *(each.gateways for each in (*self.tellers, *self.auditors))):
            await gateways.close()

    @property
    def committed(self) -> int:
        """How many transactions were told committed."""
        return sum(state == "committed" for teller in self.tellers for state in teller.told.values())

    async def balance(self) -> dict[int, int]:
        """The money of each account, when all have stopped. Raises: Broken: it is not what the tellers were told."""
        balances = dict.fromkeys(range(ACCOUNTS), OPENING)
        for teller in self.tellers:
            await teller.outcomes()
        for number, teller in enumerate(self.tellers):
            entries = await self._whole(number)
            found = Counter((entry["transfer"], entry["account"], entry["amount"]) for entry in entries)
            if found != teller.books():
                raise Broken(
                    f"{ledger_of(number)}: {found - teller.books()} too much, {teller.books() - found} missing"
                )
            for entry in entries:
                balances[entry["account"]] += entry["amount"]
        return balances

    async def _whole(self, number: int) -> list[Entry]:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            described: Any = (await self._gateways.until_answered("GET", f"/v1/topics/{ledger_of(number)}")).document
            entries = await self.auditors[0].audit(number, whole=True)
            if entries is not None and all(
                each["last_stable_offset"] == each["log_end_offset"] for each in described["partitions"]
            ):
                return entries
            if time.monotonic() > until_s:
                raise Broken(f"{ledger_of(number)} is held back: {described}")
            await asyncio.sleep(0.2)
