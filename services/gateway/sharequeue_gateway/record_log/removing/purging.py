"""The purge, in stages: rows below log starts and of deleted topics, aborted transactions, dead letters in deleted
topics, finished marks, partitions.

A partition with rows to remove has a mark: at the time `trimmed_at`, its log start was `purge_before`. Later trims do
not move the mark, or the rows of a partition that is trimmed often would never be old enough.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from sharequeue.repeats import Every
from sharequeue.service.failed_looks import looking
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.key_store import KNOWN_S
from sharequeue_gateway.record_log.store import NOW_MS, Connection, changed, remove_some

PURGE_PAUSE_S: Final = 15.0
AT_ONCE: Final = 1000
PURGE_AFTER_S: Final = 60
"""The age at which rows below the log start are removed: until then a read under way may need them."""
FORGET_AFTER_S: Final = 7 * 86_400
"""The age at which a deleted topic is forgotten: longer than a gateway can work without the group coordinator."""

TABLES: Final = {
    "dead_letter_writers": "true",
    "readers": "true",
    "dead_letter_sources": "record IS NOT NULL",
    "aborted_transactions": "true",
}
"""Tables of other modules with rows of a topic, and which of them go with it: of dead letters, the parked ones."""

OF_TOPICS: Final = ("scheduled_records", "scheduled_counts", "schedules", "unique_keys")
"""Tables of which the rows of a topic go when it is deleted."""

_BEFORE = "CASE WHEN p.deleted THEN 9223372036854775807 ELSE p.purge_before END"

_PURGEABLE = f"""b.topic_id = p.topic_id AND b.partition = p.partition
  AND b.base_offset < {_BEFORE} AND b.last_offset < {_BEFORE}"""

_ENDED = f"a.topic_id = p.topic_id AND a.partition = p.partition AND a.marker_offset < {_BEFORE}"
"""Aborted transactions of a partition whose marker is purged: no batch of theirs is left to be read."""


_LETTERS = """p.deleted AND s.letter_topic_id = p.topic_id AND s.letter_partition = p.partition
  AND s.letter_offset >= 0"""
"""Dead letters in a partition of a deleted topic."""


async def _remove_below_marks(
    table: str, name: str, which: str, order: str, connection: Connection, at_once: int, seconds: int, *, lock: str = ""
) -> int:
    """Remove some rows below marks that are `seconds` old, or of deleted topics. Returns: how many.

    `name`: of a row of `table` in `which`, the rows of a partition `p` that may go.
    """
    return await changed(
        connection,
        f"""DELETE FROM log.{table} WHERE ctid = ANY(ARRAY(
              SELECT place FROM log.partitions p CROSS JOIN LATERAL (
                SELECT {name}.ctid AS place FROM log.{table} {name} WHERE {which} ORDER BY {order} LIMIT $1 {lock}) found
              WHERE p.trimmed_at IS NOT NULL AND (p.deleted OR p.trimmed_at < now() - make_interval(secs => $2))
              LIMIT $1))""",
        at_once,
        seconds,
    )


remove_rows: Final = partial(_remove_below_marks, "record_batches", "b", _PURGEABLE, "b.base_offset")
remove_aborted: Final = partial(_remove_below_marks, "aborted_transactions", "a", _ENDED, "a.marker_offset")
remove_letters: Final = partial(
    _remove_below_marks, "dead_letter_sources", "s", _LETTERS, "s.letter_offset", lock="FOR UPDATE SKIP LOCKED"
)


async def renew_marks(connection: Connection, at_once: int, seconds: int) -> int:
    """Remove marks that are `seconds` old and have no rows left; renew those whose log start has moved on.

    Returns: how many.
    """
    return await changed(
        connection,
        f"""UPDATE log.partitions p SET purge_before = p.log_start_offset,
              trimmed_at = CASE WHEN p.log_start_offset > p.purge_before AND NOT p.deleted THEN clock_timestamp() END
            FROM (
              SELECT p.topic_id, p.partition FROM log.partitions p
              WHERE p.trimmed_at < now() - make_interval(secs => $2)
                AND (SELECT b.base_offset FROM log.record_batches b WHERE {_PURGEABLE}
                     ORDER BY b.base_offset LIMIT 1) IS NULL
                AND NOT EXISTS (SELECT FROM log.aborted_transactions a WHERE {_ENDED})
                AND (SELECT s.letter_offset FROM log.dead_letter_sources s WHERE {_LETTERS}
                     ORDER BY s.letter_offset LIMIT 1) IS NULL
              LIMIT $1 FOR UPDATE SKIP LOCKED) done
            WHERE p.topic_id = done.topic_id AND p.partition = done.partition""",
        at_once,
        seconds,
    )


async def forget_deleted(connection: Connection, at_once: int, seconds: int) -> int:
    """Forget topics that were deleted `seconds` ago and have no rows left. Returns: how many partitions.

    Until then the rows of their partitions refuse writers that do not know of the deletion.
    """
    topics = await connection.fetch(
        """SELECT DISTINCT topic_id FROM (
             SELECT topic_id FROM log.partitions
             WHERE deleted_at < now() - make_interval(secs => $2) AND trimmed_at IS NULL LIMIT $1) old""",
        at_once,
        seconds,
    )
    if not topics:
        return 0
    gone = [row[0] for row in topics]
    # no index: these tables are small, and this happens once for each topic
    for table, which in TABLES.items():
        await connection.execute(f"DELETE FROM log.{table} WHERE topic_id = ANY($1::uuid[]) AND {which}", gone)
    return await changed(
        connection,
        """DELETE FROM log.partitions WHERE topic_id = ANY($1::uuid[])
           AND deleted_at < now() - make_interval(secs => $2) AND trimmed_at IS NULL""",
        gone,
        seconds,
    )


async def remove_expired(table: str, connection: Connection, at_once: int, _: int) -> int:
    """Remove some rows of another module's table whose time has passed. Returns: how many."""
    return await remove_some(connection, table, f"expires_at_ms <= (SELECT {NOW_MS}) ORDER BY expires_at_ms", at_once)


async def remove_of_deleted(table: str, connection: Connection, at_once: int, _: int) -> int:
    """Remove some rows of deleted topics from a table that may have many of them. Returns: how many."""
    return await changed(
        connection,
        f"""DELETE FROM log.{table} WHERE ctid = ANY(ARRAY(
              SELECT s.ctid FROM (SELECT DISTINCT topic_id FROM log.partitions WHERE deleted_at IS NOT NULL) d
              CROSS JOIN LATERAL (
                SELECT ctid FROM log.{table} WHERE topic_id = d.topic_id LIMIT $1 FOR UPDATE SKIP LOCKED) s LIMIT $1))""",
        at_once,
    )


class OldKeys:
    """Removes idempotency keys whose time has passed. Each removal begins where the last one ended: what a backup of
    hours keeps in the index, although it is removed, is not read again and again."""

    def __init__(self) -> None:
        self._behind_ms = 0

    async def remove(self, connection: Connection, at_once: int, _: int) -> int:
        """Remove some. Returns: how many."""
        now_ms: int = await connection.fetchval(f"SELECT {NOW_MS}")
        self._behind_ms = min(self._behind_ms, now_ms)  # PostgreSQL's clock may have been set back
        rows = await connection.fetch(
            """DELETE FROM log.idempotency_keys WHERE ctid = ANY(ARRAY(
                 SELECT ctid FROM log.idempotency_keys WHERE expires_at_ms >= $2 AND expires_at_ms <= $3
                 ORDER BY expires_at_ms LIMIT $1 FOR UPDATE))
               RETURNING expires_at_ms""",
            at_once,
            self._behind_ms,
            now_ms,
        )
        self._behind_ms = max([self._behind_ms, *(row[0] for row in rows)])
        return len(rows)


async def remove_outcomes(which: str, connection: Connection, at_once: int, seconds: int) -> int:
    """Forget the outcomes of transactions that ended `seconds` ago, as `which` says. Returns: how many."""
    old = f"{which} AND ended_at < (SELECT now() - make_interval(secs => $2)) ORDER BY ended_at"
    return await remove_some(connection, "transaction_outcomes", old, at_once, seconds)


Stage = Callable[[Connection, int, int], Awaitable[int]]
STAGES: Final[Sequence[tuple[Stage, int]]] = (
    (remove_rows, PURGE_AFTER_S),
    (remove_aborted, PURGE_AFTER_S),
    (remove_letters, 0),
    (renew_marks, PURGE_AFTER_S),
    *((partial(remove_of_deleted, table), 0) for table in OF_TOPICS),
    *((partial(remove_expired, table), 0) for table in ("unique_keys", "outcomes", "samples")),
    (partial(remove_outcomes, "committed"), KNOWN_S),
    (partial(remove_outcomes, "NOT committed"), KNOWN_S),
    (forget_deleted, FORGET_AFTER_S),
)


async def run(database: LogDatabase, forget_unused: Callable[[], None]) -> None:
    """Purge again and again. Never returns.

    `forget_unused`: called at each turn, but not while PostgreSQL is away: the known ends show whether it comes back
    older.
    """
    old_keys = OldKeys()
    async for _ in Every(PURGE_PAUSE_S, at_once=True):
        with looking("purge", "cannot purge the record log"):
            for stage, after_s in (*STAGES, (old_keys.remove, 0)):
                while await database.query(stage, AT_ONCE, after_s) >= AT_ONCE:
                    pass
            forget_unused()
