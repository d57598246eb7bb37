"""Schedules: each makes a record of its topic at each of its times."""

from sharequeue.stack.migrate import execute

revision = "log_8"
down_revision = "log_7"


def upgrade() -> None:
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
