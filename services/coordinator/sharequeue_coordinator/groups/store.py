"""The SQL of groups: epochs, members, targets, share-partitions, settings. Schema `groups`.

A group's changes are one transaction, under a fence and on top of the revision that was read. So if the answer to an
earlier commit was lost and it comes later, the next save finds another revision, and the group is loaded again.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue.protocol.configs import PAUSED
from sharequeue_coordinator.database import Connection, Fence
from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.changes import Changes, Epochs, Member
from sharequeue_coordinator.share_group.initialization import GroupTopic
from sharequeue_coordinator.share_group.shared_sets import numbered

NO_REVISION: Final = -1
"""Of a group that never existed."""


class Outdated(Exception):
    """The group has another revision than the one that was read. Nothing is stored."""


class StoredGroup(NamedTuple):
    """A group as it is stored: under which revision, and as the changes that make it."""

    revision: int
    changes: Changes


def _assignment_json(assignment: Assignment) -> str:
    ordered = {topic_id: sorted(partitions) for topic_id, partitions in sorted(assignment.items())}
    return msgspec.json.encode(ordered).decode()


def _member(row: Any) -> Member:
    member_id, rack_id, client_id, client_host, names, epoch, previous_epoch, assignment = row
    return Member(
        member_id, rack_id, client_id, client_host, frozenset(names), epoch, previous_epoch, _assignment(assignment)
    )


def _assignment(text: str) -> dict[str, frozenset[int]]:
    return msgspec.json.decode(text, type=dict[str, frozenset[int]])


async def load(connection: Connection, group_id: str) -> StoredGroup | None:
    """A group, or None if no group of that name ever existed."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        row = await connection.fetchrow(
            """SELECT deleted, revision, group_epoch, assignment_epoch, assigned_at_ms, metadata_hash
               FROM groups.share_groups WHERE group_id = $1""",
            group_id,
        )
        if row is None:
            return None
        topics = await connection.fetch(
            """SELECT topic_id, deleting, initializing, initializing_epochs, initialized, first_partitions
               FROM groups.share_group_topics WHERE group_id = $1""",
            group_id,
        )
        members = await connection.fetch(
            """SELECT member_id, rack_id, client_id, client_host, subscribed_topic_names, member_epoch,
                 previous_member_epoch, assignment
               FROM groups.share_group_members WHERE group_id = $1""",
            group_id,
        )
        targets = await connection.fetch(
            "SELECT member_id, assignment FROM groups.share_group_targets WHERE group_id = $1", group_id
        )
    changes = Changes(
        deleted=row[0],
        epochs=Epochs(*row[2:]),
        members={member[0]: _member(member) for member in members},
        target={member_id: _assignment(text) for member_id, text in targets},
        topics={
            str(topic[0]): GroupTopic(numbered(topic[2], topic[3]), frozenset(topic[4]), topic[5])
            for topic in topics
            if not topic[1]
        },
        deleting=frozenset(str(topic[0]) for topic in topics if topic[1]),
    )
    return StoredGroup(row[1], changes)


async def save(connection: Connection, fence: Fence, group_id: str, revision: int, changes: Changes) -> bool:
    """Store the changes of a group, all or nothing, under the next revision.

    Returns: False if one of their topics is being deleted; nothing is stored then. Raises: Outdated.
    """
    async with connection.transaction():
        await connection.execute("SELECT groups.held($1, $2)", *fence)
        kept = {topic_id: topic for topic_id, topic in changes.topics.items() if topic is not None}
        if kept and not await _topics_stay(connection, kept):
            return False
        if changes.epochs is None:
            await _raise_revision(connection, group_id, revision)
        else:
            await _save_epochs(connection, group_id, revision, changes.epochs)
        if changes.members:
            await _save_members(connection, group_id, changes.members)
        if changes.target:
            await _save_targets(connection, group_id, changes.target)
        gone = [topic_id for topic_id in changes.topics if topic_id not in kept]
        if gone:
            await connection.execute(
                "DELETE FROM groups.share_group_topics WHERE group_id = $1 AND topic_id = ANY($2::uuid[])",
                group_id,
                gone,
            )
        if changes.deleting is not None:
            await _save_deleting(connection, group_id, changes.deleting)
        if kept:
            await _save_topics(connection, group_id, kept)
        if changes.deleted:
            await connection.execute("UPDATE groups.share_groups SET deleted = true WHERE group_id = $1", group_id)
        if changes.settings_unused_ms is not None:  # the row of the group is locked, and a change of settings waits
            await connection.execute(
                """WITH gone AS (
                     DELETE FROM groups.share_group_configs c USING groups.share_groups g
                     WHERE c.group_id = $1 AND g.group_id = $1 AND g.used_at <= now() - $2 * interval '1 ms'
                     RETURNING c.group_id)
                   SELECT groups.note_change(NULL, group_id) FROM gone""",
                group_id,
                changes.settings_unused_ms,
            )
    return True


async def _topics_stay(connection: Connection, topic_ids: Collection[str]) -> bool:
    rows = await connection.fetch(
        "SELECT 1 FROM groups.topics WHERE topic_id = ANY($1::uuid[]) AND NOT deleting FOR SHARE", list(topic_ids)
    )
    return len(rows) == len(topic_ids)


async def _save_epochs(connection: Connection, group_id: str, revision: int, epochs: Epochs) -> None:
    """Creates the group, or brings a deleted one back."""
    status = await connection.execute(
        """INSERT INTO groups.share_groups AS g
             (group_id, revision, group_epoch, assignment_epoch, assigned_at_ms, metadata_hash)
           VALUES ($1, $2 + 1, $3, $4, $5, $6)
           ON CONFLICT (group_id) DO UPDATE
           SET revision = $2 + 1, group_epoch = $3, assignment_epoch = $4, assigned_at_ms = $5, metadata_hash = $6,
             deleted = false, used_at = now()
           WHERE g.revision = $2""",
        group_id,
        revision,
        *epochs,
    )
    _check_one(status)


async def _raise_revision(connection: Connection, group_id: str, revision: int) -> None:
    status = await connection.execute(
        "UPDATE groups.share_groups SET revision = $2 + 1 WHERE group_id = $1 AND revision = $2", group_id, revision
    )
    _check_one(status)


def _check_one(status: str) -> None:
    if not status.endswith(" 1"):
        raise Outdated


async def _save_members(connection: Connection, group_id: str, members: Mapping[str, Member | None]) -> None:
    gone = [member_id for member_id, member in members.items() if member is None]
    if gone:
        await connection.execute(
            "DELETE FROM groups.share_group_members WHERE group_id = $1 AND member_id = ANY($2::text[])", group_id, gone
        )
    kept = [member for member in members.values() if member is not None]
    if kept:
        await connection.executemany(
            """INSERT INTO groups.share_group_members (group_id, member_id, rack_id, client_id, client_host,
                 subscribed_topic_names, member_epoch, previous_member_epoch, assignment)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb)
               ON CONFLICT (group_id, member_id) DO UPDATE
               SET rack_id = $3, client_id = $4, client_host = $5, subscribed_topic_names = $6, member_epoch = $7,
                 previous_member_epoch = $8, assignment = $9::jsonb""",
            [
                (
                    group_id,
                    member.member_id,
                    member.rack_id,
                    member.client_id,
                    member.client_host,
                    sorted(member.subscribed_topic_names),
                    member.member_epoch,
                    member.previous_member_epoch,
                    _assignment_json(member.assignment),
                )
                for member in kept
            ],
        )


async def _save_targets(connection: Connection, group_id: str, target: Mapping[str, Assignment]) -> None:
    gone = [member_id for member_id, assignment in target.items() if not assignment]
    if gone:
        await connection.execute(
            "DELETE FROM groups.share_group_targets WHERE group_id = $1 AND member_id = ANY($2::text[])", group_id, gone
        )
    kept = {member_id: assignment for member_id, assignment in target.items() if assignment}
    if kept:
        await connection.execute(
            """INSERT INTO groups.share_group_targets (group_id, member_id, assignment)
               SELECT $1, t.member_id, t.assignment::jsonb
               FROM unnest($2::text[], $3::text[]) AS t(member_id, assignment)
               ON CONFLICT (group_id, member_id) DO UPDATE SET assignment = EXCLUDED.assignment""",
            group_id,
            list(kept),
            [_assignment_json(assignment) for assignment in kept.values()],
        )


async def _save_topics(connection: Connection, group_id: str, topics: Mapping[str, GroupTopic]) -> None:
    await connection.executemany(
        """INSERT INTO groups.share_group_topics
             (group_id, topic_id, initializing, initializing_epochs, initialized, first_partitions)
           VALUES ($1, $2, $3, $4, $5, $6)
           ON CONFLICT (group_id, topic_id) DO UPDATE SET initializing = $3, initializing_epochs = $4,
             initialized = $5, first_partitions = $6, deleting = false""",
        [
            (
                group_id,
                topic_id,
                list(topic.initializing),
                list(topic.initializing.values()),
                sorted(topic.initialized),
                topic.first_partitions,
            )
            for topic_id, topic in topics.items()
        ],
    )


async def _save_deleting(connection: Connection, group_id: str, topic_ids: Collection[str]) -> None:
    """`topic_ids`: all topics whose state the group is deleting."""
    await connection.execute(
        "DELETE FROM groups.share_group_topics WHERE group_id = $1 AND deleting AND NOT topic_id = ANY($2::uuid[])",
        group_id,
        list(topic_ids),
    )
    await connection.execute(
        """INSERT INTO groups.share_group_topics (group_id, topic_id, deleting)
           SELECT $1, topic_id, true FROM unnest($2::uuid[]) AS t(topic_id)
           ON CONFLICT (group_id, topic_id) DO UPDATE
           SET deleting = true, initializing = '{}', initializing_epochs = '{}', initialized = '{}',
             first_partitions = 0""",
        group_id,
        list(topic_ids),
    )


async def with_members(connection: Connection) -> list[str]:
    rows = await connection.fetch("SELECT DISTINCT group_id FROM groups.share_group_members")
    return [row[0] for row in rows]


async def unused_groups(connection: Connection, unused_ms: int) -> list[str]:
    """The ids of groups without members that were not used for this time, as this table knows; at most 1,000, in no
    order."""
    rows = await connection.fetch(
        """SELECT group_id FROM groups.share_groups g
           WHERE NOT deleted AND used_at <= now() - $1 * interval '1 ms'
             AND NOT EXISTS (SELECT 1 FROM groups.share_group_members m WHERE m.group_id = g.group_id)
           ORDER BY random() LIMIT 1000""",
        unused_ms,
    )
    return [row[0] for row in rows]


async def note_use(connection: Connection, fence: Fence, group_id: str, unused_ms: int) -> None:
    """The group was used so long ago, or later."""
    await connection.execute(
        """UPDATE groups.share_groups SET used_at = greatest(used_at, now() - $4 * interval '1 ms')
           WHERE group_id = $3 AND groups.held($1, $2)""",
        *fence,
        group_id,
        unused_ms,
    )


async def counts(connection: Connection) -> tuple[int, int, int, int]:
    """Return how many groups there are, how many have members, and their share-partitions: at first, and initialised
    now."""
    row = await connection.fetchrow(
        """SELECT (SELECT count(*) FROM groups.share_groups WHERE NOT deleted),
             (SELECT count(DISTINCT group_id) FROM groups.share_group_members),
             coalesce(sum(first_partitions), 0)::bigint, coalesce(sum(cardinality(initialized)), 0)::bigint
           FROM groups.share_group_topics"""
    )
    return row[0], row[1], row[2], row[3]


async def page(
    connection: Connection, after: str | None, limit: int, with_members: Sequence[bool]
) -> list[tuple[str, bool, bool]]:
    """Groups with ids after `after`, by id, whether each has members, and whether it is paused;
    only those where `with_members` names the first."""
    rows = await connection.fetch(
        """SELECT group_id, has_members, EXISTS (
             SELECT 1 FROM groups.share_group_configs c
             WHERE c.group_id = listed.group_id AND c.config->>$4 = 'true') FROM (
             SELECT g.group_id,
               EXISTS (SELECT 1 FROM groups.share_group_members m WHERE m.group_id = g.group_id) AS has_members
             FROM groups.share_groups g WHERE NOT g.deleted AND ($1::text IS NULL OR g.group_id > $1)) listed
           WHERE has_members = ANY($3::boolean[]) ORDER BY group_id LIMIT $2""",
        after,
        limit,
        list(with_members),
        PAUSED,
    )
    return [(row[0], row[1], row[2]) for row in rows]


# Settings


async def group_config(connection: Connection, group_id: str) -> dict[str, str]:
    text = await connection.fetchval("SELECT config FROM groups.share_group_configs WHERE group_id = $1", group_id)
    config: dict[str, str] = {} if text is None else msgspec.json.decode(text)
    return config


async def save_group_config(connection: Connection, fence: Fence, group_id: str, config: Mapping[str, str]) -> None:
    await connection.execute(
        """WITH used AS (
             UPDATE groups.share_groups SET used_at = now() WHERE group_id = $3 RETURNING 1),
           saved AS (
             INSERT INTO groups.share_group_configs (group_id, config)
             SELECT $3, $4::jsonb FROM groups.held($1, $2), (SELECT count(*) FROM used) first
             ON CONFLICT (group_id) DO UPDATE SET config = $4::jsonb RETURNING group_id)
           SELECT groups.note_change(NULL, group_id) FROM saved""",
        *fence,
        group_id,
        msgspec.json.encode(config).decode(),
    )
