"""A rolling restart of two gateways behind a proxy, which spreads calls by turns, while producers and workers go on.

Each caller repeats a failed call once, as it is. No repeat fails, and every record is accepted once. No gateway refuses
as definite what the other one could have taken: a call is repeated because its connection ended, or because a gateway
that stops has asked the other one for a fetch and does not know what became of it.
"""

import itertools
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx

from sharequeue.stack.stack import Stack
from tests.http.calls import HANG_S, wait_until

TOPIC: Final = "rolling"
PARTITIONS: Final = 4
CALLERS: Final = 2
"""There are two producers and two workers."""
BATCH: Final = 10
BETWEEN: Final = 100
"""Calls that succeed between two restarts."""
REST_S: Final = 0.01
AVOIDED_S: Final = 3.0
"""Longer than `fail_timeout`: nginx must not avoid both gateways."""


class Callers:
    """What they called through a client of the proxy, and were answered."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.stopping = threading.Event()
        self.all_produced = threading.Event()
        self.over_s: float | None = None
        """When all that was produced must be accepted."""
        self.produced = 0
        self.accepted: Counter[tuple[int, int]] = Counter()
        self.calls = 0
        self.repeated: list[str] = []
        self.refused: list[str] = []
        """Of `repeated` and `failed`: those that a gateway has refused as definite."""
        self.failed: list[str] = []
        self._lock = threading.Lock()

    def produce(self, name: str) -> None:
        for number in itertools.count():
            if self.stopping.wait(REST_S):
                return
            records = [{"value": number, "partition": place % PARTITIONS} for place in range(BATCH)]
            key = {"Idempotency-Key": f"{name}-{number}"}
            if self._call(f"/v1/topics/{TOPIC}/records", {"records": records}, key):
                with self._lock:
                    self.produced += BATCH

    def work(self, name: str) -> None:
        for number in itertools.count():
            if self.all_produced.is_set() and (self.failed or len(self.accepted) >= self.produced):
                return
            assert self.over_s is None or time.monotonic() < self.over_s, f"{len(self.accepted)} of {self.produced}"
            fetch = {"topics": [TOPIC], "member_id": name, "max_wait_ms": 500, "fetch_id": str(number)}
            answer = self._call(f"/v1/share-groups/{TOPIC}/fetch", fetch)
            if answer and answer["batches"]:
                self._accept(name, answer["batches"])

    def _accept(self, name: str, batches: list[dict[str, Any]]) -> None:
        accepts = [
            {name: of for name, of in batch.items() if name != "records"} | {"type": "accept"} for batch in batches
        ]
        if self._call(f"/v1/share-groups/{TOPIC}/acknowledge", {"member_id": name, "acknowledgements": accepts}):
            with self._lock:
                for each in accepts:
                    for offset in range(each["first_offset"], each["last_offset"] + 1):
                        self.accepted[each["partition"], offset] += 1

    def _call(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> dict[str, Any] | None:
        """The answer; of the repeat, if the call fails. None if that fails too."""
        for fails in (self.repeated, self.failed):
            try:
                answer = self._http.post(path, json=body, headers=headers)
            except httpx.TransportError as fault:
                fails.append(f"{path}: {fault!r}")
                continue
            if answer.status_code == 200 and not answer.json().get("failed_count"):
                self.calls += 1
                found: dict[str, Any] = answer.json()
                return found
            fails.append(f"{path}: {answer.status_code} {answer.text}")
            kind = answer.headers.get("Content-Type", "")
            if kind.startswith("application/problem+json") and answer.json()["definite"]:
                self.refused.append(fails[-1])
        return None


def check_rolling_restart(client: httpx.Client, stack: Stack) -> None:
    """`client`: of the proxy."""
    client.delete(f"/v1/topics/{TOPIC}")
    client.post("/v1/topics", json={"name": TOPIC, "partitions": PARTITIONS}).raise_for_status()
    gateways = [service for service in stack.services if service.name.startswith("gateway")]
    callers = Callers(client)
    with ThreadPoolExecutor(2 * CALLERS) as threads:
        producing = [threads.submit(callers.produce, f"p{number}") for number in range(CALLERS)]
        working = [threads.submit(callers.work, f"w{number}") for number in range(CALLERS)]
        try:
            for gateway in gateways * 2:
                enough = callers.calls + BETWEEN
                wait_until(lambda enough=enough: callers.calls >= enough, HANG_S)
                gateway.stop()
                assert gateway.process is not None
                assert gateway.process.returncode == 0
                gateway.start()
                wait_until(gateway.ready, HANG_S)
                time.sleep(AVOIDED_S)
        finally:
            callers.stopping.set()
            for each in producing:
                each.result(HANG_S)
            callers.over_s = time.monotonic() + HANG_S
            callers.all_produced.set()
            for each in working:
                each.result(2 * HANG_S)
    assert callers.failed == [], callers.failed[:3]
    assert callers.refused == [], callers.refused[:3]
    assert len(callers.accepted) == callers.produced
    assert set(callers.accepted.values()) == {1}
