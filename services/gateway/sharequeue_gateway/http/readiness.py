"""The answer of `/readyz`: unavailable only where another gateway would do better.

    lacks nothing ──────────────────────────────────────────────────────────────▶ ready
    stopping, or without any dependency ────────────────────────────────────────▶ unavailable
    lacks something for LASTING_S ──▶ asks others ┬─ one of them has it ────────▶ unavailable
                                                  ├─ the lease ended long ago,
                                                  │  and none of them answers ──▶ unavailable
                                                  └─ otherwise ─────────────────▶ degraded

If all gateways lose a dependency together, a load balancer keeps all of them: what they still do works, and the other
calls are answered with what is missing. With `strict`, a gateway asks no other one, and is unavailable without the
record log or the share coordinator. The gateways ask each other strictly.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Final

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.operations import Readiness, ReadinessQuery
from sharequeue.service.readiness import ROUNDABOUT_CHECK_S, Check, faults
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.access.guard import AccessGuard
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue
from sharequeue_gateway.locks.lock_store import LockStore
from sharequeue_gateway.producing import log_metrics
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.transactions.transactions import PostgresTransactions

POSTGRESQL: Final = "postgresql"
REDIS: Final = "redis"
GROUP_COORDINATOR: Final = "group coordinator"
SHARE_COORDINATOR: Final = "share coordinator"
ACCESS: Final = "keys and rights"
"""Of a gateway that asks for keys."""
GATEWAY: Final = "gateway"
DEPENDENCIES: Final = (POSTGRESQL, REDIS, GROUP_COORDINATOR, SHARE_COORDINATOR)
NEEDED: Final = {
    "produce": {POSTGRESQL, ACCESS},
    "fetch": {POSTGRESQL, SHARE_COORDINATOR, ACCESS},
    "acknowledge": {SHARE_COORDINATOR},
    "manage": {POSTGRESQL, GROUP_COORDINATOR, ACCESS},
}
"""What each kind of call needs. Topics and groups that a gateway knows are served without the group coordinator."""
LOGGED: Final = {"produce", "fetch"}
"""They need all stores of the record log, too."""
LASTING_S: Final = 2.0
"""On a machine that is overloaded every dependency is late now and then, at all gateways."""
ASK_S: Final = 0.3
"""The time that other gateways have to answer: the whole answer comes within a second."""


@dataclass(eq=False)
class ReadinessCheck:
    """Asks the dependencies of a gateway, and other gateways where one is missing. `stores`: further ones of the record
    log."""

    _database: LogDatabase
    _lock_timers: LockStore
    _metadata: Metadata
    _share_coordinator: ShareStateClient
    _dead_letters: DeadLetterQueue
    _cluster: Cluster
    _transactions: PostgresTransactions
    _guard: AccessGuard | None
    stores: InitVar[Mapping[str, Callable[[], Awaitable[None]]]]
    _missing_since: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self, stores: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        ask_share_coordinator = partial(self._share_coordinator.check, deadline_s=ROUNDABOUT_CHECK_S)
        self._checks = {
            POSTGRESQL: Check(self._database.health.check),
            SHARE_COORDINATOR: Check(ask_share_coordinator, ROUNDABOUT_CHECK_S),
            **{name: Check(ask) for name, ask in stores.items()},
        }
        self._dependencies = (*DEPENDENCIES, *stores)
        self._needed = {kind: needed | (stores.keys() if kind in LOGGED else set()) for kind, needed in NEEDED.items()}

    async def __call__(self, strict: bool) -> Readiness:
        lacking = await self._lacking()
        missing = [name for name in (*self._dependencies, ACCESS) if name in lacking]
        if self._cluster.leaving:
            lacking[GATEWAY] = "is stopping"
        if strict:
            unavailable = not lacking.keys().isdisjoint(self._checks)
        elif self._cluster.leaving:
            unavailable = True
        else:
            lasting = self._lasting(missing)
            unavailable = bool(lasting) and await self._others_do_better(lasting)
        return Readiness(
            status="unavailable" if unavailable else "degraded" if lacking else "ready",
            dependencies={**dict.fromkeys(self._dependencies, "ok"), **lacking, **self._told()},
            lacks=list(lacking),
            works=[kind for kind, needed in self._needed.items() if needed.isdisjoint(missing)],
            gateways=[node.node_id for node in self._cluster.generation.nodes],
        )

    def _lasting(self, missing: Sequence[str]) -> list[str]:
        """The dependencies among these that every look has missed for LASTING_S."""
        now_s = time.monotonic()
        self._missing_since = {name: self._missing_since.get(name, now_s) for name in missing}
        return [name for name, since_s in self._missing_since.items() if now_s - since_s >= LASTING_S]

    async def _lacking(self) -> dict[str, str]:
        """Return what is wrong, by dependency."""
        lacking = await faults(**self._checks)
        if self._lock_timers.degraded:
            lacking[REDIS] = f"{self._lock_timers.trouble}; holders and delivery counts do not survive a crash"
        if not self._metadata.reachable():
            lacking[GROUP_COORDINATOR] = "does not answer: known topics and groups are still served"
        elif self._cluster.lost_lease():
            lacking[GROUP_COORDINATOR] = "does not renew the lease of this gateway"
        if self._guard is not None and (fault := self._guard.fault()) is not None:
            lacking[ACCESS] = fault
        if self._dead_letters.stuck():
            lacking["dead letters"] = "cannot be written now; GET in-flight of the group says why"
        return lacking

    def _told(self) -> dict[str, str]:
        """Facts worth knowing that stop no call, and so do not change the status."""
        told = {
            "transactions": log_metrics.told(self._transactions.open_now, names=self._guard is None),
            "time line": self._database.time_line.told,
            "eviction": self._lock_timers.eviction.told,
            "authentication": None if self._guard is None else self._guard.told(),
        }
        return self._database.health.told() | {name: fact for name, fact in told.items() if fact is not None}

    async def _others_do_better(self, missing: Sequence[str]) -> bool:
        """Return whether another gateway has a dependency that is missing here."""
        others = self._cluster.others()
        if not others:
            return False
        if set(self._dependencies) <= set(missing):
            return True
        strictly = ReadinessQuery(strict=True)
        answers = await asyncio.gather(*(self._cluster.asked(node, apis.READYZ, strictly, ASK_S) for node in others))
        heard = [answer for answer in answers if answer is not None and GATEWAY not in answer.lacks]
        if not heard:
            return self._cluster.lost_lease()
        return any(answer.dependencies.get(name, "ok") == "ok" for answer in heard for name in missing)
