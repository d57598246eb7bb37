"""The SQL of idempotency keys. A key is known until the purge removes its row, which it does when its time has passed
by PostgreSQL's clock: the clocks of gateways may differ.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.store import COLUMNS, FEW, MAY_APPEND, Connection

DAY_MS: Final = 86_400_000
LASTING_MS: Final = 7 * DAY_MS
KNOWN_S: Final = 25 * 3600
"""How long the outcome of a transaction is known, and a transactional id after its last begin."""

LOOK_UP: Final = """
SELECT fingerprint, answer, base_offsets FROM log.idempotency_keys
WHERE topic_id = $1 AND key = $2 AND path = $3 AND (caller IN ('', $4) OR $4 = '')
ORDER BY caller = $4 DESC LIMIT 1
"""
"""The statement that finds a key: the caller's own before one without a caller, from a time when no key was asked for.
A caller without an access key finds those of all: the first try of a producer may have been at a gateway that asks for
one."""


def lock_of(path: str, topic_id: str, key: str) -> int:
    """The advisory lock of a key. All callers have the same one: a producer may have repeated a request with its key,
    while the first try without one is under way."""
    name = hashlib.blake2b("\0".join((path, topic_id, key)).encode(), digest_size=8).digest()
    return int.from_bytes(name, "big", signed=True)


class NewKey(NamedTuple):
    """A key that is stored with a batch; all None: the batch has no key. `lock`: see `lock_of`. `known_ms`: for how
    long it is known."""

    lock: int | None = None
    key: str | None = None
    path: str | None = None
    caller: str | None = None
    fingerprint: bytes | None = None
    answer: bytes | None = None
    known_ms: int | None = None


NO_KEY: Final = NewKey()
_TYPES: Final = (*store.TYPES, "bigint", "text", "text", "text", "bytea", "bytea", "bigint")
KEEP: Final = f"""
INSERT INTO log.idempotency_keys (expires_at_ms, topic_id, key, path, caller, fingerprint, answer, base_offsets)
SELECT {store.NOW_MS} + """

APPEND_ONE_WITH_KEY: Final = f"""
WITH fresh AS MATERIALIZED (
  SELECT log.new_keys(ARRAY[$7::uuid], ARRAY[$11::bigint], ARRAY[$1::uuid], ARRAY[$12], ARRAY[$13], ARRAY[$14])
    <> '{{}}' AS fresh),
written AS (
  INSERT INTO log.record_batches ({COLUMNS})
  SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 FROM fresh
  WHERE fresh AND {MAY_APPEND.format(lock_key="$10", topic_id="$1", partition="$2", base_offset="$3")}
  RETURNING append_id),
kept AS ({KEEP} $17::bigint, $1, $12, $13, $14, $15, $16, ARRAY[$3::bigint] FROM written)
SELECT append_id, true FROM written UNION ALL SELECT $7, false FROM fresh WHERE NOT fresh
"""
"""`append_with_keys` for a single batch, which most commits have."""


@lru_cache(FEW + 1)
def append_with_keys(count: int) -> str:
    """As `store.append_several`, for batches with keys.

    Each batch has its NewKey behind its columns. `used` has the batches whose key is locked or used by others. Neither
    they nor the batches behind them in their partition are inserted: there is no hole.
    """
    if count == 1:
        return APPEND_ONE_WITH_KEY
    keys = ", ".join(f"array_agg({name})" for name in ("append_id", "key_lock", "topic_id", "key", "path", "caller"))
    return f"""
WITH input ({COLUMNS}, lock_key, key_lock, key, path, caller, fingerprint, answer, known_ms)
  AS MATERIALIZED ({store.input_of(count, _TYPES)}),
fresh AS MATERIALIZED (SELECT log.new_keys({keys}) AS append_ids FROM input WHERE key_lock IS NOT NULL),
used AS MATERIALIZED (
  SELECT i.append_id, i.topic_id, i.partition, i.base_offset FROM input i
  WHERE i.key_lock IS NOT NULL AND i.append_id <> ALL((SELECT append_ids FROM fresh)::uuid[])),
{store.ALLOWED},
written AS (
  INSERT INTO log.record_batches ({COLUMNS})
  SELECT {COLUMNS} FROM input i JOIN allowed USING (topic_id, partition) WHERE NOT EXISTS (
    SELECT FROM used u
    WHERE u.topic_id = i.topic_id AND u.partition = i.partition AND u.base_offset <= i.base_offset)
  ORDER BY topic_id, partition, base_offset
  RETURNING append_id),
kept AS ({KEEP} known_ms, topic_id, key, path, caller, fingerprint, answer, ARRAY[base_offset]
  FROM input JOIN written USING (append_id) WHERE key_lock IS NOT NULL)
SELECT append_id, true FROM written UNION ALL SELECT append_id, false FROM used
"""


async def append(
    connection: Connection,
    batches: store.Rows,
    keys: Mapping[str, NewKey],
    timeout_s: float | None = None,
) -> tuple[set[str], set[str]]:
    """As `store.append`, and keep keys, by the append ids of their batches. Such a batch is inserted only if its key is
    new.

    Returns: the append ids of the inserted batches, and of those whose key is locked or used by others.
    Raises: TimeoutError: the insert may have happened.
    """
    kept = await store.kept_forms([batch for _, _, batch, _ in batches])
    of_keys = zip(*[keys.get(append_id, NO_KEY) for _, _, _, append_id in batches], strict=True)
    few = len(batches) <= FEW
    values = store.parameters(batches, kept, *map(list, of_keys), few=few)
    rows = await connection.fetch(append_with_keys(len(batches) if few else 0), *values, timeout=timeout_s)
    inserted = {append_id.hex for append_id, is_inserted in rows if is_inserted}
    return inserted, {append_id.hex for append_id, is_inserted in rows if not is_inserted}
