"""The groups that read a partition, and how far each has finished it.
Retention does not trim what they have not finished."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE log.readers (
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            group_id text NOT NULL,
            state_epoch int NOT NULL,
            floor bigint NOT NULL,
            active_at timestamptz NOT NULL DEFAULT now(),
            hold_ms bigint NOT NULL DEFAULT 604800000,
            removed_unfinished bigint NOT NULL DEFAULT 0,
            PRIMARY KEY (topic_id, partition, group_id)
        ) WITH (fillfactor = 50)
    """)
    op.execute("CREATE INDEX readers_of_group ON log.readers (group_id)")


def downgrade() -> None:
    op.execute("DROP TABLE log.readers")
