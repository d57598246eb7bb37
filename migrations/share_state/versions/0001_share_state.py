"""The state of share-partitions: keys, rows of snapshots and updates, and the owner of the shard."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE share_state.share_partitions (
            key_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            UNIQUE (group_id, topic_id, partition)
        )
    """)
    op.execute("CREATE INDEX share_partitions_topic ON share_state.share_partitions (topic_id)")
    op.execute("""
        CREATE TABLE share_state.share_records (
            key_id bigint NOT NULL,
            seq bigint GENERATED ALWAYS AS IDENTITY,
            kind smallint NOT NULL,
            record bytea NOT NULL,
            written_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (key_id, seq)
        )
    """)
    op.execute("""
        CREATE TABLE share_state.shards (
            shard int PRIMARY KEY,
            owner_epoch bigint NOT NULL,
            owner text NOT NULL
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE share_state.shards, share_state.share_records, share_state.share_partitions")
