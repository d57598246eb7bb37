"""The gateways as a cluster: the lease of this one, the generation it knows, and HTTP clients of the others.

While the group coordinator is away, the last generation stands. A lease alone stops no gateway: the leader epochs at
the share coordinator and in Redis fence a gateway that was replaced. Only while Redis does not answer does the lease
decide whether records may be acquired.
"""

import asyncio
import logging
import sys
import time
from typing import Any, Final, Protocol

from sharequeue import background
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.leases import NameTaken, OwnershipLost
from sharequeue.protocol import apis
from sharequeue.protocol.messages import cluster as messages
from sharequeue.protocol.shards import CLUSTER
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.repeats import GATEWAY_LEASE, Tries, heard
from sharequeue.service.failed_looks import count_failed_look
from sharequeue_gateway.cluster.generation import Generation, Node
from sharequeue_http.calling.caller import Client
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.log import Tally, fields

log = logging.getLogger(__name__)

LOST_LEASES: Final = 3
"""A lease that was not renewed for this many lengths is lost."""
RENEWALS_PER_LEASE: Final = 3
GIVE_UP_S: Final = 2.0
"""Time for a gateway that has left the generation to answer the calls under way."""
FORMER_LEADS_S: Final = 30.0
"""For this time after a change, a load first asks the former leader to yield the share-partition."""


class GenerationEvents(Protocol):
    """Receives each new generation."""

    async def generation_changed(self, *, missed: bool) -> None:
        """Other gateways lead now. `missed`: one in between may have led what is led here."""


class Cluster:
    """The gateways that this one knows, and its place among them."""

    def __init__(
        self, coordinator: CoordinatorClient, node_id: str, url: str, *, cluster_token: str, drain_s: float = 0.0
    ) -> None:
        """`drain_s`: how long a gateway that leaves takes calls."""
        self._coordinator = coordinator
        self._cluster_token = cluster_token
        self._drain_s = drain_s
        self._renew_now = asyncio.Event()
        self._no_others = asyncio.Event()
        self._clients: dict[str, Client] = {}
        self._former: Generation | None = None
        self._former_until_s = 0.0
        self._silent: set[Node] = set()
        self._unanswered = Tally(log, logging.INFO, "another gateway does not answer", most=20)
        self._lease_s = 3.0
        self._lease_ends_s = 0.0
        self.leaving = False
        """Whether this gateway stops."""
        self._renewing = asyncio.Lock()
        self._hand_overs: set[asyncio.Task[None]] = set()
        self._giving_up: set[asyncio.Task[None]] = set()
        self.me: Final = Node(node_id, url)
        self.generation = Generation(0, (self.me,))
        self.alone = True
        """Whether no other gateway is in the generation: this one leads everything, and no other one appends."""
        self._events: GenerationEvents | None = None
        """Given to `run`."""

    # Who leads

    def follow(self, generation: Generation) -> None:
        """Compute leaders from this generation from now on."""
        self.generation = generation
        self.alone = generation.nodes == (self.me,)
        if self.others():
            self._no_others.clear()
        else:
            self._no_others.set()

    def leads(self, key: SharePartitionKey) -> bool:
        return self.generation.leader_of(key) == self.me

    def leader_of(self, key: SharePartitionKey) -> Node:
        return self.generation.leader_of(key)

    def sweeps(self, topic_id: str, partition: int) -> bool:
        return self.generation.sweeper_of(topic_id, partition) == self.me

    def others(self) -> list[Node]:
        return [node for node in self.generation.nodes if node != self.me]

    def others_lately(self) -> list[Node]:
        """The other gateways of this generation and, for FORMER_LEADS_S after a change, of the previous one.

        Gateways that did not answer are left out.
        """
        lately = self._former.nodes if self._former is not None and self.changed_lately() else ()
        known = {node.url: node for node in (*lately, *self.generation.nodes)}
        return [node for url, node in known.items() if url != self.me.url and node not in self._silent]

    def look_again(self) -> None:
        """A leader did not answer, or has moved: renew now. The answer has the newest generation."""
        self._renew_now.set()

    def gone(self, node: Node) -> None:
        """A former leader did not answer: do not ask it again."""
        self._silent.add(node)

    def former_leader_of(self, key: SharePartitionKey) -> Node | None:
        """The other gateway that led a share-partition before the last change, and may still have writes under way.

        None if there is none, if the change is FORMER_LEADS_S ago, or if that gateway did not answer.
        """
        if self._former is None or time.monotonic() > self._former_until_s:
            return None
        former = self._former.leader_of(key)
        # a node at our own address is this gateway or an earlier process of it
        return None if former.url == self.me.url or former in self._silent else former

    def changed_lately(self) -> bool:
        """Return whether the generation changed less than FORMER_LEADS_S ago: other gateways may not know it yet."""
        return time.monotonic() <= self._former_until_s

    def lease_holds(self) -> bool:
        """Return whether the lease holds by this clock: until it ends, no other gateway takes this one's place."""
        return time.monotonic() < self._lease_ends_s

    def lost_lease(self) -> bool:
        """Return whether no group coordinator has renewed the lease for LOST_LEASES lengths."""
        return time.monotonic() > self._lease_ends_s + (LOST_LEASES - 1) * self._lease_s

    def client(self, node: Node) -> Client:
        """A client without a limit of connections: urgent calls must not queue behind long polls."""
        client = self._clients.get(node.url)
        if client is None:
            client = self._clients[node.url] = Client(
                node.url, cluster_token=self._cluster_token, connections=sys.maxsize
            )
        return client

    # Epochs and leases

    async def asked(self, node: Node, api: Api, request: Any, deadline_s: float, **path: str) -> Any:
        """The answer of another gateway, which is asked once; None: there is none, which the log says."""
        try:
            return await self.client(node).call(api, request, path=path, deadline_s=deadline_s, retry=False)
        except ApiError as error:
            kind = node.node_id, api.operation_id
            self._unanswered.note(kind, node_id=node.node_id, operation=api.operation_id, cause=error.detail)
            return None

    async def register(self) -> int:
        """Report to the group coordinator that this gateway starts. Returns: a leader epoch above all earlier ones.

        Raises: NameTaken: a gateway that lives at another address has this node id.
        """
        asked_s = time.monotonic()
        try:
            response: messages.RegisterGatewayResponse = await self._coordinator.call(
                apis.REGISTER_GATEWAY, self.me, key=CLUSTER
            )
        except InvalidRequest as error:
            raise NameTaken(error.detail) from error
        self._keep_lease(asked_s, response.lease_ms)
        self.follow(self._generation_of(response.generation))
        if self.others():  # they led these share-partitions until now
            self._note_former(Generation(0, tuple(self.others())))
        return response.leader_epoch

    async def next_leader_epoch(self, above: int) -> messages.LeaderEpochResponse:
        """Take a leader epoch above every other and above a given one.

        Raises: NotLeaderOrFollower: there is a newer generation; `run` asks for it at once.
        """
        request = messages.NextLeaderEpochRequest(
            node_id=self.me.node_id, generation=self.generation.number, above=above
        )
        try:
            response: messages.LeaderEpochResponse = await self._coordinator.call(
                apis.NEXT_LEADER_EPOCH, request, key=CLUSTER
            )
        except ApiError:
            self._renew_now.set()
            raise
        return response

    def hear_of(self, generation: int) -> None:
        """Another service mentioned a generation: renew now if it is newer than the known one."""
        if generation > self.generation.number:
            self._renew_now.set()

    async def run(self, events: GenerationEvents) -> None:
        """Renew the lease, and report new generations to `events`. Runs until it is cancelled.

        Raises: OwnershipLost: while this gateway was silent, another one took its node id.
        """
        self._events = events
        renewed = True
        while True:
            pause_s = self._lease_s / RENEWALS_PER_LEASE
            await heard(self._renew_now, pause_s)
            self._renew_now.clear()
            try:
                await self._renew()
            except InvalidRequest as error:
                if not self.leaving:  # else a gateway that takes the place of this one has begun already
                    raise OwnershipLost(error.detail) from error
            except ApiError as error:
                count_failed_look("leases")
                if renewed:
                    log.warning("cannot renew the lease; trying again", extra=fields(cause=error.detail))
                renewed = False
                await GATEWAY_LEASE.pause(at_most_s=pause_s)
                self._renew_now.set()
            else:
                if not renewed:
                    log.warning("the lease is renewed again")
                renewed = True

    async def leave(self) -> None:
        """Leave the generation: the other gateways take over what this one leads."""
        self.leaving = True
        tries = Tries(GATEWAY_LEASE, self._lease_s)
        while True:
            try:
                await self._renew()
                break
            except ApiError as error:
                if not await tries.pause():
                    log.warning("cannot leave the other gateways cleanly", extra=fields(cause=error.detail))
                    break
        await asyncio.gather(*self._hand_overs)

    async def drain(self) -> None:
        """Wait until load balancers have seen that this gateway leaves. The last gateway does not wait."""
        await heard(self._no_others, self._drain_s)

    async def close(self) -> None:
        for task in self._giving_up:
            task.cancel()
        for client in self._clients.values():
            await client.close()

    async def _renew(self) -> None:
        async with self._renewing:  # one at a time: an earlier renewal that arrives late would undo `leave`
            asked_s = time.monotonic()
            known = self.generation.number
            request = messages.RenewGatewayRequest(gateway=self.me, leaving=self.leaving, generation=known)
            response: messages.RenewGatewayResponse = await self._coordinator.call(
                apis.RENEW_GATEWAY, request, key=CLUSTER, deadline_s=self._lease_s / 2, retry=False
            )
            if not request.leaving:
                self._keep_lease(asked_s, response.lease_ms)
            await self._learn(response.generation)

    def _keep_lease(self, asked_s: float, lease_ms: int) -> None:
        self._lease_s = lease_ms / 1000
        self._lease_ends_s = asked_s + self._lease_s

    async def _learn(self, learned: messages.GatewayGeneration) -> None:
        known = self.generation
        if learned.number <= known.number:
            return
        self._note_former(known)
        self.follow(self._generation_of(learned))
        log.info(
            "gateways changed",
            extra=fields(generation=learned.number, gateways=[node.node_id for node in self.generation.nodes]),
        )
        if self._events is not None:  # a task of its own: a hand-over may take longer than a lease
            missed = learned.previous != known.number
            background.start(self._hand_overs, self._hand_over(self._events, missed=missed))
        left = {*self._clients, *(node.url for node in known.nodes)} - {node.url for node in self.generation.nodes}
        background.start(self._giving_up, self._give_up(left))

    def _note_former(self, former: Generation) -> None:
        self._former, self._former_until_s = former, time.monotonic() + FORMER_LEADS_S + self._drain_s
        self._silent.clear()

    async def _hand_over(self, events: GenerationEvents, *, missed: bool) -> None:
        try:
            await events.generation_changed(missed=missed)
        except Exception:
            log.exception("handing over to other gateways failed")

    async def _give_up(self, left: set[str]) -> None:
        """End the calls to gateways that left the generation: they may be paused, and other gateways lead now."""
        await asyncio.sleep(GIVE_UP_S)
        for url in left.intersection(self._clients) - {node.url for node in self.generation.nodes}:
            await self._clients.pop(url).close()

    def _generation_of(self, learned: messages.GatewayGeneration) -> Generation:
        return Generation(learned.number, tuple(learned.gateways) or (self.me,))
