"""Ledgers with the entries of transfers, and an auditor who adds them up while everything is killed.

    ledger-0            ledger-1            …        a transfer: {transfer, account, amount} twice,
    ┌────────────┐      ┌────────────┐               and mostly in two partitions
    │ partition 0│      │            │
    │ partition 1│      │            │
    │ partition 2│      │            │
    └────────────┘      └────────────┘

A ledger has one transaction at a time. So at each last stable offset, read of all partitions in one snapshot, its
entries add up to nothing.
"""

import asyncio
import random
import time
from collections import Counter
from typing import Final

from tests.chaos.clients import Gateways

ACCOUNTS: Final = 100
LEDGERS: Final = 4
PARTITIONS: Final = 3
PATIENCE_S: Final = 150.0

Entry = dict[str, int]


class Broken(AssertionError):
    """A ledger has lost or made money, or an outcome was not kept."""


def ledger_of(number: int) -> str:
    return f"ledger-{number}"


def partition_of(account: int) -> int:
    return account // LEDGERS % PARTITIONS


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
