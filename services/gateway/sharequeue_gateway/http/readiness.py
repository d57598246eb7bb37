"""The answer of `/readyz`: unavailable without the record log or the share coordinator, degraded without the rest."""

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import CoordinatorNotAvailable
from sharequeue.protocol.messages.operations import Readiness
from sharequeue.service.readiness import ROUNDABOUT_CHECK_S, Check, faults
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue
from sharequeue_gateway.locks.lock_store import LockTimers
from sharequeue_gateway.record_log.database import LogDatabase


class ReadinessCheck:
    """Asks the dependencies of a gateway."""

    def __init__(
        self,
        database: LogDatabase,
        lock_timers: LockTimers,
        metadata: Metadata,
        share_coordinator: ShareStateClient,
        dead_letters: DeadLetterQueue,
        cluster: Cluster,
    ) -> None:
        self._lock_timers = lock_timers
        self._metadata = metadata
        self._share_coordinator = share_coordinator
        self._dead_letters = dead_letters
        self._cluster = cluster
        self._postgres_check = Check(database.health.check)
        self._share_check = Check(self._ask_share_coordinator, ROUNDABOUT_CHECK_S)

    async def _ask_share_coordinator(self) -> None:
        answer: Readiness = await self._share_coordinator.call(apis.READYZ, deadline_s=ROUNDABOUT_CHECK_S, retry=False)
        if answer.status == "unavailable":
            raise CoordinatorNotAvailable(f"unavailable: {_faults_of(answer)}")

    async def __call__(self) -> Readiness:
        needed = await faults(
            **{"postgresql": self._postgres_check, "share coordinator": self._share_check},
        )
        lacking = {}
        if self._lock_timers.degraded:
            lacking["redis"] = (
                f"{self._lock_timers.trouble}; locks end by the sweep, delivery counts do not survive a crash"
            )
        if not self._metadata.reachable():
            lacking["group coordinator"] = "does not answer: known topics and groups are still served"
        if self._dead_letters.stuck():
            lacking["dead letters"] = "cannot be written now; GET in-flight of the group says why"
        dependencies = {"postgresql": "ok", "redis": "ok", "group coordinator": "ok", "share coordinator": "ok"}
        return Readiness(
            status="unavailable" if needed else "degraded" if lacking else "ready",
            dependencies={**dependencies, **lacking, **needed},
            gateways=[node.node_id for node in self._cluster.generation.nodes],
        )


def _faults_of(answer: Readiness) -> str:
    return "; ".join(f"{name} {word}" for name, word in answer.dependencies.items() if word != "ok")
