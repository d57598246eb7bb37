"""Which gateways lead: a set under a number, the generation. A change of the set makes the next one.

A lease only tells who is dead: it stops nobody. What keeps a gateway out that was replaced are the leader epochs at the
share coordinator and in Redis, and a generation's number is above all that were given before it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from sharequeue.clock import Clock
from sharequeue.log import fields
from sharequeue.protocol.errors import ApiError, NotLeaderOrFollower
from sharequeue.protocol.internal import Gateway, GatewayGeneration, RegisterGatewayResponse, RenewGatewayResponse
from sharequeue_coordinator.metadata import store
from sharequeue_coordinator.metadata.store import Fence

log = logging.getLogger(__name__)

LEASES_LOOKED_AT: Final = 4
"""How often in a lease the leases are looked at."""


class Gateways:
    """The gateways' generation, kept in the database, and their leases, kept in memory."""

    def __init__(
        self,
        query: Callable[..., Awaitable[Any]],
        lead: Callable[[], Awaitable[Fence]],
        leads: Callable[[], bool],
        clock: Clock,
        *,
        lease_ms: int,
    ) -> None:
        """`lead`: what to write under, once all that is known is known here. `leads`: whether that is this instance's."""
        self._query = query
        self._lead = lead
        self._leads = leads
        self._clock = clock
        self._lease_ms = lease_ms
        self._ends_at_ms: dict[str, int] = {}
        self._lock = asyncio.Lock()
        self.generation = GatewayGeneration(number=0, previous=0, gateways=[])

    async def refresh(self) -> None:
        """Read which gateways lead."""
        stored: GatewayGeneration = await self._query(store.gateway_generation)
        if stored.number >= self.generation.number:  # or else a change of our own went past the question
            self.generation = stored

    async def load(self) -> None:
        """Take over what is known. Every gateway gets a whole lease: nobody could renew meanwhile."""
        await self.refresh()
        self._grant_leases()

    async def register(self, gateway: Gateway) -> RegisterGatewayResponse:
        """A gateway starts, or starts again: it leads with an epoch above all earlier ones."""
        async with self._lock:  # no generation comes in between: it would be below an epoch given for the one before
            generation = await self._with(gateway)
            leader_epoch = await self._query(store.next_leader_epoch)
        return RegisterGatewayResponse(leader_epoch=leader_epoch, lease_ms=self._lease_ms, generation=generation)

    async def renew(self, gateway: Gateway, *, leaving: bool) -> RenewGatewayResponse:
        """A gateway lives on; one that was thought dead is back; one that leaves leads no more."""
        generation = await (self._left(gateway) if leaving else self._renewed(gateway))
        return RenewGatewayResponse(lease_ms=self._lease_ms, generation=generation)

    async def next_leader_epoch(self, node_id: str, generation: int) -> int:
        """An epoch above all earlier ones. Raises: NotLeaderOrFollower: the gateway does not know who leads now."""
        await self._lead()
        async with self._lock:
            known = {gateway.node_id for gateway in self.generation.gateways}
            if generation != self.generation.number or node_id not in known:
                raise NotLeaderOrFollower(
                    f"generation {generation} of the gateways is over, or {node_id!r} is not in it"
                )
            epoch: int = await self._query(store.next_leader_epoch)
        return epoch

    async def watch_leases(self) -> None:
        """Make a generation without those that are not heard of any more, for ever.

        What kept this instance from hearing anybody, a pause or a database that was away, is no gateway's silence: after
        it every gateway gets a whole lease.
        """
        pause_ms = self._lease_ms // LEASES_LOOKED_AT
        looked_at_ms = self._clock.now_ms()
        told = False
        while True:
            await asyncio.sleep(pause_ms / 1000)
            if not self._leads():
                continue
            try:
                await self._lead()
                now_ms = self._clock.now_ms()
                if now_ms - looked_at_ms > 2 * pause_ms:
                    self._grant_leases()
                looked_at_ms = now_ms
                await self._without_silent(now_ms)
                told = False
            except ApiError as error:
                if not told:
                    log.warning("leases of gateways are looked at later", extra=fields(cause=error.detail))
                told = True

    def _grant_leases(self) -> None:
        ends_at_ms = self._clock.now_ms() + self._lease_ms
        self._ends_at_ms = dict.fromkeys((gateway.node_id for gateway in self.generation.gateways), ends_at_ms)

    async def _renewed(self, gateway: Gateway) -> GatewayGeneration:
        async with self._lock:
            return await self._with(gateway)

    async def _with(self, gateway: Gateway) -> GatewayGeneration:
        fence = await self._lead()
        if gateway not in self.generation.gateways:
            others = [known for known in self.generation.gateways if known.node_id != gateway.node_id]
            await self._change(fence, [*others, gateway])
        self._ends_at_ms[gateway.node_id] = self._clock.now_ms() + self._lease_ms
        return self.generation

    async def _left(self, gateway: Gateway) -> GatewayGeneration:
        async with self._lock:
            return await self._without({gateway.node_id})

    async def _without_silent(self, now_ms: int) -> None:
        async with self._lock:
            over = {node_id for node_id, ends_at_ms in self._ends_at_ms.items() if ends_at_ms <= now_ms}
            if over:
                await self._without(over)

    async def _without(self, node_ids: Collection[str]) -> GatewayGeneration:
        fence = await self._lead()
        left = [gateway for gateway in self.generation.gateways if gateway.node_id not in node_ids]
        if len(left) < len(self.generation.gateways):
            await self._change(fence, left)
        for node_id in node_ids:
            self._ends_at_ms.pop(node_id, None)
        return self.generation

    async def _change(self, fence: Fence, gateways: list[Gateway]) -> None:
        ordered = sorted(gateways, key=lambda gateway: gateway.node_id)
        self.generation = await self._query(store.next_gateway_generation, fence, ordered)
        log.info(
            "gateways changed",
            extra=fields(generation=self.generation.number, gateways=[gateway.node_id for gateway in gateways]),
        )
