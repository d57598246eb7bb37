"""Schedules, each of which makes a record of its topic at each of its times; and the keys of unique records."""

from sharequeue.stack.migrate import execute

revision = "log_8"
down_revision = "log_7"


def upgrade() -> None:
    _schedules()
    _unique_keys()


def _schedules() -> None:
    """`next_at_ms`: the next time of the schedule, by PostgreSQL's clock. `missed`: what becomes of times that an
    outage has taken. `last_at_ms`: the last time that has its record."""
    execute("""
        CREATE TABLE log.schedules (
            topic_id uuid NOT NULL,
            name text NOT NULL,
            cron text NOT NULL,
            time_zone text NOT NULL,
            missed text NOT NULL,
            paused boolean NOT NULL,
            partition int NOT NULL,
            tail bytea NOT NULL,
            next_at_ms bigint NOT NULL,
            last_at_ms bigint,
            PRIMARY KEY (topic_id, name)
        ) WITH (fillfactor = 50);
        CREATE INDEX schedules_due ON log.schedules (next_at_ms) WHERE NOT paused;
    """)


def _unique_keys() -> None:
    """`key_digest`: SHA-256 of the key of a record. The row counts until its time, and has the record's place."""
    execute("""
        CREATE TABLE log.unique_keys (
            topic_id uuid NOT NULL,
            key_digest bytea NOT NULL,
            expires_at_ms bigint NOT NULL,
            partition int NOT NULL,
            record_offset bigint NOT NULL,
            PRIMARY KEY (topic_id, key_digest)
        );
        CREATE INDEX unique_keys_old ON log.unique_keys (expires_at_ms);
    """)
