"""Owners of shards on a real database: joins, leaves, deaths, pauses, and what each may still write."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from sharequeue.ownership.leases import NameTaken, Ownership, OwnershipLost
from sharequeue.ownership.settings import CoordinatorSettings
from sharequeue.ownership.shard_store import HELD, ShardStore
from sharequeue.protocol.errors import CoordinatorLoadInProgress, NotCoordinator
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable
from tests.storage.database import failed_looks, session
from tests.storage.lossy_proxy import LossyProxy

SCHEMA = "groups"
SHARDS = (-1, *range(8))
LONG_MS, SHORT_MS = 60_000, 2500
"""A lease longer than any test, and one short enough to wait for."""


async def held(connection: Any, shard: int, epoch: int) -> bool:
    """Whether a transaction may write under an epoch, which stays valid until it ends."""
    return bool(await connection.fetch(HELD.format(schema=SCHEMA, shards="$1", epochs="$2"), [shard], [epoch]))


class Owner:
    """One instance, and the events that it got."""

    def __init__(
        self,
        url: str,
        node_id: str,
        lease_ms: int,
        shards: tuple[int, ...] = SHARDS,
        at: str = "",
        cluster_token: str = "",
    ) -> None:
        """`at`: the address of the process."""

        async def connect() -> Any:
            return await asyncpg.connect(url, command_timeout=60)

        self.taken: list[int] = []
        self.lost: list[int] = []
        self.drained: list[int] = []
        settings = CoordinatorSettings(
            cluster_token=cluster_token, port=0, node_id=node_id, url=at or f"http://{node_id}", lease_ms=lease_ms
        )
        self.ownership = Ownership(connect, ShardStore(SCHEMA), settings, shards)
        self.loop: asyncio.Task[None] | None = None

    def shards_taken(self, shards: frozenset[int]) -> None:
        self.taken.extend(shards)

    def shards_lost(self, shards: frozenset[int]) -> None:
        self.lost.extend(shards)

    async def drain(self, shards: frozenset[int]) -> None:
        assert not shards & self.owned(), "no longer served"
        assert not shards & set(self.lost), "memory is still there"
        self.drained.extend(shards)

    def owned(self) -> set[int]:
        return set(self.ownership.owned)

    def serves(self, shard: int) -> bool:
        try:
            self.ownership.epoch(shard)
        except ApiError:
            return False
        return True

    async def may_write(self, url: str, shard: int, epoch: int) -> bool:
        async with session(url) as connection, connection.transaction():
            return await held(connection, shard, epoch)

    async def pause(self) -> None:
        """Stop its loops, as SIGSTOP would: nothing of it runs, and it keeps its memory."""
        assert self.loop is not None
        self.loop.cancel()
        await asyncio.gather(self.loop, return_exceptions=True)

    def resume(self) -> None:
        self.loop = asyncio.create_task(self.ownership.run())


@asynccontextmanager
async def owner(url: str, node_id: str, lease_ms: int = LONG_MS, **options: Any) -> AsyncIterator[Owner]:
    started = Owner(url, node_id, lease_ms, **options)
    await started.ownership.start(started)
    started.resume()
    try:
        yield started
    finally:
        await started.pause()
        await started.ownership.close()


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


def divided(one: Owner, other: Owner) -> bool:
    """Whether two instances have four shards and five. Who has five depends on whether a lease has ended on the way."""
    return min(len(one.owned()), len(other.owned())) == 4 and one.owned() | other.owned() == set(SHARDS)


async def test_a_single_instance_owns_every_shard_at_its_start(database_url: str) -> None:
    async with owner(database_url, "a") as a:
        assert a.owned() == set(SHARDS)
        assert all(a.serves(shard) for shard in SHARDS)
        assert a.ownership.count == 8
        assert {(known.shard, known.node_id, known.url) for known in a.ownership.owners()} == {
            (shard, "a", "http://a") for shard in SHARDS
        }


async def test_a_new_instance_gets_its_shards_at_once_and_returns_them_when_it_leaves(database_url: str) -> None:
    async with owner(database_url, "a") as a, owner(database_url, "b") as b, owner(database_url, "c") as c:
        await until(lambda: [len(one.owned()) for one in (a, b, c)] == [3, 3, 3])
        assert a.owned() | b.owned() | c.owned() == set(SHARDS)
        assert set(a.drained) == set(a.lost) >= set(SHARDS) - a.owned()
        before = a.owned(), c.owned()
        await b.ownership.stop()
        assert not b.owned()
        await until(lambda: a.owned() | c.owned() == set(SHARDS))
        assert before[0] < a.owned()
        assert before[1] < c.owned()
        assert not a.owned() & c.owned()


async def test_a_shard_of_another_owner_is_refused_with_its_address(database_url: str) -> None:
    async with owner(database_url, "a") as a, owner(database_url, "b") as b:
        await until(lambda: len(b.owned()) == 4 and len(a.ownership.owners()) == len(SHARDS))
        shard = next(iter(b.owned()))
        with pytest.raises(NotCoordinator) as refused:
            a.ownership.epoch(shard)
        assert refused.value.definite
        assert refused.value.extra == {"owner_url": "http://b", "owner_epoch": b.ownership.owned[shard]}
        await b.ownership.stop()
        with pytest.raises(CoordinatorLoadInProgress):
            b.ownership.epoch(shard)


async def test_a_paused_owner_may_write_nothing_and_serves_nothing(database_url: str) -> None:
    async with owner(database_url, "a", SHORT_MS) as a, owner(database_url, "b", SHORT_MS) as b:
        await until(lambda: divided(a, b))
        known = dict(a.ownership.owned)
        for shard, epoch in known.items():
            assert await a.may_write(database_url, shard, epoch)
        await a.pause()
        a.lost.clear()
        await until(lambda: b.owned() == set(SHARDS))
        for shard, epoch in known.items():
            assert not await a.may_write(database_url, shard, epoch)
            assert not a.serves(shard)
            assert b.ownership.owned[shard] > epoch
        assert not a.lost
        a.resume()
        await until(lambda: divided(a, b))
        assert set(known) <= set(a.lost)
        assert not a.owned() & b.owned()


async def test_a_shard_with_a_write_under_way_is_taken_after_it(database_url: str) -> None:
    async with owner(database_url, "a", SHORT_MS) as a, session(database_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        assert await held(connection, 3, a.ownership.owned[3])
        async with owner(database_url, "b", SHORT_MS) as b:
            await a.pause()
            await until(lambda: b.owned() == set(SHARDS) - {3})
            await transaction.commit()
            await until(lambda: b.owned() == set(SHARDS))


async def test_a_process_of_the_same_name_takes_over_at_once_and_ends_the_other(database_url: str) -> None:
    async with owner(database_url, "a") as old:
        known = dict(old.ownership.owned)
        await old.pause()
        async with owner(database_url, "a") as new:
            assert new.owned() == set(SHARDS)
            assert not await old.may_write(database_url, 0, known[0])
            old.resume()
            assert old.loop is not None
            with pytest.raises(OwnershipLost):
                await old.loop
            assert await new.may_write(database_url, 0, new.ownership.owned[0])


async def test_a_process_of_the_same_name_elsewhere_is_refused_while_the_first_one_lives(database_url: str) -> None:
    async with owner(database_url, "a", SHORT_MS) as first:
        known = dict(first.ownership.owned)
        second = Owner(database_url, "a", SHORT_MS, at="http://elsewhere")
        with pytest.raises(NameTaken, match=r"'a' runs at http://a, and renews its lease: .* another node id"):
            await second.ownership.start(second)
        assert first.ownership.owned == known
        await first.ownership.stop()
        async with owner(database_url, "a", LONG_MS, at="http://elsewhere") as next_one:
            assert next_one.owned() == set(SHARDS), "after a clean stop it waits for nothing"


async def test_another_stack_is_refused_while_the_first_one_lives(database_url: str) -> None:
    async with owner(database_url, "a", SHORT_MS, cluster_token="1" * 16) as first:
        known = dict(first.ownership.owned)
        for node_id, at in (("a", "http://a"), ("b", "http://b")):
            other = Owner(database_url, node_id, SHORT_MS, at=at, cluster_token="2" * 16)
            with pytest.raises(NameTaken, match="another stack, whose 'a' at http://a renews its lease"):
                await other.ownership.start(other)
        assert first.ownership.owned == known
        async with owner(database_url, "b", SHORT_MS, cluster_token="1" * 16) as second:
            await until(lambda: first.owned() | second.owned() == set(SHARDS) and bool(second.owned()))
            for one in (first, second):
                await one.pause()
        async with owner(database_url, "c", SHORT_MS, cluster_token="2" * 16) as another:
            await until(lambda: another.owned() == set(SHARDS))


async def test_a_setting_that_disagrees_with_the_database_is_refused(database_url: str) -> None:
    async with owner(database_url, "a"):
        wider = Owner(database_url, "b", LONG_MS, (-1, *range(9)))
        with pytest.raises(ValueError, match="over 8 shards in this database, not over 9"):
            await wider.ownership.start(wider)


async def test_raised_epochs_keep_the_shards_and_fence_earlier_writes(database_url: str) -> None:
    async with owner(database_url, "a") as a, session(database_url) as connection:
        before = dict(a.ownership.owned)
        await a.ownership.raise_epochs(connection)
        assert a.owned() == set(SHARDS)
        assert not await a.may_write(database_url, 1, before[1])
        assert await a.may_write(database_url, 1, a.ownership.owned[1])
        assert not a.lost


async def test_without_a_database_nothing_is_served_and_nothing_is_forgotten(database_url: str) -> None:
    async with LossyProxy(database_url).running() as proxy, owner(proxy.url, "a", SHORT_MS) as a:
        before = dict(a.ownership.owned)
        proxy.hold_requests = True
        await until(lambda: not a.serves(0))
        with pytest.raises(CoordinatorNotAvailable):
            a.ownership.epoch(0)
        proxy.cut()
        proxy.hold_requests = False
        await until(lambda: a.serves(0))
        assert dict(a.ownership.owned) == before
        assert not a.lost


@pytest.mark.parametrize("sqlstate", ["25006", "53100", "55P03", "57P01", "58030"])
async def test_a_refused_renewal_is_tried_again(
    database_url: str, caplog: pytest.LogCaptureFixture, sqlstate: str
) -> None:
    """Whatever PostgreSQL answers, the process goes on."""
    refuse = f"""CREATE FUNCTION {SCHEMA}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   RAISE EXCEPTION USING ERRCODE = '{sqlstate}';
                 END $$;
                 CREATE TRIGGER refuse BEFORE UPDATE ON {SCHEMA}.shards EXECUTE FUNCTION {SCHEMA}.refuse()"""
    async with owner(database_url, "a") as a, session(database_url) as admin:
        before = failed_looks("leases")
        await admin.execute(refuse)
        a.ownership.look_again()
        loop = a.loop
        assert loop is not None
        await until(lambda: "leases cannot be renewed" in caplog.messages or loop.done())
        assert not loop.done()
        assert failed_looks("leases") > before
        assert a.owned() == set(SHARDS)
        await admin.execute(f"DROP FUNCTION {SCHEMA}.refuse CASCADE")
        async with owner(database_url, "b") as b:
            a.ownership.look_again()
            await until(lambda: divided(a, b))
