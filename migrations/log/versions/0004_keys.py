"""Idempotency keys with a partition for each half day, and a function that looks up the keys of a whole commit."""

from alembic import op

revision = "log_4"
down_revision = "log_3"


def upgrade() -> None:
    """Keys had a partition an hour. A look-up visits all partitions that may have the key, and 26 of them cost more
    than the append. Keys that are stored are forgotten.

    `new_keys` returns the ids of those appends whose key no other transaction has locked or used, and locks these keys
    for this transaction. It waits for nothing. It is volatile PL/pgSQL, so that each of its statements sees everything
    that was committed before it: a look-up in the appending statement itself would miss a key that was committed just
    before its lock was taken.
    """
    op.execute("DROP TABLE log.idempotency_keys")
    op.execute("""
        CREATE TABLE log.idempotency_keys (
            created_half_day int NOT NULL,
            topic_id uuid NOT NULL,
            key text NOT NULL,
            path text NOT NULL,
            caller text NOT NULL,
            fingerprint bytea NOT NULL,
            answer bytea NOT NULL,
            base_offsets bigint[] NOT NULL,
            PRIMARY KEY (topic_id, key, path, caller, created_half_day)
        ) PARTITION BY RANGE (created_half_day)
    """)
    op.execute("""
        CREATE FUNCTION log.new_keys(append_ids uuid[], locks bigint[], topic_ids uuid[], keys text[], paths text[],
                                     callers text[], first int, last int) RETURNS uuid[]
        LANGUAGE plpgsql VOLATILE AS $$
        DECLARE locked uuid[];
        BEGIN
            locked := ARRAY(SELECT t.append_id FROM unnest(append_ids, locks) AS t(append_id, lock)
                            WHERE pg_try_advisory_xact_lock(t.lock));
            RETURN ARRAY(
                SELECT t.append_id FROM unnest(append_ids, topic_ids, keys, paths, callers)
                  AS t(append_id, topic_id, key, path, caller)
                WHERE t.append_id = ANY(locked) AND (
                    SELECT true FROM log.idempotency_keys k
                    WHERE k.topic_id = t.topic_id AND k.key = t.key AND k.path = t.path AND k.caller = t.caller
                      AND k.created_half_day >= first AND k.created_half_day <= last LIMIT 1) IS NULL);
        END $$
    """)
