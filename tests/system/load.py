"""A load on one topic and one group that keeps book of every promise the service made, through crashes of its parts.

Producers repeat a request under the same Idempotency-Key until it is answered; consumers accept, release or reject at
random and repeat an acknowledgement until its outcome is known. `Book.broken` names every promise that was not kept.
"""

import asyncio
import itertools
import random
import time
from typing import Any, Final

import httpx

LIMIT: Final = 5
LOCK_MS: Final = 2000
GIVE_UP_S: Final = 120
PARTITIONS: Final = 2


class Book:
    """The promises of the service, by record: a record is (partition, offset)."""

    def __init__(self) -> None:
        self.produced: dict[tuple[int, int], int] = {}
        self.accepted: dict[tuple[int, int], float] = {}
        """When the accept was answered."""
        self.applied: set[tuple[int, int]] = set()
        """Surely accepted; of others a repeated accept was ignored, as of any record that is finished."""
        self.counts: dict[tuple[int, int], dict[int, float]] = {}
        """Delivery counts, and when each arrived."""
        self.broken: list[str] = []

    def delivered(self, record: tuple[int, int], delivery_count: int, value: int, asked_s: float) -> None:
        """A record arrived. `asked_s`: when the fetch was sent: answers of fetches side by side come in any order."""
        counts = self.counts.setdefault(record, {})
        if self.accepted.get(record, asked_s) < asked_s:
            self.broken.append(f"{record} was delivered again (count {delivery_count}) after its accept was answered")
        if delivery_count > LIMIT:
            self.broken.append(f"{record} was delivered {delivery_count} times, the limit is {LIMIT}")
        higher = [count for count, arrived_s in counts.items() if count > delivery_count and arrived_s < asked_s]
        if higher or delivery_count in counts:
            self.broken.append(f"{record}: delivery count {delivery_count} after {[*counts]}")
        counts[delivery_count] = time.monotonic()
        known = self.produced.get(record)
        if known is not None and known != value:
            self.broken.append(f"{record} holds {value}, but {known} was produced there")

    def was_accepted(self, record: tuple[int, int], *, applied: bool) -> None:
        """`applied`: by this accept; otherwise by this one or another."""
        if applied and record in self.applied:
            self.broken.append(f"{record} was accepted twice")
        if applied:
            self.applied.add(record)
        self.accepted.setdefault(record, time.monotonic())


class Load:
    """Producers and consumers on one topic; `start`, then `finish` once enough has been broken."""

    def __init__(self, url: str, name: str, seed: int, *, pause_s: float) -> None:
        """`pause_s`: the longest pause between two requests of a producer."""
        self._http = httpx.AsyncClient(base_url=url, timeout=15)
        self._random = random.Random(seed)
        self._name = name
        self._pause_s = pause_s
        self._values = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []
        self._producing = True
        self._consuming = True
        self.book = Book()

    async def start(self) -> None:
        """Make topic and group, and begin."""
        await self._until_answered("POST", "/v1/topics", {"name": self._name, "partitions": PARTITIONS})
        settings = {"share.record.lock.duration.ms": str(LOCK_MS), "share.delivery.count.limit": str(LIMIT)}
        await self._until_answered("PATCH", f"/v1/share-groups/{self._name}/config", {"config": settings})
        self._tasks = [asyncio.create_task(self._produce(number)) for number in range(2)]
        self._tasks += [asyncio.create_task(self._consume(f"m{number}")) for number in range(3)]

    def check(self) -> None:
        """Raises: the error that ended a producer or a consumer."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def finish(self) -> None:
        """Stop producing, consume until each record is accepted or dead-lettered, and balance the book."""
        self._producing = False
        await asyncio.gather(*self._tasks[:2])
        deadline = asyncio.get_running_loop().time() + GIVE_UP_S
        while True:
            self.check()
            dead = await self._dead_letters()
            missing = set(self.book.produced) - set(self.book.accepted) - set(dead)
            if not missing:
                break
            if asyncio.get_running_loop().time() > deadline:
                in_flight = await self._until_answered("GET", f"/v1/share-groups/{self._name}/in-flight")
                self.book.broken.append(f"{sorted(missing)[:10]} neither accepted nor dead; in flight: {in_flight}")
                break
            await asyncio.sleep(0.2)
        self._consuming = False
        await asyncio.gather(*self._tasks)
        both = self.book.applied & set(dead)
        if both:
            self.book.broken.append(f"{sorted(both)[:10]} are accepted and dead-lettered")
        if len(dead) != len(set(dead)):
            self.book.broken.append("a record was dead-lettered twice")
        values = list(self.book.produced.values())
        if len(values) != len(set(values)):
            self.book.broken.append("a value was appended twice")
        await self._http.aclose()

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def _produce(self, number: int) -> None:
        for request in itertools.count():
            if not self._producing:
                return
            values = [next(self._values) for _ in range(self._random.randint(1, 20))]
            records = [{"value": value, "partition": self._random.randrange(PARTITIONS)} for value in values]
            key = f"{number}-{request}" if self._random.random() < 0.7 else None
            if key is None:
                records = [{**record, "partition": 0} for record in records]
            answer = await self._until_answered(
                "POST", f"/v1/topics/{self._name}/records", {"records": records}, key=key, once=key is None
            )
            if answer is not None:
                for value, place in zip(values, answer["records"], strict=True):
                    self.book.produced[place["partition"], place["offset"]] = value
            await asyncio.sleep(self._random.uniform(0, self._pause_s))

    async def _consume(self, member_id: str) -> None:
        body = {"topics": [self._name], "member_id": member_id, "max_records": 20, "max_wait_ms": 300}
        while self._consuming:
            asked_s = time.monotonic()
            answer = await self._until_answered("POST", f"/v1/share-groups/{self._name}/fetch", body, once=True)
            batches = (answer or {}).get("batches", ())
            for batch in batches:
                for record in batch["records"]:
                    place = (batch["partition"], record["offset"])
                    self.book.delivered(place, batch["delivery_count"], record["value"], asked_s)
            for batch in batches:
                await self._settle(member_id, batch)

    async def _settle(self, member_id: str, batch: dict[str, Any]) -> None:
        """Accept, mostly; release, reject or forget sometimes. `delivery_count` makes a repeat safe."""
        chance = self._random.random()
        if chance < 0.05:
            return
        kind = "accept" if chance < 0.85 else "release" if chance < 0.97 else "reject"
        entry = {name: batch[name] for name in ("topic", "partition", "first_offset", "last_offset", "delivery_count")}
        body = {"member_id": member_id, "acknowledgements": [{**entry, "type": kind}]}
        settled = {"applied"}
        while True:
            answer, tries = await self._answered("POST", f"/v1/share-groups/{self._name}/acknowledge", body)
            status = answer["results"][0]["status"]
            if tries > 1 or status == "unknown":
                settled.add("ignored")  # a try whose answer was lost did it, and the start offset has moved on
            if status != "unknown":
                break
        if kind == "accept" and status in settled:
            for offset in range(batch["first_offset"], batch["last_offset"] + 1):
                self.book.was_accepted((batch["partition"], offset), applied=status == "applied")

    async def _until_answered(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, once: bool = False
    ) -> Any:
        """One call, repeated while its outcome is unknown; `once`: None in the place of a repeat."""
        return (await self._answered(method, path, body, key=key, once=once))[0]

    async def _answered(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, once: bool = False
    ) -> tuple[Any, int]:
        """Returns: the answer, and how many tries it took."""
        deadline = asyncio.get_running_loop().time() + GIVE_UP_S
        headers = {} if key is None else {"Idempotency-Key": key}
        for tries in itertools.count(1):
            cause = ""
            try:
                answer = await self._http.request(method, path, json=body, headers=headers)
                document = answer.json()
                if answer.status_code < 300 or "results" in document:
                    return document, tries
                cause = f"{answer.status_code} {document}"
                if not document["retriable"] and document["definite"]:
                    raise AssertionError(f"{method} {path} was refused: {cause}")
            except httpx.TransportError as fault:
                cause = repr(fault)
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"{method} {path} was not answered in {GIVE_UP_S} s: {cause}")
            await asyncio.sleep(0.05)
            if once:
                break
        return None, tries

    async def _dead_letters(self) -> list[tuple[int, int]]:
        found, offset = [], 0
        while True:
            try:
                answer = await self._http.get(
                    f"/v1/topics/dlq.{self._name}/partitions/0/records?offset={offset}&max_records=5000"
                )
            except httpx.TransportError:
                return []
            if answer.status_code != 200:
                return []
            document = answer.json()
            for record in document["records"]:
                headers = record["headers"]
                found.append((int(headers["__dlq.errors.partition"]), int(headers["__dlq.errors.offset"])))
            offset = document["next_offset"]
            if not document["records"] or offset >= document["log_end_offset"]:
                return found
