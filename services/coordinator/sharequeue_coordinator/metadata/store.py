"""The SQL of topics, gateways and the change feed, one function per statement. Schema `groups`.

Each write is under a fence: `groups.held` raises NOT_HELD if another instance owns the shard now. A write that gateways
and other instances must learn of calls `groups.note_change` in the same statement.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue.protocol.messages.cluster import Gateway, GatewayGeneration
from sharequeue_coordinator.database import Connection, Fence

CHANGES_CHANNEL: Final = "sharequeue_groups_changes"
EPOCHS_SKIPPED: Final = 50_000
"""More than the leader epochs that are given in the lag of a replica; 40,000 starts of PostgreSQL have room."""


class MetadataChange(NamedTuple):
    """One change: a topic, the settings of a group, or, with neither id, the gateways, or keys and rights."""

    version: int
    topic_id: str | None
    group_id: str | None


class TopicRow(NamedTuple):
    """A topic as it is stored; `config` holds only what differs from the defaults."""

    topic_id: str
    name: str
    partitions: int
    config: dict[str, str]


def _topic(row: Any) -> TopicRow:
    return TopicRow(str(row[0]), row[1], row[2], msgspec.json.decode(row[3]))


def _json(config: Mapping[str, str]) -> str:
    return msgspec.json.encode(config).decode()


async def topics(connection: Connection) -> list[TopicRow]:
    rows = await connection.fetch("SELECT topic_id, name, partitions, config FROM groups.topics WHERE NOT deleting")
    return [_topic(row) for row in rows]


async def topics_by_id(connection: Connection, topic_ids: Sequence[str]) -> list[TopicRow]:
    rows = await connection.fetch(
        "SELECT topic_id, name, partitions, config FROM groups.topics WHERE topic_id = ANY($1::uuid[]) AND NOT deleting",
        topic_ids,
    )
    return [_topic(row) for row in rows]


async def bind_record_log(connection: Connection, kafka_cluster_id: str | None) -> str | None:
    """Take a database without topics for a Kafka cluster (None: for PostgreSQL, as it is).

    Returns: the id of the cluster that it belongs to; None: it belongs to PostgreSQL.
    """
    if kafka_cluster_id is not None:
        await connection.execute(
            """INSERT INTO groups.record_log (kafka_cluster_id)
               SELECT $1 WHERE NOT EXISTS (SELECT FROM groups.topics) ON CONFLICT DO NOTHING""",
            kafka_cluster_id,
        )
    bound: str | None = await connection.fetchval("SELECT kafka_cluster_id FROM groups.record_log")
    return bound


async def insert_topic(connection: Connection, fence: Fence, new: TopicRow) -> None:
    """Create a topic, unless one of that name exists."""
    await connection.execute(
        """WITH made AS (
             INSERT INTO groups.topics (topic_id, name, partitions, config)
             SELECT $3, $4, $5, $6::jsonb FROM groups.held($1, $2)
             ON CONFLICT DO NOTHING RETURNING topic_id)
           SELECT groups.note_change(topic_id, NULL) FROM made""",
        *fence,
        new.topic_id,
        new.name,
        new.partitions,
        _json(new.config),
    )


async def update_topic(connection: Connection, fence: Fence, changed: TopicRow) -> None:
    await connection.execute(
        """WITH changed AS (
             UPDATE groups.topics SET partitions = $4, config = $5::jsonb FROM groups.held($1, $2)
             WHERE topic_id = $3 RETURNING topic_id)
           SELECT groups.note_change(topic_id, NULL) FROM changed""",
        *fence,
        changed.topic_id,
        changed.partitions,
        _json(changed.config),
    )


async def mark_topic_deleting(connection: Connection, fence: Fence, topic_id: str) -> None:
    await connection.execute(
        """WITH changed AS (
             UPDATE groups.topics SET deleting = true FROM groups.held($1, $2) WHERE topic_id = $3 RETURNING topic_id)
           SELECT groups.note_change(topic_id, NULL) FROM changed""",
        *fence,
        topic_id,
    )


async def deleting_topics(connection: Connection) -> list[tuple[str, int]]:
    rows = await connection.fetch("SELECT topic_id, partitions FROM groups.topics WHERE deleting")
    return [(str(row[0]), row[1]) for row in rows]


async def remove_topic(connection: Connection, fence: Fence, topic_id: str) -> None:
    """Remove a topic, and the rows that groups have for it."""
    async with connection.transaction():
        await connection.execute("SELECT groups.held($1, $2)", *fence)
        await connection.execute("DELETE FROM groups.share_group_topics WHERE topic_id = $1", topic_id)
        await connection.execute("DELETE FROM groups.topics WHERE topic_id = $1", topic_id)


async def fenced(connection: Connection, fence: Fence, function: Any, *arguments: Any) -> Any:
    """Run a function of another store in a transaction under a fence."""
    async with connection.transaction():
        await connection.execute("SELECT groups.held($1, $2)", *fence)
        return await function(connection, *arguments)


async def next_leader_epoch(connection: Connection, above: int = 0) -> tuple[int, bool]:
    """The next epoch, and whether others were skipped, so that it lies above a given one. An epoch never goes back.

    Few epochs are drawn one by one. Of many the last one is set: that is more than others draw at the same time.
    """
    row = await connection.fetchrow(
        """WITH known AS MATERIALIZED (
              SELECT s.last_value, CASE WHEN $1::bigint - s.last_value > 1000
                THEN setval('groups.leader_epoch', $1::bigint) ELSE s.last_value END AS passed FROM groups.leader_epoch s)
           SELECT max(nextval('groups.leader_epoch'))::int, bool_or($1::bigint > known.last_value)
           FROM known, generate_series(1, greatest(1, $1::bigint - known.passed + 1))""",
        above,
    )
    return row[0], row[1]


async def begin_time_line(connection: Connection, fence: Fence) -> None:
    """PostgreSQL was started again, and may have come back older: leader epochs and versions go on above all that it
    may have given, and so does the revision of keys and rights. The feed has no earlier changes, so all that follow it
    begin again."""
    async with connection.transaction():
        await connection.execute("SELECT groups.held($1, $2)", *fence)
        await connection.execute(
            "SELECT setval('groups.leader_epoch', least(last_value + $1, 2147480000)) FROM groups.leader_epoch",
            EPOCHS_SKIPPED,
        )
        await connection.execute(  # before the version: a change of keys and rights has this order, too
            """UPDATE groups.access_revision
               SET revision = greatest(revision + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"""
        )
        await connection.execute("DELETE FROM groups.metadata_changes")
        await connection.execute(
            """UPDATE groups.metadata_version
               SET version = greatest(version + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"""
        )
        await connection.execute("SELECT pg_notify($1, '')", CHANGES_CHANNEL)


async def gateway_generation(connection: Connection) -> GatewayGeneration:
    return _generation(await connection.fetchrow("SELECT number, previous, gateways FROM groups.gateway_generation"))


async def next_gateway_generation(
    connection: Connection, fence: Fence, gateways: Sequence[Gateway]
) -> GatewayGeneration:
    """Make these gateways the next generation. Its number is above every leader epoch that was given before."""
    row = await connection.fetchrow(
        """WITH next AS MATERIALIZED (
              SELECT nextval('groups.leader_epoch')::int AS number FROM groups.held($1, $2)),
            changed AS (
              UPDATE groups.gateway_generation g
              SET previous = g.number, number = next.number, gateways = $3::jsonb FROM next RETURNING g.*)
            SELECT number, previous, gateways, groups.note_change(NULL, NULL) FROM changed""",
        *fence,
        msgspec.json.encode(gateways).decode(),
    )
    return _generation(row)


def _generation(row: Any) -> GatewayGeneration:
    gateways = msgspec.json.decode(row[2], type=list[Gateway])
    return GatewayGeneration(number=row[0], previous=row[1], gateways=gateways)


# Changes


async def metadata_version(connection: Connection) -> int:
    """The version of the last change. Waits for a change that is being committed."""
    version: int = await connection.fetchval("SELECT version FROM groups.metadata_version FOR SHARE")
    return version


async def changes_after(connection: Connection, version: int) -> list[MetadataChange]:
    rows = await connection.fetch(
        "SELECT version, topic_id, group_id FROM groups.metadata_changes WHERE version > $1 ORDER BY version", version
    )
    return [MetadataChange(row[0], None if row[1] is None else str(row[1]), row[2]) for row in rows]
