"""The calls that every coordinator serves: the owners of its shards and findCoordinator; and what it says of itself."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from uuid import UUID

from sharequeue.ownership.coordinator_client import CoordinatorClient, location
from sharequeue.ownership.leases import Ownership
from sharequeue.protocol import apis
from sharequeue.protocol.messages.cluster import FindCoordinatorQuery, FindCoordinatorResponse, ShardsResponse
from sharequeue.protocol.messages.operations import Readiness
from sharequeue.protocol.shards import shard_of, share_key
from sharequeue.protocol.types import MAX_INT32, SharePartitionKey, group_id_fault
from sharequeue.service.operations import Operations
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue.service.readiness import CHECK_S, Check, faults
from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.forms.texts import whole_number


def serve_coordinator(
    app: App,
    ownership: Ownership,
    kind: str,
    others: CoordinatorClient,
    *,
    cluster_token: str,
) -> None:
    """Add the calls that every coordinator serves to one of this kind. `others`: a client of the other kind."""

    async def shards(_: Call) -> ShardsResponse:
        return ShardsResponse(shards=ownership.owners(), count=ownership.count)

    async def find_coordinator(call: Call) -> FindCoordinatorResponse:
        query: FindCoordinatorQuery = call.request
        key = _checked(query)
        if query.key_type == kind:
            shard = shard_of(key, ownership.count)
            found = location(query.key, next((owner for owner in ownership.owners() if owner.shard == shard), None))
        else:
            found = await others.find(key)
            found.key = query.key
        return FindCoordinatorResponse(coordinators=[found])

    serve(app, apis.SHARDS, shards, cluster_token=cluster_token)
    serve(app, apis.FIND_COORDINATOR, find_coordinator, cluster_token=cluster_token)


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


def _checked(query: FindCoordinatorQuery) -> str:
    """The key in its canonical form. Raises: InvalidRequest."""
    if query.key_type == "share":
        return share_key(check_key(query.key))
    if query.key_type != "group":
        raise InvalidRequest(f"key_type must be group or share, not {query.key_type!r}")
    fault = group_id_fault(query.key)
    if fault:
        raise InvalidRequest(fault)
    return query.key


def check_key(key: str) -> SharePartitionKey:
    """Parse `group:topic_id:partition` from the right: group ids may hold `:`. Raises: InvalidRequest."""
    parts = key.rsplit(":", 2)
    if len(parts) != 3 or not parts[0].strip() or (partition := whole_number(parts[2], MAX_INT32)) is None:
        raise InvalidRequest(f"a share key is group:topic_id:partition, not {key!r}")
    hexadecimal = parts[1].replace("-", "")
    if len(hexadecimal) != 32 or not all(digit in "0123456789abcdefABCDEF" for digit in hexadecimal):
        raise InvalidRequest(f"{parts[1]!r} is not a topic id")
    return SharePartitionKey(parts[0], str(UUID(hexadecimal)), partition)
