"""The record log: batches, partitions, idempotency keys, dead-letter keys, parked dead letters."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE log.record_batches (
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            base_offset bigint NOT NULL,
            last_offset bigint NOT NULL,
            max_timestamp_ms bigint NOT NULL,
            record_count int NOT NULL,
            append_id uuid NOT NULL,
            generation int NOT NULL DEFAULT 0,
            attributes smallint NOT NULL DEFAULT 0,
            transaction_id text,
            records bytea NOT NULL,
            PRIMARY KEY (topic_id, partition, base_offset)
        ) WITH (toast_tuple_target = 8160)
    """)
    op.execute("ALTER TABLE log.record_batches ALTER COLUMN records SET STORAGE EXTERNAL")
    op.execute("""
        CREATE TABLE log.partitions (
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            log_start_offset bigint NOT NULL DEFAULT 0,
            end_floor bigint NOT NULL DEFAULT 0,
            deleted boolean NOT NULL DEFAULT false,
            trimmed_at timestamptz,
            PRIMARY KEY (topic_id, partition)
        )
    """)
    op.execute("CREATE INDEX partitions_trimmed ON log.partitions (trimmed_at) WHERE trimmed_at IS NOT NULL")
    op.execute("""
        CREATE TABLE log.idempotency_keys (
            created_hour int NOT NULL,
            topic_id uuid NOT NULL,
            key text NOT NULL,
            path text NOT NULL,
            caller text NOT NULL,
            fingerprint bytea NOT NULL,
            answer bytea NOT NULL,
            base_offsets bigint[] NOT NULL,
            PRIMARY KEY (topic_id, key, path, caller, created_hour)
        ) PARTITION BY RANGE (created_hour)
    """)
    op.execute("""
        CREATE TABLE log.dead_letter_keys (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            state_epoch int NOT NULL,
            record_offset bigint NOT NULL,
            delivery_count int NOT NULL,
            PRIMARY KEY (group_id, topic_id, partition, state_epoch, record_offset, delivery_count)
        )
    """)
    op.execute("""
        CREATE TABLE log.parked_dead_letters (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            record_offset bigint NOT NULL,
            delivery_count int NOT NULL,
            cause text NOT NULL,
            record bytea NOT NULL,
            parked_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (group_id, topic_id, partition, record_offset, delivery_count)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE log.parked_dead_letters, log.dead_letter_keys, log.idempotency_keys, log.partitions")
    op.execute("DROP TABLE log.record_batches")
