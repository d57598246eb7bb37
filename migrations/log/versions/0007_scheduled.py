"""Records that enter the log at a later time."""

from sharequeue.stack.migrate import execute

revision = "log_7"
down_revision = "log_6"


def upgrade() -> None:
    """`tail`: the record as JSON without its offset and timestamp. `key_digest`: SHA-256 of its key, if it has one.

    `scheduled_counts` has several rows for each topic, so that requests do not wait for each other; their sum counts.
    """
    execute("""
        CREATE TABLE log.scheduled_records (
            schedule_id uuid PRIMARY KEY,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            deliver_at_ms bigint NOT NULL,
            key_digest bytea,
            bytes int NOT NULL,
            tail bytea STORAGE EXTERNAL NOT NULL
        ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
        CREATE INDEX scheduled_records_due ON log.scheduled_records (deliver_at_ms, schedule_id);
        CREATE INDEX scheduled_records_of_topic ON log.scheduled_records (topic_id, deliver_at_ms, schedule_id);
        CREATE INDEX scheduled_records_by_key ON log.scheduled_records (topic_id, key_digest, deliver_at_ms)
        WHERE key_digest IS NOT NULL;
        CREATE TABLE log.scheduled_counts (
            topic_id uuid NOT NULL,
            slot int NOT NULL,
            records bigint NOT NULL,
            bytes bigint NOT NULL,
            PRIMARY KEY (topic_id, slot)
        ) WITH (fillfactor = 50);
    """)
