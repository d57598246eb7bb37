"""By whom and when records were finished, for groups that keep it."""

from sharequeue.stack.migrate import execute

revision = "log_13"
down_revision = "log_12"


def upgrade() -> None:
    """A row is a range that one acknowledgement has finished. `share.outcomes.keep.ms` of the group says how long it is
    kept."""
    execute("""
        CREATE TABLE log.outcomes (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            first_offset bigint NOT NULL,
            last_offset bigint NOT NULL,
            member_id text,
            at_ms bigint NOT NULL,
            expires_at_ms bigint NOT NULL,
            PRIMARY KEY (group_id, topic_id, partition, first_offset)
        );
        CREATE INDEX outcomes_old ON log.outcomes (expires_at_ms);
    """)
