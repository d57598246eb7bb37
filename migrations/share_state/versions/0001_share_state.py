"""The state of share-partitions: keys, rows of snapshots and updates, and shards."""

from sharequeue.stack.migrate import execute

revision = "share_state_1"
down_revision = None


def upgrade() -> None:
    execute("""
        CREATE TABLE share_state.share_partitions (
            key_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            UNIQUE (group_id, topic_id, partition)
        );
        CREATE INDEX share_partitions_topic ON share_state.share_partitions (topic_id);
        CREATE TABLE share_state.share_records (
            key_id bigint NOT NULL,
            seq bigint GENERATED ALWAYS AS IDENTITY,
            kind smallint NOT NULL,
            record bytea NOT NULL,
            written_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (key_id, seq)
        );
    """)
    execute("""
        CREATE TABLE share_state.instances (
            node_id text PRIMARY KEY,
            incarnation text NOT NULL,
            url text NOT NULL,
            seen_at timestamptz NOT NULL
        );
        CREATE TABLE share_state.shards (
            shard int PRIMARY KEY,
            owner text,
            incarnation text,
            url text,
            owner_epoch bigint NOT NULL DEFAULT 0,
            lease_until timestamptz
        );
    """)
