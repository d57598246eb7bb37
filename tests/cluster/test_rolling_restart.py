"""Three gateways restart one after another while workers come and go: nobody's attempts are used up,
nothing is done twice.

Workers fetch more than they begin, as all that fetch ahead do,
and give the rest back with `begun: false` when they stop.
"""

import itertools
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.cluster.calls import make_topic
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import wait_until

PARTITIONS = 4
WORKERS = 4
PRODUCED = 40
FETCHED = 16
WORKED = 40
"""A worker stops after so many records, in the middle of a fetch, and another takes its place."""
ENOUGH = 100
STOPPED_S = 90.0
DONE_S = 120.0

Place = tuple[int, int]


class Pool:
    """The workers of one group, and what they were told."""

    def __init__(self, urls: list[str], group: str) -> None:
        self._urls = urls
        self._group = group
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self.stopping = threading.Event()
        self.all_produced = threading.Event()
        self.produced = 0
        self.accepted: set[Place] = set()
        self.handed_out: Counter[tuple[int, int, int]] = Counter()
        self.attempts: Counter[int] = Counter()
        self.given_back = 0
        self.wrong: list[str] = []

    def produce(self) -> None:
        """A request every few milliseconds, each repeated until a gateway takes it."""
        try:
            with httpx.Client(timeout=15, verify=False) as http:
                while not self.stopping.wait(0.03):
                    records = [{"value": 0, "partition": each % PARTITIONS} for each in range(PRODUCED)]
                    key = {"Idempotency-Key": f"batch-{self.produced}"}
                    self._call(http, f"/v1/topics/{self._group}/records", {"records": records}, key)
                    self.produced += PRODUCED
        finally:
            self.all_produced.set()

    def work(self) -> None:
        """One worker after another, until all that was produced is accepted."""
        deadline = None
        while not (self.all_produced.is_set() and len(self.accepted) >= self.produced):
            if self.all_produced.is_set():
                deadline = deadline or time.monotonic() + DONE_S
                assert time.monotonic() < deadline, f"{len(self.accepted)} of {self.produced} accepted"
            with httpx.Client(timeout=15, verify=False) as http:
                self._one_worker(http, f"worker-{next(self._ids)}")

    def _one_worker(self, http: httpx.Client, member_id: str) -> None:
        """It stops in the middle of what it has fetched."""
        left = WORKED
        for fetch_id in range(WORKED):
            body = {"topics": [self._group], "member_id": member_id, "max_records": FETCHED, "max_wait_ms": 300}
            batches = self._group_call(http, "fetch", {**body, "fetch_id": str(fetch_id)})["batches"]
            held = self._note(batches)
            self._settle(http, member_id, held[:left], held[left:])
            left -= len(held)
            if left <= 0 or not held:
                return

    def _note(self, batches: list[dict]) -> list[tuple[int, int, int]]:
        held = []
        with self._lock:
            for batch in batches:
                partition, count = batch["partition"], batch["delivery_count"]
                self.attempts[batch["attempt"]] += 1
                for offset in range(batch["first_offset"], batch["last_offset"] + 1):
                    held.append((partition, offset, count))
                    self.handed_out[partition, offset, count] += 1
                    if (partition, offset) in self.accepted:
                        self.wrong.append(f"{partition}@{offset} was accepted, and came again as delivery {count}")
        return held

    def _settle(
        self, http: httpx.Client, member_id: str, done: list[tuple[int, int, int]], left: list[tuple[int, int, int]]
    ) -> None:
        if not done and not left:
            return
        acknowledgements = [
            {
                "topic": self._group,
                "partition": partition,
                "first_offset": offset,
                "last_offset": offset,
                "delivery_count": count,
                **settled,
            }
            for places, settled in ((done, {"type": "accept"}), (left, {"type": "release", "begun": False}))
            for partition, offset, count in places
        ]
        body = {"member_id": member_id, "acknowledgements": acknowledgements}
        deadline = time.monotonic() + STOPPED_S
        while (answer := self._group_call(http, "acknowledge", body))["failed_count"]:
            if time.monotonic() > deadline:
                self.wrong.append(f"not settled: {answer}")
                return
        with self._lock:
            self.accepted.update((partition, offset) for partition, offset, _ in done)
            self.given_back += len(left)

    def _group_call(self, http: httpx.Client, what: str, body: dict) -> dict:
        return self._call(http, f"/v1/share-groups/{self._group}/{what}", body, {})

    def _call(self, http: httpx.Client, path: str, body: dict, headers: dict[str, str]) -> dict:
        """Call any gateway; while one does not answer, or answers 503, repeat the same at the next."""
        deadline = time.monotonic() + STOPPED_S
        for url in itertools.cycle(random.sample(self._urls, len(self._urls))):
            assert time.monotonic() < deadline, "no gateway answers"
            try:
                response = http.post(f"{url}{path}", json=body, headers=headers)
            except httpx.TransportError:
                continue
            if response.status_code != 503:
                assert response.status_code == 200, response.text
                break
        answer: dict = response.json()
        return answer


def test_a_rolling_restart_uses_up_no_attempts_and_repeats_nothing_accepted(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    make_topic(clients[0], name, PARTITIONS)
    pool = Pool([gateway.url for gateway in cluster.gateways], name)
    with ThreadPoolExecutor(WORKERS + 1) as threads:
        running = [threads.submit(pool.produce), *(threads.submit(pool.work) for _ in range(WORKERS))]
        try:
            for gateway in cluster.gateways:
                before = len(pool.accepted)
                wait_until(lambda at_least=before + ENOUGH: len(pool.accepted) >= at_least)
                assert gateway.process is not None
                gateway.process.send_signal(signal.SIGTERM)
                assert gateway.process.wait(STOPPED_S) == 0
                cluster.start()
        finally:
            pool.stopping.set()
        for each in running:
            each.result(2 * DONE_S)
    assert pool.wrong == []
    assert len(pool.accepted) == pool.produced
    assert [place for place, times in pool.handed_out.items() if times > 1] == []
    assert max(pool.attempts) <= 2, pool.attempts
    assert pool.given_back > ENOUGH
