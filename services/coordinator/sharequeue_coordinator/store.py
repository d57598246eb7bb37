"""The group coordinator's SQL, one function per statement. Schema `groups`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from sharequeue.protocol.internal import Gateway, GatewayGeneration

Connection = Any  # asyncpg ships no types


class TopicRow(NamedTuple):
    """A topic as it is stored; `config` holds only what differs from the defaults."""

    topic_id: str
    name: str
    partitions: int
    config: dict[str, str]


class GroupTopicRow(NamedTuple):
    """A group's share-partitions of one topic: being initialised, and initialised."""

    topic_id: str
    initializing: frozenset[int]
    initialized: frozenset[int]


def _topic(row: Any) -> TopicRow:
    return TopicRow(str(row[0]), row[1], row[2], msgspec.json.decode(row[3]))


def _json(config: Mapping[str, str]) -> str:
    return msgspec.json.encode(config).decode()


async def topics(connection: Connection) -> list[TopicRow]:
    rows = await connection.fetch("SELECT topic_id, name, partitions, config FROM groups.topics WHERE NOT deleting")
    return [_topic(row) for row in rows]


async def topic(connection: Connection, name: str) -> TopicRow | None:
    """The topic of that name; waits for a change of it that is still under way."""
    row = await connection.fetchrow(
        "SELECT topic_id, name, partitions, config FROM groups.topics WHERE name = $1 AND NOT deleting FOR UPDATE", name
    )
    return None if row is None else _topic(row)


async def insert_topic(connection: Connection, new: TopicRow) -> TopicRow | None:
    """Returns: the topic of that name: this one, or one that was there before."""
    status: str = await connection.execute(
        """INSERT INTO groups.topics (topic_id, name, partitions, config) VALUES ($1, $2, $3, $4::jsonb)
           ON CONFLICT (name) WHERE NOT deleting DO NOTHING""",
        new.topic_id,
        new.name,
        new.partitions,
        _json(new.config),
    )
    return new if status == "INSERT 0 1" else await topic(connection, new.name)


async def update_topic(connection: Connection, changed: TopicRow) -> TopicRow:
    await connection.execute(
        "UPDATE groups.topics SET partitions = $2, config = $3::jsonb WHERE topic_id = $1",
        changed.topic_id,
        changed.partitions,
        _json(changed.config),
    )
    return changed


async def mark_topic_deleting(connection: Connection, topic_id: str) -> None:
    await connection.execute("UPDATE groups.topics SET deleting = true WHERE topic_id = $1", topic_id)


async def deleting_topics(connection: Connection) -> list[tuple[str, int]]:
    rows = await connection.fetch("SELECT topic_id, partitions FROM groups.topics WHERE deleting")
    return [(str(row[0]), row[1]) for row in rows]


async def remove_topic(connection: Connection, topic_id: str) -> None:
    """Forget a topic and every group's metadata of it."""
    async with connection.transaction():
        await connection.execute("DELETE FROM groups.share_group_topics WHERE topic_id = $1", topic_id)
        await connection.execute("DELETE FROM groups.topics WHERE topic_id = $1", topic_id)


async def group(connection: Connection, group_id: str) -> tuple[int, list[GroupTopicRow]] | None:
    """A group's epoch and share-partitions, or None if there is no such group."""
    epoch = await connection.fetchval(
        "SELECT group_epoch FROM groups.share_groups WHERE group_id = $1 AND NOT deleted", group_id
    )
    if epoch is None:
        return None
    rows = await connection.fetch(
        "SELECT topic_id, initializing, initialized FROM groups.share_group_topics WHERE group_id = $1", group_id
    )
    return epoch, [GroupTopicRow(str(row[0]), frozenset(row[1]), frozenset(row[2])) for row in rows]


async def group_count(connection: Connection) -> int:
    count: int = await connection.fetchval("SELECT count(*) FROM groups.share_groups WHERE NOT deleted")
    return count


async def bump_group(connection: Connection, group_id: str) -> int:
    """Make the group, or raise its epoch; a deleted group's epoch goes on. Returns: the new epoch."""
    epoch: int = await connection.fetchval(
        """INSERT INTO groups.share_groups (group_id, group_epoch) VALUES ($1, 2)
           ON CONFLICT (group_id) DO UPDATE SET group_epoch = groups.share_groups.group_epoch + 1, deleted = false
           RETURNING group_epoch""",
        group_id,
    )
    return epoch


async def save_group_topics(connection: Connection, group_id: str, rows: Sequence[GroupTopicRow]) -> None:
    await connection.executemany(
        """INSERT INTO groups.share_group_topics (group_id, topic_id, initializing, initialized)
           VALUES ($1, $2, $3, $4)
           ON CONFLICT (group_id, topic_id) DO UPDATE SET initializing = $3, initialized = $4, deleting = false""",
        [(group_id, row.topic_id, sorted(row.initializing), sorted(row.initialized)) for row in rows],
    )


async def remove_group_topics(connection: Connection, group_id: str, topic_ids: Sequence[str]) -> None:
    await connection.execute(
        "DELETE FROM groups.share_group_topics WHERE group_id = $1 AND topic_id = ANY($2::uuid[])", group_id, topic_ids
    )


async def group_config(connection: Connection, group_id: str) -> dict[str, str]:
    text = await connection.fetchval("SELECT config FROM groups.share_group_configs WHERE group_id = $1", group_id)
    config: dict[str, str] = {} if text is None else msgspec.json.decode(text)
    return config


async def save_group_config(connection: Connection, group_id: str, config: Mapping[str, str]) -> None:
    await connection.execute(
        """INSERT INTO groups.share_group_configs (group_id, config) VALUES ($1, $2::jsonb)
           ON CONFLICT (group_id) DO UPDATE SET config = $2::jsonb""",
        group_id,
        _json(config),
    )


async def next_leader_epoch(connection: Connection) -> int:
    epoch: int = await connection.fetchval("SELECT nextval('groups.leader_epoch')")
    return epoch


async def gateway_generation(connection: Connection) -> GatewayGeneration:
    row = await connection.fetchrow("SELECT number, previous, gateways FROM groups.gateway_generation")
    return _generation(row)


async def next_gateway_generation(connection: Connection, gateways: Sequence[Gateway]) -> GatewayGeneration:
    """Make these gateways the ones that lead, under a number above every leader epoch given before."""
    row = await connection.fetchrow(
        """UPDATE groups.gateway_generation
           SET previous = number, number = nextval('groups.leader_epoch'), gateways = $1::jsonb
           RETURNING number, previous, gateways""",
        msgspec.json.encode(gateways).decode(),
    )
    return _generation(row)


def _generation(row: Any) -> GatewayGeneration:
    return GatewayGeneration(number=row[0], previous=row[1], gateways=msgspec.json.decode(row[2], type=list[Gateway]))
