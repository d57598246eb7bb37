"""The SQL of the fast path of appends: one statement inserts the batches of a commit. It waits for nothing.

A batch is inserted if no other gateway is appending to its partition and the partition ends at its base offset. If it
has an idempotency key, the key must be new, and if it has a transaction, that must be open and the caller's. Where one
is refused, none behind it in its partition is inserted: there is no hole.
"""

import itertools
import os
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.compression import COMPRESS_FROM_BYTES
from sharequeue_gateway.record_log.key_store import KEEP, NO_KEY, NewKey
from sharequeue_gateway.record_log.store import COLUMNS, MAY_APPEND, Connection, lock_key

FEW: Final = 8
"""Up to so many batches are sent as single parameters. For arrays, asyncpg looks up the kind of each element: two or
three batches in arrays take a fifth more of this process's time, and a tenth more of the server's."""

_ONE: Final = f"""
  INSERT INTO log.record_batches ({COLUMNS})
  SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 {{source}}
  {MAY_APPEND.format(lock_key="$10", topic_id="$1", partition="$2", base_offset="$3")}
  RETURNING append_id"""
APPEND_ONE: Final = _ONE.format(source="WHERE")
"""`append` of a single batch, which most commits have. It takes a quarter less of the server's time."""
APPEND_ONE_WITH_KEY: Final = f"""
WITH fresh AS MATERIALIZED (
  SELECT log.new_keys(ARRAY[$7::uuid], ARRAY[$11::bigint], ARRAY[$1::uuid], ARRAY[$12], ARRAY[$13], ARRAY[$14])
    <> '{{}}' AS fresh),
written AS ({_ONE.format(source="FROM fresh WHERE fresh AND")}),
kept AS ({KEEP} $17::bigint, $1, $12, $13, $14, $15, $16, ARRAY[$3::bigint] FROM written)
SELECT append_id, true FROM written UNION ALL SELECT $7, false FROM fresh WHERE NOT fresh
"""
"""The same with a key: the NewKey is behind the columns of the batch."""

_TYPES: Final = ("uuid", "int", "bigint", "bigint", "bigint", "int", "uuid", "bytea", "int", "bigint")
"""Of COLUMNS, and of the lock key of the partition behind them, which the first batch of each partition has."""
_ALLOWED: Final = f"""allowed AS MATERIALIZED (
  SELECT h.topic_id, h.partition FROM {{heads}} WHERE h.lock_key IS NOT NULL AND {
    MAY_APPEND.format(
        lock_key="h.lock_key", topic_id="h.topic_id", partition="h.partition", base_offset="h.base_offset"
    )
})"""
"""The partitions to which this commit may append."""
_ALLOWED_OF_ROWS: Final = _ALLOWED.format(heads="input h")
_ALLOWED_OF_ARRAYS: Final = _ALLOWED.format(
    heads="unnest($1::uuid[], $2::int[], $3::bigint[], $10::bigint[]) AS h(topic_id, partition, base_offset, lock_key)"
)
"""Without the records: a statement that takes rows of arrays twice keeps a copy of them."""


class _More(NamedTuple):
    """A part of the statement that some commits need. `columns`: further ones of each batch. `asked`: a table that
    `refused`, the condition of batches that are not inserted, looks at. `added`: the rows that the others add."""

    columns: str
    types: tuple[str, ...]
    asked: str
    refused: str
    added: str


_KEYS: Final = _More(
    columns="key_lock, key, path, caller, fingerprint, answer, known_ms",
    types=("bigint", "text", "text", "text", "bytea", "bytea", "bigint"),
    asked="""fresh AS MATERIALIZED (
  SELECT log.new_keys(array_agg(append_id), array_agg(key_lock), array_agg(topic_id), array_agg(key), array_agg(path),
    array_agg(caller)) AS append_ids FROM input WHERE key_lock IS NOT NULL)""",
    refused="(key_lock IS NOT NULL AND append_id <> ALL((SELECT append_ids FROM fresh)::uuid[]))",
    added=f"""kept AS ({KEEP} known_ms, topic_id, key, path, caller, fingerprint, answer, ARRAY[base_offset]
  FROM input WHERE key_lock IS NOT NULL AND append_id IN (SELECT append_id FROM written))""",
)
"""The columns are those of a NewKey."""
_TRANSACTIONS: Final = _More(
    columns="transaction_id, owner",
    types=("text", "text"),
    asked=f"""open AS MATERIALIZED (
  SELECT i.transaction_id, i.owner FROM (SELECT DISTINCT transaction_id, owner FROM input) i CROSS JOIN LATERAL (
    SELECT FROM log.transactions t
    WHERE t.transaction_id = i.transaction_id AND t.deadline > clock_timestamp() AND {store.OWNED.format(owner="i.owner")}
      AND (SELECT count(*) FROM log.transaction_partitions r WHERE r.transaction_id = t.transaction_id)
        + (SELECT count(*) FROM allowed) <= {store.MOST_OF_TRANSACTION}
    FOR SHARE SKIP LOCKED) t)""",
    refused="""(transaction_id IS NOT NULL
    AND (transaction_id, owner) NOT IN (SELECT transaction_id, owner FROM open))""",
    added="""registered AS (
  INSERT INTO log.transaction_partitions (transaction_id, topic_id, partition, first_offset)
  SELECT transaction_id, topic_id, partition, min(base_offset) FROM written
  WHERE transaction_id IS NOT NULL GROUP BY 1, 2, 3 ON CONFLICT DO NOTHING)""",
)
"""`owner`: the patterns of the caller (`owner.Owner`). A transaction that is being ended is skipped, and so is one to
which this commit might add too many partitions: the slow path counts exactly. Each is looked up by its id: a join that
is planned while few are open reads all that are open later."""


def _input_of(count: int, types: Sequence[str]) -> str:
    """The rows of `input`: so many, as single parameters; 0: any number, as arrays."""
    if not count:
        return f"SELECT * FROM unnest({', '.join(f'${n}::{name}[]' for n, name in enumerate(types, 1))})"
    numbers = itertools.count(1)
    rows = (f"({', '.join(f'${next(numbers)}::{name}' for name in types)})" for _ in range(count))
    return f"VALUES {', '.join(rows)}"


@lru_cache(FEW + 1)
def append_several(count: int) -> str:
    """The statement of `append` for several batches. `count`: as in `_input_of`."""
    return f"""
WITH input ({COLUMNS}, lock_key) AS ({_input_of(count, _TYPES)}),
{_ALLOWED_OF_ROWS if count else _ALLOWED_OF_ARRAYS}
INSERT INTO log.record_batches ({COLUMNS})
SELECT {COLUMNS} FROM input JOIN allowed USING (topic_id, partition) ORDER BY topic_id, partition, base_offset
RETURNING append_id
"""


@lru_cache(3 * (FEW + 1))
def append_with_more(count: int, *more: _More) -> str:
    """As `append_several`, for batches with keys or of transactions."""
    names = ", ".join((COLUMNS, "lock_key", *[each.columns for each in more]))
    types = itertools.chain(_TYPES, *[each.types for each in more])
    transaction_id = "transaction_id" if _TRANSACTIONS in more else "NULL"
    return f"""
WITH input ({names}) AS MATERIALIZED ({_input_of(count, list(types))}),
{_ALLOWED_OF_ROWS},
{", ".join(each.asked for each in more)},
refused AS MATERIALIZED (
  SELECT append_id, topic_id, partition, base_offset FROM input WHERE {" OR ".join(each.refused for each in more)}),
written AS (
  INSERT INTO log.record_batches ({COLUMNS}, transaction_id, attributes)
  SELECT {COLUMNS}, {transaction_id}, CASE WHEN {transaction_id} IS NULL THEN 0 ELSE {store.TRANSACTIONAL} END
  FROM input i JOIN allowed USING (topic_id, partition) WHERE NOT EXISTS (
    SELECT FROM refused r
    WHERE r.topic_id = i.topic_id AND r.partition = i.partition AND r.base_offset <= i.base_offset)
  ORDER BY topic_id, partition, base_offset
  RETURNING append_id, topic_id, partition, base_offset, transaction_id),
{", ".join(each.added for each in more)}
SELECT append_id, true FROM written UNION ALL SELECT append_id, false FROM refused
"""


@lru_cache(maxsize=1)
def _append_ids(process_id: int) -> "itertools.count[int]":
    """A random number to count up from. A process that was forked begins at another one."""
    return itertools.count(random.SystemRandom().getrandbits(127))


def new_append_id() -> str:
    """A UUID, in hex, that no append of any gateway has: a random number of this process, counted up."""
    return f"{next(_append_ids(os.getpid())):032x}"


async def append(
    connection: Connection,
    batches: store.Rows,
    keys: Mapping[str, NewKey],
    owners: Mapping[str, str],
    timeout_s: float | None = None,
) -> dict[str, bool]:
    """Insert those batches that may be inserted.

    Args:
        keys: by append id, of batches with a key.
        owners: by append id, of each batch of a transaction: the patterns of its caller (`owner.Owner`).
    Returns: by append id, True: it is inserted; False: others use its key, or its transaction may not be open. Those
        that are left out may be inserted when those before them are.
    Raises: TimeoutError: the insert may have happened.
    """
    plain = not (keys or owners)
    if len(batches) > 1 or owners:
        statement, values = await _several(batches, keys, owners)
        rows = await connection.fetch(statement, *values, timeout=timeout_s)
        return {row[0].hex: plain or row[1] for row in rows}
    ((topic_id, partition, batch, append_id),) = batches
    records, size = batch.stored, None
    if len(records) >= COMPRESS_FROM_BYTES:
        ((records, size),) = await store.kept_forms([batch])
    rows = await connection.fetch(
        APPEND_ONE if plain else APPEND_ONE_WITH_KEY,
        topic_id,
        partition,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp_ms,
        batch.record_count,
        append_id,
        records,
        size,
        lock_key(topic_id, partition),
        *keys.get(append_id, ()),
        timeout=timeout_s,
    )
    return {append_id: plain or rows[0][1]} if rows else {}


async def _several(
    batches: store.Rows, keys: Mapping[str, NewKey], owners: Mapping[str, str]
) -> tuple[str, Sequence[Any]]:
    """The statement for these batches, and its parameters."""
    kept = await store.kept_forms([batch for _, _, batch, _ in batches])
    heads = {(topic_id, partition): append_id for topic_id, partition, _, append_id in reversed(batches)}
    locks = {append_id: lock_key(*place) for place, append_id in heads.items()}
    columns = [*store.columns(batches, kept), [locks.get(append_id) for *_, append_id in batches]]
    more = []
    if keys:
        more.append(_KEYS)
        columns += map(list, zip(*[keys.get(append_id, NO_KEY) for *_, append_id in batches], strict=True))
    if owners:
        more.append(_TRANSACTIONS)
        columns += [batch.transaction_id for _, _, batch, _ in batches], [owners.get(each) for *_, each in batches]
    count = len(batches) if len(batches) <= FEW else 0
    statement = append_with_more(count, *more) if more else append_several(count)
    return statement, list(itertools.chain.from_iterable(zip(*columns, strict=True))) if count else columns
