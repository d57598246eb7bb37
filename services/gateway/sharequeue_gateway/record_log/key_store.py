"""The SQL of idempotency keys. A key is known until the purge removes its row, which it does when its time has passed
by PostgreSQL's clock: the clocks of gateways may differ.
"""

from typing import Final, NamedTuple

from sharequeue_gateway.record_log.store import NOW_MS

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


class NewKey(NamedTuple):
    """A key that is stored with a batch; all None: the batch has no key. `lock`: see `locked_append.lock_of`.
    `known_ms`: for how long it is known."""

    lock: int | None = None
    key: str | None = None
    path: str | None = None
    caller: str | None = None
    fingerprint: bytes | None = None
    answer: bytes | None = None
    known_ms: int | None = None


NO_KEY: Final = NewKey()
KEEP: Final = f"""
INSERT INTO log.idempotency_keys (expires_at_ms, topic_id, key, path, caller, fingerprint, answer, base_offsets)
SELECT {NOW_MS} + """
