"""Which shards this instance of a coordinator owns: leases in PostgreSQL, renewed, taken and given back.

A lease tells who is dead; what keeps an owner out that was only paused is the epoch that every write names. Every third
of a lease an instance says that it lives, renews what it owns, takes what it should own and nobody holds, and gives back
what another should own now. Whoever changes something wakes the others, so that a clean hand-over waits for no lease.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import asyncpg
from prometheus_client import Gauge

from sharequeue.log import fields
from sharequeue.ownership.shard_store import Instance, Shard, ShardStore
from sharequeue.protocol.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator
from sharequeue.protocol.internal import ShardOwner
from sharequeue.protocol.shards import balance

log = logging.getLogger(__name__)

SOON_S: Final = 0.1
"""When to look again where a write under way kept a free shard from being taken."""
LOST: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # asyncpg's own confusion when the server ends a connection as it is taken into use
)

OWNED_SHARDS = Gauge("sharequeue_owned_shards", "Shards that this instance of a coordinator owns.")


class OwnershipLost(Exception):
    """Another process took this instance's name; this one must end."""


def _nothing(_: frozenset[int]) -> None:
    return


async def _at_once(_: frozenset[int]) -> None:
    return


class Ownership:
    """The shards of one instance. Every write names `epoch(shard)` and is refused by PostgreSQL once another took over.

    `on_lost`: forget what memory holds of these shards. `on_taken`: they are about to be served. `drain`: finish what is
    under way in shards that are not served any more and will be given back.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        store: ShardStore,
        *,
        node_id: str,
        url: str,
        shards: Sequence[int],
        lease_ms: int,
        on_lost: Callable[[frozenset[int]], None] = _nothing,
        on_taken: Callable[[frozenset[int]], None] = _nothing,
        drain: Callable[[frozenset[int]], Awaitable[None]] = _at_once,
    ) -> None:
        self._connect = connect
        self._store = store
        self._shards = tuple(shards)
        self._lease_s = lease_ms / 1000
        self._epochs: dict[int, int] = {}
        self._valid_until = 0.0
        self._owners: dict[int, Shard] = {}
        self._connection: Any = None
        self._wake = asyncio.Event()
        self._channels = {store.channel: self._wake.set}
        self._changing = asyncio.Lock()
        self._stopped = False
        self.instance = Instance(node_id, secrets.token_hex(8), url)
        self.on_lost = on_lost
        self.on_taken = on_taken
        self.drain = drain
        OWNED_SHARDS.set_function(lambda: len(self._epochs))

    @property
    def count(self) -> int:
        """How many shards keys are spread over."""
        return sum(shard >= 0 for shard in self._shards)

    @property
    def owned(self) -> Mapping[int, int]:
        """Epochs by shard of what is owned, were the lease to hold."""
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
            raise CoordinatorNotAvailable("the lease of this coordinator ran out and could not be renewed yet")
        known = self._owners.get(shard)
        if known is None or known.owner is None or known.owner == self.instance.node_id:
            raise CoordinatorLoadInProgress(f"shard {shard} is being handed over")
        extra = {"owner_url": known.url, "owner_epoch": known.owner_epoch}
        raise NotCoordinator(f"shard {shard} is owned by {known.owner} at {known.url}", extra=extra)

    def owners(self) -> list[ShardOwner]:
        """Who owns what, as far as this instance has heard; without the shards that nobody owns."""
        return [
            ShardOwner(shard=known.shard, node_id=known.owner, url=known.url, owner_epoch=known.owner_epoch)
            for known in self._owners.values()
            if known.owner is not None
        ]

    def missing(self) -> str | None:
        """Which shards nobody is known to own, in words; None: each has an owner."""
        missing = [shard for shard in self._shards if shard not in self._owners or self._owners[shard].owner is None]
        return f"nobody owns the shards {missing}" if missing else None

    def listen(self, channel: str, heard: Callable[[], None]) -> None:
        """Hear of a further PostgreSQL channel; also after each new connection. Called before `start`."""
        self._channels[channel] = heard

    async def start(self) -> None:
        """Make the shards if there are none yet, take the name, and take what is free. Raises: ValueError."""
        connection = await self._connected()
        known = await self._store.prepare(connection, self._shards)
        if known != set(self._shards):
            count = sum(shard >= 0 for shard in known)
            raise ValueError(f"keys are spread over {count} shards in this database, not over {self.count}")
        await self._store.join(connection, self.instance)
        await self._store.tell(connection)
        async with self._changing:
            await self._look()

    async def run(self) -> None:
        """Keep what is owned, for ever. Raises: OwnershipLost."""
        failed = False
        while True:
            pause_s = self._lease_s / 3
            try:
                async with self._changing, asyncio.timeout(self._lease_s):
                    if not self._stopped:
                        pause_s = min(pause_s, await self._look())
                failed = False
            except LOST as fault:
                self._disconnect()
                if not failed:
                    log.warning("leases cannot be renewed", extra=fields(cause=repr(fault)))
                failed = True
                pause_s /= 3
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            self._wake.clear()

    async def stop(self) -> None:
        """Give everything back and leave: others take it at once."""
        async with self._changing:
            self._stopped = True
            try:
                async with asyncio.timeout(self._lease_s):
                    connection = await self._connected()
                    await self._store.leave(connection, self.instance)
                    await self._give_back(connection, self._epochs)
                    await self._store.tell(connection)
            except LOST as fault:
                log.warning("the shards are free once the lease ran out", extra=fields(cause=repr(fault)))

    async def close(self) -> None:
        self._disconnect()

    async def raise_epochs(self, connection: Any) -> None:
        """Keep what is owned under higher epochs: a write whose outcome is not known has happened then, or never will."""
        before = frozenset(self._epochs)
        raised = await self._store.raise_epochs(connection, self.instance)
        taken_meanwhile = {shard: epoch for shard, epoch in self._epochs.items() if shard not in before}
        self._keep(taken_meanwhile | raised)

    async def held(self, connection: Any, epochs: Mapping[int, int]) -> bool:
        """Within a transaction: whether it may write under these epochs. They then hold until it ends."""
        return await self._store.held(connection, epochs)

    def look_again(self) -> None:
        """A write was refused: somebody else is the owner now."""
        self._wake.set()

    def _keep(self, epochs: Mapping[int, int]) -> None:
        """These are owned; what is not among them is lost."""
        lost = frozenset(self._epochs.keys() - epochs.keys())
        for shard in lost:
            del self._epochs[shard]
        for shard, epoch in self._epochs.items():
            self._epochs[shard] = max(epoch, epochs[shard])
        if lost:
            log.warning("lost shards to another owner", extra=fields(shards=sorted(lost)))
            self.on_lost(lost)

    async def _look(self) -> float:
        """One round. Returns: in how many seconds there may be something to take."""
        connection = await self._connected()
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
                self.on_taken(frozenset(taken))
            self._epochs |= taken
        if surplus or taken:
            await self._store.tell(connection)
            shards = await self._store.shards(connection)
        self._owners = {known.shard: known for known in shards}
        if len(taken) < len(free):
            return SOON_S
        ends = [known.ends_in_s for known in shards if known.owner not in (None, node_id) and known.ends_in_s > 0]
        return max(min(ends, default=self._lease_s), SOON_S)

    async def _give_back(self, connection: Any, shards: Iterable[int]) -> None:
        """Stop serving shards, finish what is under way, then let others have them."""
        given = frozenset(shards)
        for shard in given:
            self._epochs.pop(shard, None)
        try:
            async with asyncio.timeout(self._lease_s / 3):
                await self.drain(given)
        except TimeoutError:
            log.warning("gave shards back with work under way", extra=fields(shards=sorted(given)))
        self.on_lost(given)
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
    """Hear what others tell, not what was told over this connection."""

    def listen(_: Any, process: int, *__: Any) -> None:
        if process != own:
            heard()

    return listen
