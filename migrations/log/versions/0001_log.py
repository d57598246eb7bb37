"""The record log: batches, partitions, idempotency keys, dead letters, readers, activity and transactions."""

from alembic import op

from sharequeue.stack.migrate import execute

revision = "log_1"
down_revision = None


def upgrade() -> None:
    _batches()
    _idempotency_keys()
    _dead_letters()
    _readers()
    _activity()
    _transactions()
    _ended_transactions()


def _batches() -> None:
    """`uncompressed_bytes` is the size of a batch that is stored as one LZ4 block, and null otherwise.

    In `partitions`, the first of several trims sets `purge_before`, so that later trims do not postpone the purge.
    `replacements` counts replaced batches: gateways compare it, and discard older batches from memory.
    """
    execute("""
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
            records bytea STORAGE EXTERNAL NOT NULL,
            uncompressed_bytes int,
            PRIMARY KEY (topic_id, partition, base_offset)
        ) WITH (toast_tuple_target = 8160);
        CREATE TABLE log.partitions (
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            log_start_offset bigint NOT NULL DEFAULT 0,
            end_floor bigint NOT NULL DEFAULT 0,
            deleted boolean NOT NULL DEFAULT false,
            trimmed_at timestamptz,
            purge_before bigint NOT NULL DEFAULT 0,
            deleted_at timestamptz,
            replacements bigint NOT NULL DEFAULT 0,
            PRIMARY KEY (topic_id, partition)
        );
        CREATE INDEX partitions_trimmed ON log.partitions (trimmed_at) WHERE trimmed_at IS NOT NULL;
        CREATE INDEX partitions_deleted ON log.partitions (deleted_at) WHERE deleted_at IS NOT NULL;
    """)


def _idempotency_keys() -> None:
    """Keys that are kept for hours have a partition an hour; those that are kept for days have one a day."""
    for table, created in (("idempotency_keys", "created_hour"), ("lasting_idempotency_keys", "created_day")):
        op.execute(f"""
            CREATE TABLE log.{table} (
                {created} int NOT NULL,
                topic_id uuid NOT NULL,
                key text NOT NULL,
                path text NOT NULL,
                caller text NOT NULL,
                fingerprint bytea NOT NULL,
                answer bytea NOT NULL,
                base_offsets bigint[] NOT NULL,
                PRIMARY KEY (topic_id, key, path, caller, {created})
            ) PARTITION BY RANGE ({created})
        """)


def _dead_letters() -> None:
    """`dead_letter_keys`: records that have a dead letter. `parked_dead_letters`: letters that their topic refuses.
    `dead_letter_writers`: the last leader epoch that wrote letters of a share-partition. A letter is open until it is
    redriven or removed. `dead_letter_sources`: records that open letters without a copy point to."""
    execute("""
        CREATE TABLE log.dead_letter_keys (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            state_epoch int NOT NULL,
            record_offset bigint NOT NULL,
            delivery_count int NOT NULL,
            PRIMARY KEY (group_id, topic_id, partition, state_epoch, record_offset, delivery_count)
        );
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
        );
        CREATE TABLE log.dead_letter_writers (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            leader_epoch int NOT NULL,
            PRIMARY KEY (group_id, topic_id, partition)
        ) WITH (fillfactor = 50);
        CREATE TABLE log.open_dead_letters (
            letter_topic_id uuid NOT NULL,
            letter_partition int NOT NULL,
            first_offset bigint NOT NULL,
            last_offset bigint NOT NULL,
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            PRIMARY KEY (letter_topic_id, letter_partition, first_offset)
        );
        CREATE TABLE log.open_dead_letter_counts (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            records bigint NOT NULL,
            PRIMARY KEY (group_id, topic_id, partition)
        ) WITH (fillfactor = 50);
        CREATE TABLE log.dead_letter_sources (
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            record_offset bigint NOT NULL,
            group_id text NOT NULL,
            delivery_count int NOT NULL,
            letter_topic_id uuid NOT NULL,
            letter_partition int NOT NULL,
            letter_offset bigint NOT NULL,
            PRIMARY KEY (topic_id, partition, record_offset, group_id, delivery_count,
                         letter_topic_id, letter_partition, letter_offset)
        );
        CREATE INDEX dead_letter_sources_by_letter
        ON log.dead_letter_sources (letter_topic_id, letter_partition, letter_offset);
    """)


def _readers() -> None:
    """The groups that read a partition, and how far each has durably finished it."""
    execute("""
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
        ) WITH (fillfactor = 50);
        CREATE INDEX readers_of_group ON log.readers (group_id);
    """)


def _activity() -> None:
    """Counts of events by hour, group and partition."""
    op.execute("""
        CREATE TABLE log.activity (
            hour int NOT NULL,
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            part uuid NOT NULL,
            topic text NOT NULL,
            produced bigint NOT NULL,
            delivered bigint NOT NULL,
            accepted bigint NOT NULL,
            released bigint NOT NULL,
            rejected bigint NOT NULL,
            expired bigint NOT NULL,
            deliveries jsonb NOT NULL,
            times_to_accept jsonb NOT NULL,
            dead_letters jsonb NOT NULL,
            PRIMARY KEY (hour, group_id, topic_id, partition, part)
        )
    """)


def _transactions() -> None:
    """Open transactions with their partitions, so that LASTSTABLE is one look into an index; and transactional ids.
    `part_of` names the transaction whose commit says which of its parts count."""
    execute("""
        CREATE TABLE log.transactions (
            transaction_id text PRIMARY KEY,
            transactional_id text,
            producer_epoch int NOT NULL DEFAULT 0,
            principal text NOT NULL DEFAULT '',
            state smallint NOT NULL DEFAULT 0,
            reason smallint NOT NULL DEFAULT 0,
            timeout_ms int NOT NULL,
            began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            deadline timestamptz NOT NULL,
            ended_at timestamptz,
            part_of text
        ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
        CREATE INDEX transactions_due ON log.transactions (deadline);
        CREATE INDEX transactions_open ON log.transactions (began_at) WHERE state = 0;
        CREATE INDEX transactions_of_producer ON log.transactions (transactional_id)
        WHERE transactional_id IS NOT NULL AND state = 0;
        CREATE INDEX transactions_parts ON log.transactions (part_of) WHERE part_of IS NOT NULL;
        CREATE TABLE log.transaction_partitions (
            transaction_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            first_offset bigint NOT NULL,
            PRIMARY KEY (transaction_id, topic_id, partition)
        ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
        CREATE INDEX transaction_partitions_open ON log.transaction_partitions (topic_id, partition, first_offset);
        CREATE TABLE log.transactional_producers (
            transactional_id text PRIMARY KEY,
            producer_epoch int NOT NULL,
            principal text NOT NULL DEFAULT '',
            committed_note text,
            keep_until timestamptz NOT NULL
        ) WITH (fillfactor = 50);
        CREATE INDEX transactional_producers_old ON log.transactional_producers (keep_until);
    """)


def _ended_transactions() -> None:
    """Aborted transactions last until the log start has passed their marker. Outcomes have one partition per period,
    which is dropped as a whole; `settled` says which acknowledgements a commit had, so that a repeat with other ones is
    refused. A row of `settlements` lasts until the leader of its share-partition has applied it."""
    execute("""
        CREATE TABLE log.aborted_transactions (
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            transaction_id text NOT NULL,
            first_offset bigint NOT NULL,
            marker_offset bigint NOT NULL,
            PRIMARY KEY (topic_id, partition, transaction_id)
        );
        CREATE INDEX aborted_transactions_by_marker ON log.aborted_transactions (topic_id, partition, marker_offset);
        CREATE TABLE log.transaction_outcomes (
            ended_hour int NOT NULL,
            transaction_id text NOT NULL,
            transactional_id text,
            producer_epoch int NOT NULL,
            principal text NOT NULL,
            committed boolean NOT NULL,
            reason smallint NOT NULL,
            partitions int NOT NULL,
            began_at timestamptz NOT NULL,
            ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            settled bytea,
            PRIMARY KEY (transaction_id, ended_hour)
        ) PARTITION BY RANGE (ended_hour);
        CREATE INDEX transaction_outcomes_by_end ON log.transaction_outcomes (committed, ended_at);
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
        ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
        CREATE INDEX settlements_by_age ON log.settlements (settled_at);
    """)
