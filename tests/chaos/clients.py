"""Producers and consumers that record each of their requests and answers, through random gateways."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import httpx

from tests.chaos.history import Acknowledge, Fetch, History, LetGo, Outcome, Produce, Range, Reset, Span

ANSWER_S: Final = 6.0
"""How long a client waits for an answer, beyond the time that the service may wait."""
GIVE_UP_S: Final = 180.0
"""Longer than any test stops all processes."""
HANG_UPS: Final = 0.06
COLD: Final = 0.2
"""How many of the requests come over a connection of their own, as from a client that has just begun."""
REPEATS: Final = 0.6
SETTLE_S: Final = 12.0
"""How long a client repeats an acknowledgement to learn its outcome."""
NAMES: Final = ("topic", "partition", "first_offset", "last_offset", "delivery_count")


class Answer:
    """The result of one request. `document` is None without an answer; `outcome`: of the whole request."""

    def __init__(self, span: Span, gateway: str, status: int, document: Any, *, never_sent: bool = False) -> None:
        self.span = span
        self.gateway = gateway
        self.document = document
        self.ok = document is not None and 200 <= status < 300
        refused = never_sent or (document is not None and document.get("definite", False))
        self.outcome = Outcome.OK if self.ok else Outcome.REFUSED if refused else Outcome.UNKNOWN

    @property
    def code(self) -> int:
        return 0 if self.document is None else self.document.get("kafka_code", 0)


class Login(Protocol):
    """The key of each request. It hears which ones were refused."""

    def key(self) -> str: ...
    def refused(self, key: str, gateway: str) -> None: ...


class Gateways:
    """Sends requests, each to a gateway drawn at random. `login`: the key that each of them has."""

    def __init__(self, urls: Sequence[str], seed: str, login: Login | None = None) -> None:
        self._urls = urls
        self._login = login
        self._random = random.Random(seed)
        self._http = httpx.AsyncClient(timeout=None, verify=False, limits=httpx.Limits(keepalive_expiry=2.5))
        self._cold = httpx.AsyncClient(timeout=None, verify=False, limits=httpx.Limits(max_keepalive_connections=0))

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        wait_s: float = 0,
        headers: dict[str, str] | None = None,
        hang_up: bool = False,
    ) -> Answer:
        """One request. `wait_s`: how long the service may wait;
        `hang_up`: disconnect before the answer if it takes a moment."""
        index = self._random.randrange(len(self._urls))
        gateway = f"gateway-{index}"
        seconds = self._random.uniform(0, 0.1) if hang_up else wait_s + ANSWER_S
        started_s = time.monotonic()
        status, document, never_sent = 0, None, False
        http = self._cold if self._random.random() < COLD else self._http
        key = None if self._login is None else self._login.key()
        if key is not None:
            headers = {**(headers or {}), "Authorization": f"Bearer {key}"}
        try:
            async with asyncio.timeout(seconds):
                response = await http.request(method, self._urls[index] + path, json=body, headers=headers)
            status = response.status_code
            document = response.json() if response.content else {}
        except httpx.ConnectError:
            never_sent = True
            await asyncio.sleep(0.05)
        except (httpx.HTTPError, TimeoutError, ValueError, OSError):
            document = None
        if status == 401 and self._login is not None and key is not None:
            self._login.refused(key, gateway)
        return Answer(Span(started_s, time.monotonic()), gateway, status, document, never_sent=never_sent)

    async def until_answered(
        self, method: str, path: str, body: Any = None, *, done: int | None = None, give_up_s: float = GIVE_UP_S
    ) -> Answer:
        """Repeat a request until it succeeds. The answer's span covers all tries.

        `done`: the Kafka code of a repeat whose first try succeeded. Raises: AssertionError.
        """
        started_s = time.monotonic()
        while True:
            answer = await self.ask(method, path, body, wait_s=20)
            if answer.ok or (done is not None and answer.code == done):
                answer.span = Span(started_s, answer.span.ended_s)
                return answer
            if time.monotonic() - started_s > give_up_s:
                raise AssertionError(f"{method} {path} is not answered: {answer.document}")
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        await self._http.aclose()
        await self._cold.aclose()


class Producer:
    """Appends unique values; under an Idempotency-Key a request is repeated until it is answered."""

    def __init__(
        self,
        name: str,
        gateways: Gateways,
        history: History,
        topics: dict[str, int],
        values: "itertools.count[int]",
        keyed: float = 0.7,
    ) -> None:
        """`keyed`: how many of the requests have a key."""
        self._name = name
        self._keyed = keyed
        self._random = random.Random(name)
        self._gateways = gateways
        self._history = history
        self._topics = topics
        self._values = values
        self.stopping = False

    async def run(self) -> None:
        for number in itertools.count():
            if self.stopping:
                return
            await self._request(f"{self._name}-{number}" if self._random.random() < self._keyed else None)
            await asyncio.sleep(self._random.uniform(0.02, 0.2))

    async def _request(self, key: str | None) -> None:
        draw = self._random
        topic = draw.choice(list(self._topics))
        values = tuple(next(self._values) for _ in range(draw.randint(1, 12)))
        spread = draw.random() < 0.4 and (key is not None or not self._history.in_kafka)
        partition = draw.randrange(self._topics[topic])
        records = [
            {"value": value, "partition": draw.randrange(self._topics[topic]) if spread else partition}
            for value in values
        ]
        headers = None if key is None else {"Idempotency-Key": key}
        hang_up = draw.random() < HANG_UPS
        while True:
            answer = await self._gateways.ask(
                "POST", f"/v1/topics/{topic}/records", {"records": records}, headers=headers, hang_up=hang_up
            )
            places = (
                [(place["partition"], place["offset"]) for place in answer.document["records"]] if answer.ok else []
            )
            self._history.produced.append(Produce(answer.span, topic, values, answer.outcome, tuple(places)))
            if answer.ok or key is None:
                return
            hang_up = False
            await asyncio.sleep(0.1)


class Consumer:
    """One member of one group: fetches in every way there is, and settles what it gets in every way there is."""

    def __init__(
        self,
        name: str,
        group: str,
        gateways: Gateways,
        history: History,
        topics: dict[str, int],
        *,
        in_session: bool,
        elsewhere: Callable[[str, str], Range | None],
    ) -> None:
        self.name = name
        self.group = group
        self._random = random.Random(f"{name}")
        self._gateways = gateways
        self._history = history
        self._topics = topics
        self._path = f"/v1/share-groups/{group}"
        self._in_session = in_session
        self._epoch = 0
        self._fetches = itertools.count()
        self._to_settle: list[dict[str, Any]] = []
        self._elsewhere = elsewhere
        self.latest: Range | None = None
        self.draining = False
        """Accept every record that is delivered: the run is about to end."""
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            ranges = await self._fetch()
            for range_ in ranges:
                self.latest = range_
                await self._settle(self._decide(range_))

    # Fetching

    async def _fetch(self) -> Sequence[Range]:
        draw = self._random
        with_id = draw.random() < REPEATS
        body: dict[str, Any] = {
            "member_id": self.name,
            "max_records": draw.choice((1, 5, 20, 50)),
            "max_wait_ms": draw.choice((0, 100, 500, 1500)),
        }
        if draw.random() < 0.3:
            body["acquire_mode"] = "batch_optimized"
        if draw.random() < 0.3:
            body["batch_size"] = draw.randint(1, 10)
        if with_id:
            body["fetch_id"] = f"f{next(self._fetches)}"
        if self._in_session:
            await self._session(body)
        else:
            self._name_partitions(body)
        acknowledgements: list[dict[str, Any]] = []
        if self._to_settle and body.get("share_session_epoch") != 0:
            acknowledgements, self._to_settle = self._to_settle, []
            body["acknowledgements"] = acknowledgements
        hang_up = not self.draining and draw.random() < HANG_UPS
        for _ in range(3 if with_id and not self._in_session else 1):
            answer, ranges = await self._fetch_once(body, hang_up=hang_up)
            acknowledgements = self._note(answer, acknowledgements, "acknowledgement_results")
            if answer.ok:
                break
            if acknowledgements:
                body["acknowledgements"] = acknowledgements
            else:
                body.pop("acknowledgements", None)
            hang_up = False
            await asyncio.sleep(draw.uniform(0, 0.3))
        if self._in_session:
            self._epoch = self._epoch + 1 if answer.ok and body["share_session_epoch"] >= 0 else 0
        await self._settle(acknowledgements)
        return ranges

    def _name_partitions(self, body: dict[str, Any]) -> None:
        draw = self._random
        if draw.random() < 0.7:
            body["topics"] = list(self._topics)
            return
        topic = draw.choice(list(self._topics))
        some = draw.sample(range(self._topics[topic]), draw.randint(1, self._topics[topic]))
        body["topic_partitions"] = [{"topic": topic, "partitions": some}]

    async def _session(self, body: dict[str, Any]) -> None:
        """Open, continue, or first close the session, which releases held records."""
        if self._epoch > 0 and self._random.random() < 0.08:
            closing = {"member_id": self.name, "share_session_epoch": -1, "max_wait_ms": 0}
            answer = await self._gateways.ask("POST", f"{self._path}/fetch", closing)
            self._history.let_go.append(LetGo(answer.span, self.group, self.name))
            self._epoch = 0
        body["share_session_epoch"] = self._epoch
        if self._epoch == 0:
            body["topics"] = list(self._topics)

    async def _fetch_once(self, body: dict[str, Any], *, hang_up: bool) -> tuple[Answer, Sequence[Range]]:
        answer = await self._gateways.ask(
            "POST", f"{self._path}/fetch", body, wait_s=body["max_wait_ms"] / 1000, hang_up=hang_up
        )
        ranges = tuple(
            Range(
                *(batch[name] for name in NAMES),
                values=tuple((record["offset"], record["value"]) for record in batch["records"]),
            )
            for batch in (answer.document["batches"] if answer.ok else ())
        )
        self._history.fetched.append(
            Fetch(answer.span, self.group, self.name, body.get("fetch_id"), answer.gateway, answer.outcome, ranges)
        )
        if body.get("share_session_epoch") == 0:
            self._history.let_go.append(LetGo(answer.span, self.group, self.name))
        return answer, ranges

    # Settling

    def _decide(self, range_: Range) -> list[dict[str, Any]]:
        """The acknowledgements to send now; others wait for the next fetch, or are never sent."""
        draw = self._random
        entry: dict[str, Any] = {name: getattr(range_, name) for name in NAMES}
        if self.draining:
            return [{**entry, "type": "accept"}]
        chance = draw.random()
        if chance < 0.03:
            return []
        if chance < 0.06:
            foreign = self._elsewhere(self.group, self.name)
            stolen = [{name: getattr(foreign, name) for name in NAMES} | {"type": "accept"}] if foreign else []
            return [*stolen, {**entry, "type": "accept"}]
        if chance < 0.12:
            offsets = range(range_.first_offset, range_.last_offset + 1)
            return [{**entry, "types": [draw.choice(("accept", "accept", "release", "reject")) for _ in offsets]}]
        if chance < 0.18:
            return [{**entry, "type": "renew"}, {**entry, "type": "accept"}]
        if chance < 0.24:
            return [{**entry, "type": "release", "delay_ms": draw.randint(50, 1500)}]
        if chance < 0.26:
            return [{**entry, "type": "release", "begun": False, "delay_ms": draw.choice((0, 700))}]
        if chance < 0.28:
            return [{**entry, "type": "release", "begun": False}]
        if chance < 0.34:
            return [{**entry, "type": "release"}]
        if chance < 0.38:
            return [{**entry, "type": "reject", "reason": "drawn"}]
        if chance < 0.56:
            self._to_settle.append({**entry, "type": "accept"})
            return []
        return [{**entry, "type": "accept"}]

    async def _settle(self, acknowledgements: Sequence[dict[str, Any]]) -> None:
        """Send them one after the other, each until its outcome is known: `delivery_count` makes a repeat safe."""
        for acknowledgement in acknowledgements:
            left = [acknowledgement]
            until_s = time.monotonic() + SETTLE_S
            while left and time.monotonic() < until_s and not (self.stopping and self._random.random() < 0.2):
                body = {"member_id": self.name, "acknowledgements": left}
                hang_up = not self.draining and self._random.random() < HANG_UPS
                answer = await self._gateways.ask("POST", f"{self._path}/acknowledge", body, hang_up=hang_up)
                left = self._note(answer, left, "results")
                if left:
                    await asyncio.sleep(0.05)

    def _note(self, answer: Answer, sent: Sequence[dict[str, Any]], results_in: str) -> list[dict[str, Any]]:
        """Record the results of acknowledgements. Returns: those to send again."""
        results = (answer.document or {}).get(results_in)
        again = []
        for index, entry in enumerate(sent):
            if results and len(results) == len(sent):
                status, code = results[index]["status"], results[index].get("kafka_code", 0)
                retriable = results[index].get("retriable", False)
            else:
                status = "failed" if answer.outcome is Outcome.REFUSED else "unknown"
                code, retriable = answer.code, True
            kinds = tuple(entry["types"]) if "types" in entry else (entry["type"],)
            self._history.acknowledged.append(
                Acknowledge(
                    answer.span,
                    self.group,
                    self.name,
                    *(entry[name] for name in NAMES),
                    kinds=kinds,
                    gateway=answer.gateway,
                    status="applied" if status == "already_applied" else status,
                    kafka_code=code,
                    delay_ms=entry.get("delay_ms"),
                    begun=entry.get("begun", True),
                )
            )
            if status == "unknown" or (status == "failed" and retriable):
                again.append(entry)
        return again


async def reset(gateways: Gateways, history: History, group: str, offsets: dict[str, int]) -> None:
    """Reset a group's offsets, even while it is in use. `offsets`: by topic, kept within the log."""
    body = {"to": "offset", "force": True, "topics": [{"topic": t, "offset": offset} for t, offset in offsets.items()]}
    started_s = time.monotonic()
    while True:
        answer = await gateways.until_answered("POST", f"/v1/share-groups/{group}/offsets/reset", body)
        if answer.document["failed_count"] == 0:
            break
    starts = {
        (entry["topic"], partition["partition"]): partition["start_offset"]
        for entry in answer.document["topics"]
        for partition in entry["partitions"]
    }
    history.resets.append(Reset(Span(started_s, answer.span.ended_s), group, starts))
