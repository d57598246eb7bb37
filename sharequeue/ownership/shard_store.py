"""The SQL of shards and their owners, the same for both coordinators. Leases end by PostgreSQL's clock.

A write names its shards with their epochs and locks their rows FOR KEY SHARE. A renewal does not conflict with that
lock. A new owner locks the row FOR UPDATE first: it waits for the writes under way, and later ones find a higher epoch.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

HELD: Final = """
SELECT s.shard FROM {schema}.shards s
JOIN unnest({shards}::int[], {epochs}::bigint[]) AS named(shard, owner_epoch) USING (shard, owner_epoch)
FOR KEY SHARE OF s
"""
"""The named shards that still have the named epoch, locked until the transaction ends."""


class Instance(NamedTuple):
    """One process. `node_id` survives a restart, `incarnation` does not; others reach it at `url`.

    The beginning of an incarnation says which stack it is of: see `stack_of`."""

    node_id: str
    incarnation: str
    url: str


def stack_of(incarnation: str) -> str:
    """Return what all processes with one cluster token have in common."""
    return incarnation.partition("-")[0]


class Shard(NamedTuple):
    """The owner of a shard. `ends_in_s`: seconds until the lease ends; below 0 it has ended."""

    shard: int
    owner: str | None
    url: str
    owner_epoch: int
    ends_in_s: float


class ShardStore:
    """One function per statement, in the schema named `schema`."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.channel = f"sharequeue_{schema}_shards"

    async def prepare(self, connection: Any, shards: Sequence[int]) -> set[int]:
        """Insert the rows of these shards if the table is empty. Returns: the shards in the table."""
        await connection.execute(
            f"""INSERT INTO {self._schema}.shards (shard) SELECT * FROM unnest($1::int[])
                WHERE NOT EXISTS (SELECT 1 FROM {self._schema}.shards) ON CONFLICT DO NOTHING""",
            shards,
        )
        return {row[0] for row in await connection.fetch(f"SELECT shard FROM {self._schema}.shards")}

    async def rivals(self, connection: Any, instance: Instance, lease_s: float) -> dict[str, Any]:
        """Node id, URL, incarnation and last renewal of the processes that may live, and have this one's name at
        another address, or are of another stack; by incarnation."""
        rows = await connection.fetch(
            f"""SELECT node_id, url, incarnation, seen_at FROM {self._schema}.instances
                WHERE seen_at > clock_timestamp() - make_interval(secs => $4)
                  AND (node_id = $1 AND url <> $2 OR split_part(incarnation, '-', 1) <> $3)""",
            instance.node_id,
            instance.url,
            stack_of(instance.incarnation),
            lease_s,
        )
        return {row[2]: tuple(row) for row in rows}

    async def join(self, connection: Any, instance: Instance) -> None:
        """Take the name, also from another process, and delete instances that were last seen a day ago."""
        await connection.execute(
            f"""INSERT INTO {self._schema}.instances (node_id, incarnation, url, seen_at)
                VALUES ($1, $2, $3, clock_timestamp())
                ON CONFLICT (node_id) DO UPDATE SET incarnation = $2, url = $3, seen_at = clock_timestamp()""",
            *instance,
        )
        await connection.execute(f"DELETE FROM {self._schema}.instances WHERE seen_at < now() - interval '1 day'")

    async def renew(self, connection: Any, instance: Instance, lease_s: float) -> dict[int, int] | None:
        """Record that the instance lives, and renew its leases. Returns: epochs by shard;
        None if its name was taken."""
        async with connection.transaction():
            status: str = await connection.execute(
                f"""INSERT INTO {self._schema}.instances AS known (node_id, incarnation, url, seen_at)
                    VALUES ($1, $2, $3, clock_timestamp())
                    ON CONFLICT (node_id) DO UPDATE SET seen_at = clock_timestamp() WHERE known.incarnation = $2""",
                *instance,
            )
            if status != "INSERT 0 1":
                return None
            rows = await connection.fetch(
                f"""UPDATE {self._schema}.shards SET lease_until = clock_timestamp() + make_interval(secs => $3)
                    WHERE owner = $1 AND incarnation = $2 RETURNING shard, owner_epoch""",
                instance.node_id,
                instance.incarnation,
                lease_s,
            )
        return {row[0]: row[1] for row in rows}

    async def instances(self, connection: Any, lease_s: float) -> list[str]:
        rows = await connection.fetch(
            f"""SELECT node_id FROM {self._schema}.instances
                WHERE seen_at > clock_timestamp() - make_interval(secs => $1)""",
            lease_s,
        )
        return [row[0] for row in rows]

    async def shards(self, connection: Any) -> list[Shard]:
        rows = await connection.fetch(
            f"""SELECT shard, owner, coalesce(url, ''), owner_epoch,
                       coalesce(extract(epoch FROM lease_until - clock_timestamp())::float8, -1)
                FROM {self._schema}.shards ORDER BY shard"""
        )
        return [Shard(*row) for row in rows]

    async def take(self, connection: Any, instance: Instance, shards: Sequence[int], lease_s: float) -> dict[int, int]:
        """Become the owner of the shards that are free, whose lease ended,
        or that an earlier process of this name owned.

        Returns: epochs by shard, each higher than before. They begin at the time in milliseconds. So they lie above
            those that a database gave before an older state of it took its place. Shards with a write under way are
            left out.
        """
        async with connection.transaction():
            free = await connection.fetch(
                f"""SELECT shard FROM {self._schema}.shards
                    WHERE shard = ANY($1::int[]) AND (owner IS NULL OR owner = $2 OR lease_until < clock_timestamp())
                    ORDER BY shard FOR UPDATE SKIP LOCKED""",
                shards,
                instance.node_id,
            )
            taken = await connection.fetch(
                f"""UPDATE {self._schema}.shards SET owner = $2, incarnation = $3, url = $4,
                        owner_epoch = greatest(owner_epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
                        lease_until = clock_timestamp() + make_interval(secs => $5)
                    WHERE shard = ANY($1::int[]) RETURNING shard, owner_epoch""",
                [row[0] for row in free],
                *instance,
                lease_s,
            )
        return {row[0]: row[1] for row in taken}

    async def release(self, connection: Any, instance: Instance, shards: Iterable[int]) -> None:
        """Release shards, after the writes under way in them."""
        async with connection.transaction():
            await self._lock(connection, instance)
            await connection.execute(
                f"""UPDATE {self._schema}.shards SET owner = NULL, incarnation = NULL, url = NULL, lease_until = NULL
                    WHERE owner = $1 AND incarnation = $2 AND shard = ANY($3::int[])""",
                instance.node_id,
                instance.incarnation,
                list(shards),
            )

    async def leave(self, connection: Any, instance: Instance) -> None:
        await connection.execute(
            f"DELETE FROM {self._schema}.instances WHERE node_id = $1 AND incarnation = $2",
            instance.node_id,
            instance.incarnation,
        )

    async def raise_epochs(self, connection: Any, instance: Instance) -> dict[int, int]:
        """Raise the epochs of all shards of the instance. Its earlier writes have ended by then, or are refused.

        Returns: epochs by shard.
        """
        async with connection.transaction():
            await self._lock(connection, instance)
            rows = await connection.fetch(
                f"""UPDATE {self._schema}.shards SET owner_epoch = owner_epoch + 1
                    WHERE owner = $1 AND incarnation = $2 RETURNING shard, owner_epoch""",
                instance.node_id,
                instance.incarnation,
            )
        return {row[0]: row[1] for row in rows}

    async def _lock(self, connection: Any, instance: Instance) -> None:
        await connection.execute(
            f"SELECT 1 FROM {self._schema}.shards WHERE owner = $1 AND incarnation = $2 ORDER BY shard FOR UPDATE",
            instance.node_id,
            instance.incarnation,
        )

    async def wake(self, connection: Any) -> None:
        """Make the other instances look at once."""
        await connection.execute("SELECT pg_notify($1, '')", self.channel)
