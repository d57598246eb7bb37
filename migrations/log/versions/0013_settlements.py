"""Acknowledgements that a transaction committed, until the leaders of their share-partitions have applied them.

`settlements` has a row for each share-partition of such a transaction, written in the commit.
`transaction_outcomes.settled` says which acknowledgements a commit had, so that a repeat with other ones is refused.
"""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE log.settlements (
            transaction_id text NOT NULL,
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            state_epoch bigint NOT NULL,
            leader_epoch bigint NOT NULL,
            batches bytea NOT NULL,
            settled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (transaction_id, group_id, topic_id, partition)
        ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)
    """)
    op.execute("CREATE INDEX settlements_by_age ON log.settlements (settled_at)")
    op.execute("ALTER TABLE log.transaction_outcomes ADD COLUMN settled bytea")


def downgrade() -> None:
    op.execute("ALTER TABLE log.transaction_outcomes DROP COLUMN settled")
    op.execute("DROP TABLE log.settlements")
