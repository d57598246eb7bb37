"""The call that every coordinator serves, the owners of its shards; and what it says of itself."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.leases import Ownership
from sharequeue.protocol import apis
from sharequeue.protocol.messages.cluster import ShardsResponse
from sharequeue.protocol.messages.operations import Readiness
from sharequeue.service.operations import Operations
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue.service.readiness import CHECK_S, Check, faults
from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call


def serve_shards(app: App, ownership: Ownership, *, cluster_token: str) -> None:
    async def shards(_: Call) -> ShardsResponse:
        return ShardsResponse(shards=ownership.owners(), count=ownership.count)

    serve(app, apis.SHARDS, shards, cluster_token=cluster_token)


def coordinator_operations(
    health: PostgresHealth,
    ownership: Ownership,
    others: CoordinatorClient,
    stores: Mapping[str, Callable[[], Awaitable[None]]] = MappingProxyType({}),
) -> Operations:
    """Return what a coordinator says of itself. `/readyz`, strict or not: without PostgreSQL it is unavailable, without
    another store or the coordinators of the other kind degraded. `stores`: by name, what asks it."""
    name_of_others = f"{others.kind} coordinator"
    ask_others = partial(others.call, apis.LIVEZ, deadline_s=CHECK_S, retry=False)
    checks = {"postgresql": Check(health.check), name_of_others: Check(ask_others)}
    checks |= {name: Check(ask) for name, ask in stores.items()}

    async def ready(_: bool) -> Readiness:
        found = await faults(**checks)
        missing = ownership.missing()
        dependencies = {**dict.fromkeys(checks, "ok"), "shards": missing or "ok", **found}
        status = "unavailable" if "postgresql" in found else "degraded" if found or missing else "ready"
        lacks = [name for name, word in dependencies.items() if word != "ok"]
        return Readiness(status=status, dependencies=dependencies | health.told(), lacks=lacks)

    return Operations(ready)
