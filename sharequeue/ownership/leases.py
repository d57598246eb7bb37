"""The shards that this instance of a coordinator owns: leases in PostgreSQL, taken, renewed and given back.

A lease tells the others who is dead. The epoch in every write keeps out an owner that was only paused. Every third of a
lease an instance records that it lives, renews the shards it owns, takes free shards that it should own, and gives back
shards that another instance should own. Each change wakes the other instances, so a clean hand-over waits for no lease.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from prometheus_client import Gauge

from sharequeue.ownership.settings import CoordinatorSettings
from sharequeue.ownership.shard_store import Instance, Shard, ShardStore, stack_of
from sharequeue.protocol.errors import CoordinatorLoadInProgress, NotCoordinator
from sharequeue.protocol.messages.cluster import ShardOwner
from sharequeue.protocol.shards import balance
from sharequeue.repeats import LEASE_HELD, heard
from sharequeue.service.addresses import node_name, own_url
from sharequeue.service.failed_looks import count_failed_look
from sharequeue.service.postgres_faults import FAULTS
from sharequeue_http.distribution import OfEachService
from sharequeue_http.forms.errors import CoordinatorNotAvailable
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

OWNED_SHARDS: Final = OfEachService(Gauge, "sharequeue_owned_shards", "Shards that this coordinator owns.")


class OwnershipLost(Exception):
    """Another process took this instance's name; this one must end."""


class NameTaken(ConnectionError):
    """A process that lives has this one's name, or is of another stack: this one must not start. The text names it."""


class ShardEvents(Protocol):
    """Learns of each change of the owned shards."""

    def shards_taken(self, shards: frozenset[int]) -> None:
        """Serve these shards from now on."""

    def shards_lost(self, shards: frozenset[int]) -> None:
        """Discard the state of these shards in memory: another instance owns them, or may take them."""

    async def drain(self, shards: frozenset[int]) -> None:
        """Finish the work under way in these shards, which are given back next."""


class Ownership:
    """The shards of one instance. Every write names `epoch(shard)`;
    PostgreSQL refuses it after another instance took over."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        store: ShardStore,
        settings: CoordinatorSettings,
        shards: Sequence[int],
    ) -> None:
        self._connect = connect
        self._store = store
        self._shards = tuple(shards)
        self.count = sum(shard >= 0 for shard in self._shards)
        """How many shards the keys are spread over."""
        self._lease_s = settings.lease_ms / 1000
        self._epochs: dict[int, int] = {}
        self._valid_until = 0.0
        self._owners: dict[int, Shard] = {}
        self._connection: Any = None
        self._wake = asyncio.Event()
        self._channels = {store.channel: self._wake.set}
        self._changing = asyncio.Lock()
        self._stopped = False
        self._rejoin = False
        """Whether the store may have an earlier process under this name, which ran when its state was stored."""
        stack = hashlib.sha256(b"sharequeue stack" + settings.cluster_token.encode()).hexdigest()[:16]
        node_id = node_name(settings.node_id, settings.port)
        url = own_url(settings.url, settings.scheme, settings.host, settings.port)
        self.instance = Instance(node_id, f"{stack}-{secrets.token_hex(8)}", url)
        self._events: ShardEvents
        """Given to `start`."""
        OWNED_SHARDS().set_function(lambda: len(self._epochs))

    @property
    def owned(self) -> Mapping[int, int]:
        """Epoch by shard of the owned shards, without asking whether the lease still holds."""
        return self._epochs

    def epoch(self, shard: int) -> int:
        """The epoch to write under and to serve by.

        Raises: NotCoordinator: another owns the shard. CoordinatorLoadInProgress: nobody does yet.
            CoordinatorNotAvailable: the lease could not be renewed.
        """
        epoch = self._epochs.get(shard)
        if epoch is not None and time.monotonic() < self._valid_until:
            return epoch
        if epoch is not None:
            raise CoordinatorNotAvailable("the lease of this coordinator ran out, and PostgreSQL has not renewed it")
        known = self._owners.get(shard)
        if known is None or known.owner is None or known.owner == self.instance.node_id:
            raise CoordinatorLoadInProgress(f"shard {shard} is being handed over")
        extra = {"owner_url": known.url, "owner_epoch": known.owner_epoch}
        raise NotCoordinator(f"shard {shard} is owned by {known.owner} at {known.url}", extra=extra)

    def owners(self) -> list[ShardOwner]:
        """The owners that this instance knows; shards without an owner are left out."""
        return [
            ShardOwner(shard=known.shard, node_id=known.owner, url=known.url, owner_epoch=known.owner_epoch)
            for known in self._owners.values()
            if known.owner is not None
        ]

    def missing(self) -> str | None:
        """A sentence that names the shards without a known owner; None if each has one."""
        missing = [shard for shard in self._shards if shard not in self._owners or self._owners[shard].owner is None]
        return f"nobody owns the shards {missing}" if missing else None

    def listen(self, channel: str, heard: Callable[[], None]) -> None:
        """Call `heard` for each notification on a PostgreSQL channel and after each new connection.
        Call it before `start`."""
        self._channels[channel] = heard

    async def start(self, events: ShardEvents) -> None:
        """Make the rows of the shards if they are missing, take the name and the free shards.
        Raises: NameTaken, ValueError.

        `events`: receives every change from now on, including this first one.
        """
        self._events = events
        connection = await self._connected()
        known = await self._store.prepare(connection, self._shards)
        if known != set(self._shards):
            count = sum(shard >= 0 for shard in known)
            raise ValueError(f"keys are spread over {count} shards in this database, not over {self.count}")
        await self._wait_for_rivals(connection)
        await self._store.join(connection, self.instance)
        await self._store.wake(connection)
        async with self._changing:
            await self._look()

    async def _wait_for_rivals(self, connection: Any) -> None:
        """Wait until no process lives that has this name at another address, or another cluster token: for a lease, if
        it is dead. Raises: NameTaken: it renews its lease."""
        first = rivals = await self._store.rivals(connection, self.instance, self._lease_s)
        while rivals:
            for node_id, url, incarnation, seen_at in rivals.values():
                if first.get(incarnation, (None,))[-1] == seen_at:
                    continue
                if stack_of(incarnation) != stack_of(self.instance.incarnation):
                    raise NameTaken(
                        f"this database belongs to another stack, whose {node_id!r} at {url} renews its lease: give this one"
                        " a database of its own, or the cluster token of that stack"
                    )
                raise NameTaken(f"{node_id!r} runs at {url}, and renews its lease: give this one another node id")
            await LEASE_HELD.pause()
            rivals = await self._store.rivals(connection, self.instance, self._lease_s)

    async def run(self) -> None:
        """Renew, take and give back until the service ends. Raises: OwnershipLost."""
        failed = False
        while True:
            pause_s = self._lease_s / 3
            try:
                async with self._changing, asyncio.timeout(self._lease_s):
                    if not self._stopped:
                        pause_s = min(pause_s, await self._look())
                failed = False
            except FAULTS as fault:
                count_failed_look("leases")
                self._disconnect()
                if not failed:
                    log.warning("leases cannot be renewed", extra=fields(cause=repr(fault)))
                failed = True
                pause_s /= 3
            await heard(self._wake, pause_s)
            self._wake.clear()

    async def stop(self) -> None:
        """Give all shards back and leave; the other instances take them at once."""
        async with self._changing:
            self._stopped = True
            try:
                async with asyncio.timeout(self._lease_s):
                    connection = await self._connected()
                    await self._store.leave(connection, self.instance)
                    await self._give_back(connection, self._epochs)
                    await self._store.wake(connection)
            except FAULTS as fault:
                log.warning(
                    "shards could not be given back; they become free when their lease ends",
                    extra=fields(cause=repr(fault)),
                )

    async def close(self) -> None:
        self._disconnect()

    async def raise_epochs(self, connection: Any) -> None:
        """Raise the epochs of the owned shards. A write with an unknown outcome has then happened, or never will."""
        before = frozenset(self._epochs)
        raised = await self._store.raise_epochs(connection, self.instance)
        taken_meanwhile = {shard: epoch for shard, epoch in self._epochs.items() if shard not in before}
        self._keep(taken_meanwhile | raised)

    def forget_all(self) -> None:
        """PostgreSQL was started again: own no shard until the shards are taken again, with higher epochs."""
        lost = frozenset(self._epochs)
        self._epochs.clear()
        self._rejoin = True
        if lost:
            self._events.shards_lost(lost)
        self.look_again()

    def look_again(self) -> None:
        """Look at the shards now: a write was refused, so another instance owns one of them."""
        self._wake.set()

    def _keep(self, epochs: Mapping[int, int]) -> None:
        """Keep these shards; every other one is lost."""
        lost = frozenset(self._epochs.keys() - epochs.keys())
        for shard in lost:
            del self._epochs[shard]
        for shard, epoch in self._epochs.items():
            self._epochs[shard] = max(epoch, epochs[shard])
        if lost:
            log.warning("lost shards to another owner", extra=fields(shards=sorted(lost)))
            self._events.shards_lost(lost)

    async def _look(self) -> float:
        """Renew, take and give back once. Returns: seconds until a lease may end."""
        connection = await self._connected()
        if self._rejoin:
            await self._store.join(connection, self.instance)
            self._rejoin = False
        asked_at = time.monotonic()
        kept = await self._store.renew(connection, self.instance, self._lease_s)
        if kept is None:
            raise OwnershipLost(f"another process is called {self.instance.node_id} now")
        self._keep(kept)
        self._valid_until = asked_at + self._lease_s
        live = await self._store.instances(connection, self._lease_s)
        shards = await self._store.shards(connection)
        wanted = balance(self._shards, live, {known.shard: known.owner for known in shards if known.owner is not None})
        node_id = self.instance.node_id
        surplus = [shard for shard in kept if wanted.get(shard) != node_id]
        free = [
            known.shard
            for known in shards
            if known.shard not in self._epochs
            and wanted.get(known.shard) == node_id
            and (known.owner in (None, node_id) or known.ends_in_s < 0)
        ]
        taken: dict[int, int] = {}
        if surplus:
            await self._give_back(connection, surplus)
        if free:
            taken = await self._store.take(connection, self.instance, free, self._lease_s)
            if taken:
                log.info("took over", extra=fields(shards=sorted(taken), owner=node_id))
                self._events.shards_taken(frozenset(taken))
            self._epochs |= taken
        if surplus or taken:
            await self._store.wake(connection)
            shards = await self._store.shards(connection)
        self._owners = {known.shard: known for known in shards}
        if len(taken) < len(free):
            return LEASE_HELD.pause_s
        ends = [known.ends_in_s for known in shards if known.owner not in (None, node_id) and known.ends_in_s > 0]
        return max(min(ends, default=self._lease_s), LEASE_HELD.pause_s)

    async def _give_back(self, connection: Any, shards: Iterable[int]) -> None:
        """Stop serving these shards, finish the work under way, then release them."""
        given = frozenset(shards)
        for shard in given:
            self._epochs.pop(shard, None)
        try:
            async with asyncio.timeout(self._lease_s / 3):
                await self._events.drain(given)
        except TimeoutError:
            log.warning("gave shards back while work was under way", extra=fields(shards=sorted(given)))
        self._events.shards_lost(given)
        await self._store.release(connection, self.instance, given)
        self._owners = {shard: known for shard, known in self._owners.items() if shard not in given}
        log.info("gave back", extra=fields(shards=sorted(given), owner=self.instance.node_id))

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            connection = await self._connect()
            try:
                own = connection.get_server_pid()
                for channel, heard in self._channels.items():
                    await connection.add_listener(channel, _listener(own, heard))
            except BaseException:
                connection.terminate()
                raise
            self._connection = connection
            for heard in self._channels.values():
                heard()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _listener(own: int, heard: Callable[[], None]) -> Callable[..., None]:
    """Returns: a listener that ignores notifications of our own connection."""

    def listen(_: Any, process: int, *__: Any) -> None:
        if process != own:
            heard()

    return listen
