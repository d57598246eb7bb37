"""What became of each dead letter, and where the dead letters of a record are."""

from alembic import op

revision = "log_9"
down_revision = "log_8"


def upgrade() -> None:
    """The key of a closed dead letter says how it ended: `new_*` is the place of its redriven record, `consumer_group`
    the group that finished it in its topic; it was dropped if both are null and `closed_at` is not.

    `dead_letter_sources` now has a row for each dead letter. `keeps`: cleaning keeps the record, because the open dead
    letter has no copy of it.
    """
    op.execute("""
        ALTER TABLE log.dead_letter_keys
            ADD COLUMN closed_at timestamptz, ADD COLUMN consumer_group text,
            ADD COLUMN new_topic_id uuid, ADD COLUMN new_partition int, ADD COLUMN new_offset bigint
    """)
    op.execute("ALTER TABLE log.dead_letter_sources ADD COLUMN keeps boolean NOT NULL DEFAULT true")
    op.execute("""
        CREATE INDEX dead_letter_sources_kept
        ON log.dead_letter_sources (topic_id, partition, record_offset) WHERE keeps
    """)
