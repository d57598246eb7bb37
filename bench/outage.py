"""`python -m bench.outage`: workers whose payment provider is away for a while, on a stack of their own.

5,000 orders are produced. While the provider is away, every worker gives back what it gets, without a delay of its own:
the group's `share.retry.backoff.ms` says how long a record waits. When the provider is back, workers accept. It counts
records that came early (before their wait was over, by the workers' clock with 50 ms of tolerance), dead letters, and
the time until everything is done.

    produce ── outage: fetch, release, wait, fetch … ──▶ end of the outage ── fetch, accept … ──▶ all accepted
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import click
import httpx

from sharequeue.stack.stack import temporary_stack

TOPIC: Final = "orders"
GROUP: Final = "payments"
WORKERS: Final = 8
TOLERANCE_S: Final = 0.05
GIVE_UP_S: Final = 1800


class Run:
    """One run, and what it counts."""

    def __init__(self, url: str, orders: int, backoff_ms: list[int], outage_s: float) -> None:
        self._url = url
        self._orders = orders
        self._backoff_ms = backoff_ms
        self._outage_s = outage_s
        self._released_s: dict[int, tuple[float, int]] = {}
        """By offset: when the release was sent, and after which attempt."""
        self._ends_s = float("inf")
        self.early: list[tuple[int, float]] = []
        """Offsets that came too early, and by how many seconds."""
        self.deliveries = 0
        self.accepted: set[int] = set()
        self.accepted_at: list[float] = []

    async def __call__(self) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=self._url, timeout=60) as client:
            settings = {
                "share.retry.backoff.ms": ",".join(map(str, self._backoff_ms)),
                "share.delivery.count.limit": "12",
                "share.record.lock.duration.ms": "30000",
            }
            (await client.patch(f"/v1/share-groups/{GROUP}/config", json={"config": settings})).raise_for_status()
            for start in range(0, self._orders, 1000):
                records = [{"value": number} for number in range(start, min(start + 1000, self._orders))]
                (await client.post(f"/v1/topics/{TOPIC}/records", json={"records": records})).raise_for_status()
            started_s = time.monotonic()
            self._ends_s = started_s + self._outage_s
            async with asyncio.timeout(self._outage_s + GIVE_UP_S), asyncio.TaskGroup() as workers:
                for number in range(WORKERS):
                    workers.create_task(self._work(client, f"w-{number}"))
            letters = await client.get(f"/v1/topics/dlq.{GROUP}/partitions/0/records")
        after_s = [moment - self._ends_s for moment in self.accepted_at if moment >= self._ends_s]
        return {
            "orders": self._orders,
            "outage_s": self._outage_s,
            "deliveries": self.deliveries,
            "early": len(self.early),
            "earliest_s": round(max((by for _, by in self.early), default=0.0), 3),
            "dead_letters": letters.json().get("log_end_offset", 0) if letters.status_code == 200 else 0,
            "accepted": len(self.accepted),
            "done_after_the_end_s": round(max(after_s, default=0.0), 1),
            "longest_backoff_s": max(self._backoff_ms) / 1000,
        }

    async def _work(self, client: httpx.AsyncClient, member_id: str) -> None:
        while len(self.accepted) < self._orders:
            fetch = {"topics": [TOPIC], "member_id": member_id, "max_records": 100, "max_wait_ms": 1000}
            answer = await client.post(f"/v1/share-groups/{GROUP}/fetch", json=fetch)
            if answer.status_code != 200:
                await asyncio.sleep(0.1)
                continue
            for batch in answer.json()["batches"]:
                await self._handle(client, member_id, batch)

    async def _handle(self, client: httpx.AsyncClient, member_id: str, batch: dict[str, Any]) -> None:
        now_s = time.monotonic()
        records = batch.pop("records")
        self.deliveries += len(records)
        for record in records:
            released = self._released_s.get(record["offset"])
            if released is not None:
                since_s, attempt = released
                wait_s = self._backoff_ms[min(attempt, len(self._backoff_ms)) - 1] / 1000
                if now_s - since_s < wait_s - TOLERANCE_S:
                    self.early.append((record["offset"], wait_s - (now_s - since_s)))
        away = now_s < self._ends_s
        settle = {**batch, "type": "release" if away else "accept"}
        if away:
            settle["reason"] = "the payment provider is away"
        sent_s = time.monotonic()
        body = {"member_id": member_id, "acknowledgements": [settle]}
        answer = (await client.post(f"/v1/share-groups/{GROUP}/acknowledge", json=body)).json()
        if answer["results"][0]["status"] not in ("applied", "ignored"):
            return
        for record in records:
            if away:
                self._released_s[record["offset"]] = (sent_s, batch["delivery_count"])
            else:
                self.accepted.add(record["offset"])
                self.accepted_at.append(time.monotonic())


def exponential(first_ms: int, factor: int, most_ms: int) -> list[int]:
    """Waits that grow up to the longest: 1, 3, 9 … seconds."""
    waits = [first_ms]
    while waits[-1] < most_ms:
        waits.append(min(waits[-1] * factor, most_ms))
    return waits


@click.command()
@click.option("--orders", default=5000, show_default=True)
@click.option(
    "--outage", "outages", type=float, multiple=True, default=(60.0, 1200.0), show_default=True, help="seconds"
)
def main(orders: int, outages: tuple[float, ...]) -> None:
    for outage_s in outages:
        with tempfile.TemporaryDirectory() as home, temporary_stack(Path(home) / "stack") as stack:
            found = asyncio.run(Run(stack.url, orders, exponential(1000, 3, 600_000), outage_s)())
        click.echo("  ".join(f"{name} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
