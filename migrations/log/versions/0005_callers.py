"""A key that was used without a caller is found by each caller: a producer may begin to send an access key."""

from alembic import op

revision = "log_5"
down_revision = "log_4"


def upgrade() -> None:
    """`new_keys` is as in log_4, but for the callers of keys."""
    op.execute("""
        CREATE OR REPLACE FUNCTION log.new_keys(append_ids uuid[], locks bigint[], topic_ids uuid[], keys text[],
                                                paths text[], callers text[], first int, last int) RETURNS uuid[]
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
                    WHERE k.topic_id = t.topic_id AND k.key = t.key AND k.path = t.path AND k.caller IN ('', t.caller)
                      AND k.created_half_day >= first AND k.created_half_day <= last LIMIT 1) IS NULL);
        END $$
    """)
