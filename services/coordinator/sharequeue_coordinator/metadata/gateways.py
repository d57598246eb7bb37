"""The gateways that lead share-partitions: a set under a number, the generation.
Each change of the set makes the next one.

A lease shows that a gateway is dead; it does not stop one. Leader epochs do that: the share coordinator and Redis
refuse a gateway that was replaced, because the number of a generation is above every epoch that was given before it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from sharequeue.clock import Clock
from sharequeue.protocol.errors import NotLeaderOrFollower
from sharequeue.protocol.messages.cluster import (
    Gateway,
    GatewayGeneration,
    LeaderEpochResponse,
    RegisterGatewayResponse,
    RenewGatewayResponse,
)
from sharequeue.repeats import LEASE_HELD, Every
from sharequeue.service.failed_looks import looking
from sharequeue_coordinator.database import Fence
from sharequeue_coordinator.metadata import store
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

NOTHING: Final = GatewayGeneration(number=0, previous=0, gateways=[])
CHECKS_PER_LEASE: Final = 4
"""How often leases are checked in the time of one."""


@dataclass(eq=False)
class Gateways:
    """The gateways' generation, kept in the database, and their leases, kept in memory."""

    _query: Callable[..., Awaitable[Any]]
    _lead: Callable[[], Awaitable[Fence]]
    """As `Metadata.lead`."""
    _leads: Callable[[], bool]
    """Whether this instance owns the cluster's shard."""
    _clock: Clock
    lease_ms: int
    _lost_to: int = field(init=False, default=0)
    """The highest leader epoch that somebody knows and PostgreSQL had lost."""
    _ends_at_ms: dict[str, int] = field(init=False, default_factory=dict)
    _renewals: Counter[str] = field(init=False, default_factory=Counter)
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    generation: GatewayGeneration = field(init=False, default=NOTHING)

    async def refresh(self) -> None:
        stored: GatewayGeneration = await self._query(store.gateway_generation)
        if stored.number >= self.generation.number:  # or a change of our own overtook the query
            self.generation = stored

    async def load(self) -> None:
        """Take over from an earlier owner. Every gateway gets a whole lease: none could renew in between."""
        await self.refresh()
        self._grant_leases()

    def forget(self) -> None:
        """PostgreSQL may have an older generation now."""
        self.generation = NOTHING

    async def renumber(self, fence: Fence) -> None:
        """PostgreSQL was started again: make the same gateways a generation above all that may have been lost."""
        if self.generation.gateways:
            await self._change(fence, self.generation.gateways)

    async def register(self, gateway: Gateway) -> RegisterGatewayResponse:
        """A gateway starts, or restarts. Its leader epoch is above all earlier ones.

        If another address has its node id, it waits until that lease has ended. Raises: InvalidRequest: it was renewed.
        """
        renewals = self._renewals[gateway.node_id]
        await self._lead()
        while self._namesake(gateway) is not None and self._renewals[gateway.node_id] == renewals:
            await LEASE_HELD.pause()
        async with self._lock:  # the next generation's number must be above every epoch given for this one
            generation = await self._add(gateway)
            leader_epoch, _ = await self._query(store.next_leader_epoch)
        return RegisterGatewayResponse(leader_epoch=leader_epoch, lease_ms=self.lease_ms, generation=generation)

    async def renew(self, gateway: Gateway, *, leaving: bool, known: int) -> RenewGatewayResponse:
        """Renew the lease of a gateway. One that was removed joins again; one that is leaving is removed.

        `known`: the number of the generation that it knows.
        """
        async with self._lock:
            if leaving:
                self._refuse_namesake(gateway)
                generation = await self._remove({gateway.node_id})
            else:
                generation = await self._add(gateway, known)
        return RenewGatewayResponse(lease_ms=self.lease_ms, generation=generation)

    async def next_leader_epoch(self, node_id: str, generation: int, above: int) -> LeaderEpochResponse:
        """An epoch above all earlier ones, and above one that a store knows.

        Raises: NotLeaderOrFollower: the gateway knows an old generation.
        """
        await self._lead()
        async with self._lock:
            known = {gateway.node_id for gateway in self.generation.gateways}
            if generation != self.generation.number or node_id not in known:
                raise NotLeaderOrFollower(
                    f"generation {generation} of the gateways is not the present one, or {node_id!r} is not in it"
                )
            epoch, skipped = await self._query(store.next_leader_epoch, above)
            if skipped:
                self._note_lost(above)
        return LeaderEpochResponse(leader_epoch=epoch, lost_to=self._lost_to)

    def _note_lost(self, known: int) -> None:
        self._lost_to = max(self._lost_to, known)
        log.error(
            "PostgreSQL has lost leader epochs: it is older than the gateways or Redis", extra=fields(known=known)
        )

    async def watch_leases(self) -> None:
        """Remove gateways whose lease has ended, for as long as this service runs.

        If this instance itself was paused, or without its database, it may have missed renewals. So it then gives every
        gateway a whole lease.
        """
        pause_ms = self.lease_ms // CHECKS_PER_LEASE
        checked_at_ms = self._clock.now_ms()
        async for _ in Every(pause_ms / 1000):
            if not self._leads():
                continue
            with looking("gateways", "the leases of gateways cannot be checked now"):
                await self._lead()
                now_ms = self._clock.now_ms()
                if now_ms - checked_at_ms > 2 * pause_ms:
                    self._grant_leases()
                checked_at_ms = now_ms
                async with self._lock:
                    await self._remove({node_id for node_id, end_ms in self._ends_at_ms.items() if end_ms <= now_ms})

    def _grant_leases(self) -> None:
        ends_at_ms = self._clock.now_ms() + self.lease_ms
        self._ends_at_ms = dict.fromkeys((gateway.node_id for gateway in self.generation.gateways), ends_at_ms)

    def _namesake(self, gateway: Gateway) -> Gateway | None:
        """The gateway that has this one's node id at another address, and a lease."""
        if self._ends_at_ms.get(gateway.node_id, 0) <= self._clock.now_ms():
            return None
        others = [known for known in self.generation.gateways if known.node_id == gateway.node_id and known != gateway]
        return others[0] if others else None

    def _refuse_namesake(self, gateway: Gateway) -> None:
        """Raises: InvalidRequest: another address has the node id of this gateway."""
        if (other := self._namesake(gateway)) is not None:
            raise InvalidRequest(
                f"the gateway {other.node_id!r} runs at {other.url}, and renews its lease: give the one at {gateway.url}"
                " another node id"
            )

    async def _add(self, gateway: Gateway, known: int = 0) -> GatewayGeneration:
        fence = await self._lead()
        self._refuse_namesake(gateway)
        lost = known > self.generation.number
        if lost or gateway not in self.generation.gateways:
            others = [each for each in self.generation.gateways if each.node_id != gateway.node_id]
            if lost:
                self._note_lost(known)
                await self._query(store.next_leader_epoch, known)
            await self._change(fence, [*others, gateway])
        self._ends_at_ms[gateway.node_id] = self._clock.now_ms() + self.lease_ms
        self._renewals[gateway.node_id] += 1
        return self.generation

    async def _remove(self, node_ids: Collection[str]) -> GatewayGeneration:
        fence = await self._lead()
        left = [gateway for gateway in self.generation.gateways if gateway.node_id not in node_ids]
        if len(left) < len(self.generation.gateways):
            await self._change(fence, left)
        for node_id in node_ids:
            self._ends_at_ms.pop(node_id, None)
            self._renewals.pop(node_id, None)
        return self.generation

    async def _change(self, fence: Fence, gateways: list[Gateway]) -> None:
        ordered = sorted(gateways, key=lambda gateway: gateway.node_id)
        self.generation = await self._query(store.next_gateway_generation, fence, ordered)
        log.info(
            "gateways changed",
            extra=fields(generation=self.generation.number, gateways=[gateway.node_id for gateway in gateways]),
        )
