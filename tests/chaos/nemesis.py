"""Faults of the services while they are used: a plan drawn from a seed, and the class that carries it out.

It is also the supervisor: a service that ended by itself is started again, as compose does.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from sharequeue.stack.stack import ServiceProcess, Stack
from sharequeue.stack.system_user import EmbeddedError
from tests.chaos.history import History, Span, Trouble
from tests.kafka_log.brokers import CAN_CUT, Brokers

STORES: Final = ("PostgreSQL", "Redis")
START_S: Final = 30.0
TURN_S: Final = 0.1
HOUR_S: Final = 3600
BROKER: Final = "broker "
"""The name of a broker of Kafka, before its number."""
OF_BROKERS: Final = ("kill", "pause", "cut off") if CAN_CUT else ("kill", "pause")
BROKER_AWAY_S: Final = 9.0
"""The longest pause of a broker: Kafka takes its partitions from it after 6 s."""
BROKER_BACK_S: Final = 10.0
"""How long a broker takes to start."""


class Step(NamedTuple):
    """`at_s` from the beginning on; the victim is back after `hold_s`."""

    at_s: float
    victim: str
    action: str
    """`kill`, `pause` or `restart`; of a broker also `cut off`."""
    hold_s: float


def plan(seed: int, seconds: float, services: Sequence[str], *, stores: bool, pause_s: float) -> list[Step]:
    """The faults and their times. `pause_s`: the longest pause, above every lease."""
    draw = random.Random(f"nemesis {seed}")
    steps: list[Step] = []
    free_s: dict[str, float] = {}
    at_s = draw.uniform(0.3, 1)
    while at_s < seconds:
        victims = [name for name in (*services, *(STORES if stores else ())) if free_s.get(name, 0) <= at_s]
        if not victims:  # each of them was hit a moment ago
            at_s += 0.5
            continue
        victim = draw.choice(victims)
        if victim.startswith(BROKER):  # one at a time: a majority of them serves
            action = draw.choice(OF_BROKERS)
            hold_s = draw.uniform(0, 2) if action == "kill" else draw.uniform(0.2, BROKER_AWAY_S)
            steps.append(Step(round(at_s, 2), victim, action, round(hold_s, 2)))
            others = (name for name in services if name.startswith(BROKER))
            free_s.update(dict.fromkeys(others, at_s + hold_s + BROKER_BACK_S))
            at_s += draw.uniform(0.4, 2.2)
            continue
        action = draw.choice(("kill", "restart") if victim == "PostgreSQL" else ("kill", "pause", "restart"))
        hold_s = draw.uniform(0.2, pause_s) if action == "pause" else draw.uniform(0, 2)
        steps.append(Step(round(at_s, 2), victim, action, round(hold_s, 2)))
        free_s[victim] = at_s + hold_s + 2.5  # it is to serve for a moment before the next blow
        at_s += draw.uniform(0.4, 2.2)
    return steps


class Nemesis:
    """Carries a plan out on a stack. `brokers`: those of its record log, if that is Kafka."""

    def __init__(self, stack: Stack, history: History, brokers: Brokers | None = None) -> None:
        self._stack = stack
        self._brokers = brokers
        self._history = history
        self._down: set[str] = set()
        self._log_from: dict[str, int] = {}
        self._wall_s = time.time() - time.monotonic()
        self.complaints: list[str] = []
        """Events that no service may cause, whatever happens to the others: each is a failure of the run."""

    async def run(self, steps: Sequence[Step]) -> None:
        """Carry out all steps. Every victim runs again afterwards."""
        started_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for step in steps:
                await asyncio.sleep(max(0.0, started_s + step.at_s - time.monotonic()))
                group.create_task(self._carry_out(step))

    async def _carry_out(self, step: Step) -> None:
        victim = BROKER if step.victim.startswith(BROKER) else step.victim  # one broker at a time: a majority serves
        if victim in self._down:
            return  # it took longer than planned
        started_s = time.monotonic()
        self._down.add(victim)
        try:
            if step.victim in STORES:
                await self._break_store(step)
            elif step.victim.startswith(BROKER):
                await self._break_broker(step)
            else:
                await self._break_service(self._stack.service(step.victim), step)
        finally:
            self._down.discard(victim)
        what = f"{step.action} {step.victim} {step.hold_s} s"
        self._history.troubles.append(Trouble(Span(started_s, time.monotonic()), what))

    async def _break_service(self, service: ServiceProcess, step: Step) -> None:
        if not service.running() or service.process is None:
            return
        if step.action == "pause":
            service.process.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(step.hold_s)
            finally:
                service.process.send_signal(signal.SIGCONT)
            return
        if step.action == "kill":
            await asyncio.to_thread(service.kill)
        else:
            stopped_s = time.monotonic()
            await asyncio.to_thread(service.stop)
            code, seconds = service.process.returncode, time.monotonic() - stopped_s
            # one that has not begun to serve may end by SIGTERM, or because a store is away
            if code not in (0, -signal.SIGTERM) and self._has_served(self._entries(service)):
                self.complaints.append(f"{service.name} ended with {code} {seconds:.1f} s after SIGTERM")
        await asyncio.sleep(step.hold_s)
        self._start(service)

    async def _break_broker(self, step: Step) -> None:
        brokers, node = self._brokers, int(step.victim.removeprefix(BROKER))
        assert brokers is not None
        if step.action == "kill":
            await asyncio.to_thread(brokers.kill, node)
            await asyncio.sleep(step.hold_s)
            await asyncio.to_thread(brokers.start, node)
            return
        away, back = (brokers.pause, brokers.resume) if step.action == "pause" else (brokers.cut_off, brokers.join)
        away(node)
        try:
            await asyncio.sleep(step.hold_s)
        finally:
            back(node)

    async def _break_store(self, step: Step) -> None:
        store = self._stack.postgres if step.victim == "PostgreSQL" else self._stack.redis
        assert store is not None
        if step.action == "pause":
            pid = store.pid
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(step.hold_s)
            finally:
                os.kill(pid, signal.SIGCONT)
            return
        await asyncio.to_thread(store.kill if step.action == "kill" else store.stop)
        await asyncio.sleep(step.hold_s)
        until_s = time.monotonic() + START_S
        while True:
            store.launch()
            try:
                await asyncio.to_thread(store.wait)
                return
            except EmbeddedError:  # the killed one still occupies its memory
                if time.monotonic() > until_s:
                    raise
                await asyncio.sleep(TURN_S)

    async def supervise(self) -> None:
        """Restart each service that ended by itself, again and again:
        one may fail to start before all others are back."""
        while True:
            await asyncio.sleep(TURN_S)
            for service in self._stack.services:
                if service.name not in self._down and not service.running():
                    self._note_end(service)
                    self._start(service)

    def _start(self, service: ServiceProcess) -> None:
        self._log_from[service.name] = service.log_file.stat().st_size
        service.start()

    def _note_end(self, service: ServiceProcess) -> None:
        """A service may end at its start while its dependencies are away; a service that serves may not."""
        now_s = time.monotonic()
        self._history.troubles.append(Trouble(Span(now_s, now_s), f"{service.name} ended by itself"))
        entries = self._entries(service)
        if self._has_served(entries):
            self.complaints.append(f"{service.name} ended by itself: {entries[-1]}")

    def _entries(self, service: ServiceProcess) -> list[dict[str, str]]:
        """What a service has logged since its start."""
        log = service.log_file.read_bytes()[self._log_from.get(service.name, 0) :].decode(errors="replace")
        return [entry for line in log.splitlines() if (entry := _entry(line)) is not None]

    @staticmethod
    def _has_served(entries: Sequence[dict[str, str]]) -> bool:
        return any(entry["message"] == "listening" for entry in entries)

    def windows_without_redis(self, logs: Path) -> list[Span]:
        """The times without Redis, from the logs of the gateways: until it was back, or the gateway had ended.

        The clock of a gateway may be wrong by whole hours.
        """
        windows = []
        for log in sorted(logs.glob("gateway*.log")):
            since_s: float | None = None
            entries = [entry for line in log.read_text(errors="replace").splitlines() if (entry := _entry(line))]
            wrong_s = round((_time_s(entries[-1]) - log.stat().st_mtime) / HOUR_S) * HOUR_S if entries else 0
            for entry in entries:
                at_s = _time_s(entry) - wrong_s - self._wall_s
                if entry["message"].startswith("Redis ") and entry["message"].endswith(
                    "; a crash of this gateway would forget locks"
                ):
                    since_s = at_s if since_s is None else since_s
                elif since_s is not None and entry["message"] in ("Redis is back", "registered"):
                    windows.append(Span(since_s, at_s))
                    since_s = None
            if since_s is not None:
                windows.append(Span(since_s, time.monotonic()))
        return windows


def _time_s(entry: dict[str, str]) -> float:
    """The time of a log line, by the clock of the machine that wrote it."""
    return datetime.fromisoformat(entry["time"]).timestamp()


def _entry(line: str) -> dict[str, str] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "message" in entry else None
