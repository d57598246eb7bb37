"""The state of share-partitions: keys, rows of snapshots and updates, parts of large snapshots, and shards."""

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
            covers bigint,
            snapshot_id bigint,
            PRIMARY KEY (key_id, seq)
        );
    """)
    # The parts of a snapshot count once a row of `share_records` names them. They are compressed already.
    execute("""
        CREATE SEQUENCE share_state.snapshot_ids;
        CREATE TABLE share_state.snapshot_parts (
            key_id bigint NOT NULL,
            snapshot_id bigint NOT NULL,
            part int NOT NULL,
            data bytea STORAGE EXTERNAL NOT NULL,
            written_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (key_id, snapshot_id, part)
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
