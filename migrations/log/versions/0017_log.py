"""The record log: batches, partitions and keys, and all that stands beside them."""

from alembic import op

from sharequeue.stack.migrate import execute

revision = "log_17"
down_revision = None


def upgrade() -> None:
    _batches()
    _idempotency_keys()
    _dead_letters()
    _readers()
    _reports()
    _transactions()
    _ended_transactions()
    _kafka()
    _scheduled()
    _schedules()
    _unique_keys()
    _database()


def _batches() -> None:
    """`uncompressed_bytes` is the size of a batch that is stored as one LZ4 block, and null otherwise.

    In `partitions`, the first of several trims sets `purge_before`, so that later trims do not postpone the purge.
    `replacements` counts replaced batches: gateways compare it, and discard older batches from memory.
    Large batches lie in a table of PostgreSQL's own, of pages that are filled once. No vacuum follows their inserts: it
    would write each page a second time, and with checksums the page into the log of the transactions, too.
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
        ) WITH (toast_tuple_target = 8160, toast.autovacuum_vacuum_insert_threshold = -1);
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
    """A key is known until the purge removes its row.

    `new_keys` returns the ids of those appends whose key no other transaction has locked or used, and locks these keys
    for this transaction. It waits for nothing. It is volatile PL/pgSQL, so that each of its statements sees everything
    that was committed before it: a look-up in the appending statement itself would miss a key that was committed just
    before its lock was taken. A key that was used without a caller is found by each caller, and a caller without an
    access key finds the keys of all: see `key_store.LOOK_UP`.
    """
    execute("""
        CREATE TABLE log.idempotency_keys (
            topic_id uuid NOT NULL,
            key text NOT NULL,
            path text NOT NULL,
            caller text NOT NULL,
            fingerprint bytea NOT NULL,
            answer bytea NOT NULL,
            base_offsets bigint[] NOT NULL,
            expires_at_ms bigint NOT NULL,
            PRIMARY KEY (topic_id, key, path, caller)
        );
        CREATE INDEX idempotency_keys_old ON log.idempotency_keys (expires_at_ms);
    """)
    op.execute("""
        CREATE FUNCTION log.new_keys(append_ids uuid[], locks bigint[], topic_ids uuid[], keys text[], paths text[],
                                     callers text[]) RETURNS uuid[]
        LANGUAGE plpgsql VOLATILE AS $$
        DECLARE locked uuid[];
        BEGIN
            locked := ARRAY(SELECT t.append_id FROM unnest(append_ids, locks) AS t(append_id, lock)
                            WHERE pg_try_advisory_xact_lock(t.lock));
            RETURN ARRAY(
                SELECT t.append_id FROM unnest(append_ids, topic_ids, keys, paths, callers)
                  AS t(append_id, topic_id, key, path, caller)
                WHERE t.append_id = ANY(locked) AND (
                    SELECT true FROM log.idempotency_keys k
                    WHERE k.topic_id = t.topic_id AND k.key = t.key AND k.path = t.path
                      AND (k.caller IN ('', t.caller) OR t.caller = '') LIMIT 1) IS NULL);
        END $$
    """)


def _dead_letters() -> None:
    """`dead_letter_writers`: the last leader epoch that wrote letters of a share-partition. `dead_letter_sources`: each
    letter, and where its record is. It is `open` until it is closed. The row of a closed one says how it ended: `new_*`
    is the place of its redriven record, `consumer_group` the group that finished it in its topic; it was dropped if
    both are null. `keeps`: cleaning keeps the record, because the open letter has no copy of it. `cause` and `record`:
    of a letter that its topic refuses, which is parked here."""
    execute("""
        CREATE TABLE log.dead_letter_writers (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            leader_epoch int NOT NULL,
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
            keeps boolean NOT NULL DEFAULT true,
            open boolean NOT NULL DEFAULT true,
            cause text,
            record bytea,
            state_epoch int NOT NULL,
            closed_at timestamptz,
            consumer_group text,
            new_topic_id uuid,
            new_partition int,
            new_offset bigint,
            PRIMARY KEY (topic_id, partition, record_offset, group_id, delivery_count,
                         letter_topic_id, letter_partition, letter_offset)
        );
        CREATE INDEX dead_letter_sources_by_letter
        ON log.dead_letter_sources (letter_topic_id, letter_partition, letter_offset);
        CREATE INDEX dead_letter_sources_open
        ON log.dead_letter_sources (letter_topic_id, letter_partition, group_id, letter_offset) WHERE open;
        CREATE INDEX dead_letter_sources_of_group ON log.dead_letter_sources (group_id, topic_id, partition) WHERE open;
        CREATE INDEX dead_letter_sources_parked
        ON log.dead_letter_sources (group_id, topic_id, partition, record_offset, delivery_count)
        WHERE record IS NOT NULL;
        CREATE INDEX dead_letter_sources_kept
        ON log.dead_letter_sources (topic_id, partition, record_offset) WHERE keeps;
    """)


def _readers() -> None:
    """The groups that read a partition, and how far each has durably finished it. `ready`: the first offset that a
    fetch would get, if it is behind the floor; `delayed`: the first delayed one."""
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
            ready bigint,
            delayed bigint,
            PRIMARY KEY (topic_id, partition, group_id)
        ) WITH (fillfactor = 50);
        CREATE INDEX readers_of_group ON log.readers (group_id);
    """)


def _reports() -> None:
    """`activity`: counts of events by hour, group and partition. `samples`: the work and the backlog of the cluster,
    each group and each topic; `counts` as in `record_log/sample_store.py`. `outcomes`: by whom and when records were
    finished, for groups that keep it; a row is a range that one acknowledgement has finished."""
    execute("""
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
        );
        CREATE TABLE log.samples (
            series text NOT NULL,
            at_ms bigint NOT NULL,
            counts bigint[] NOT NULL,
            expires_at_ms bigint NOT NULL,
            PRIMARY KEY (series, at_ms)
        );
        CREATE INDEX samples_old ON log.samples (expires_at_ms);
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


def _transactions() -> None:
    """Open transactions with their partitions, so that LASTSTABLE is one look into an index; and transactional ids.
    `part_of` names the transaction whose commit says which of its parts count. `has_written` is volatile PL/pgSQL, as
    `new_keys`: it sees records that were committed before the statement that calls it has locked the transaction."""
    execute("""
        CREATE TABLE log.transactions (
            transaction_id text PRIMARY KEY,
            transactional_id text,
            producer_epoch int NOT NULL DEFAULT 0,
            principal text NOT NULL DEFAULT '',
            timeout_ms int NOT NULL,
            began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            deadline timestamptz NOT NULL,
            part_of text
        ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
        CREATE INDEX transactions_due ON log.transactions (deadline);
        CREATE INDEX transactions_open ON log.transactions (began_at);
        CREATE INDEX transactions_of_producer ON log.transactions (transactional_id)
        WHERE transactional_id IS NOT NULL;
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
    op.execute("""
        CREATE FUNCTION log.has_written(id text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
        BEGIN
            RETURN EXISTS (SELECT FROM log.transaction_partitions p WHERE p.transaction_id = id);
        END $$;
    """)


def _ended_transactions() -> None:
    """Aborted transactions last until the log start has passed their marker. Outcomes last for 25 hours; `settled` says
    which acknowledgements a commit had, so that a repeat with other ones is refused. A row of `settlements` lasts until
    the leader of its share-partition has applied it."""
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
            transaction_id text PRIMARY KEY,
            transactional_id text,
            producer_epoch int NOT NULL,
            principal text NOT NULL,
            committed boolean NOT NULL,
            reason smallint NOT NULL,
            partitions int NOT NULL,
            began_at timestamptz NOT NULL,
            ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            settled bytea
        );
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


def _kafka() -> None:
    """Appends to Kafka that must happen once: one row for each append that has begun and whose outcome is not written.
    The n-th entries of `partitions`, `ends`, `leader_epochs` and `records` belong together."""
    execute("""
        CREATE TABLE log.append_intents (
            subject bigint PRIMARY KEY,
            intent_id uuid NOT NULL,
            transactional_id text NOT NULL,
            producer_id bigint NOT NULL,
            producer_epoch int NOT NULL,
            topic_id uuid NOT NULL,
            partitions int[] NOT NULL,
            ends bigint[] NOT NULL,
            leader_epochs int[] NOT NULL,
            records int[] NOT NULL,
            kind smallint NOT NULL,
            outcome bytea NOT NULL,
            began_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX append_intents_began_at ON log.append_intents (began_at);
    """)


def _scheduled() -> None:
    """Records that enter the log at a later time. `tail`: the record as JSON without its offset and timestamp.
    `key_digest`: SHA-256 of its key, if it has one.

    `scheduled_counts` has several rows for each topic, so that requests do not wait for each other; their sum counts.
    """
    execute("""
        CREATE TABLE log.scheduled_records (
            schedule_id uuid PRIMARY KEY,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            deliver_at_ms bigint NOT NULL,
            key_digest bytea,
            bytes int NOT NULL,
            tail bytea STORAGE EXTERNAL NOT NULL
        ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
        CREATE INDEX scheduled_records_due ON log.scheduled_records (deliver_at_ms, schedule_id);
        CREATE INDEX scheduled_records_of_topic ON log.scheduled_records (topic_id, deliver_at_ms, schedule_id);
        CREATE INDEX scheduled_records_by_key ON log.scheduled_records (topic_id, key_digest, deliver_at_ms)
        WHERE key_digest IS NOT NULL;
        CREATE TABLE log.scheduled_counts (
            topic_id uuid NOT NULL,
            slot int NOT NULL,
            records bigint NOT NULL,
            bytes bigint NOT NULL,
            PRIMARY KEY (topic_id, slot)
        ) WITH (fillfactor = 50);
    """)


def _schedules() -> None:
    """Schedules, each of which makes a record of its topic at each of its times. `next_at_ms`: the next time, by
    PostgreSQL's clock. `missed`: what becomes of times that an outage has taken. `last_at_ms`: the last time that has
    its record."""
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
        CREATE INDEX schedules_due ON log.schedules (next_at_ms, topic_id, name) WHERE NOT paused;
    """)


def _unique_keys() -> None:
    """`key_digest`: SHA-256 of the key of a record. The row counts until its time, and has the record's place.
    `schedule_id`: of the first record with the key, if it was scheduled. It has no offset then."""
    execute("""
        CREATE TABLE log.unique_keys (
            topic_id uuid NOT NULL,
            key_digest bytea NOT NULL,
            expires_at_ms bigint NOT NULL,
            partition int NOT NULL,
            record_offset bigint NOT NULL,
            schedule_id uuid,
            PRIMARY KEY (topic_id, key_digest)
        );
        CREATE INDEX unique_keys_old ON log.unique_keys (expires_at_ms);
    """)


def _database() -> None:
    """What the log knows of the database that it is in. `cluster_id`: Redis keys carry it together with the database's
    own identity, so a copy has other keys. `history`: the system identifier and the time line of the server, which a
    fail-over and a restore change; empty before the first gateway. `skips`: how often gateways found that the log went
    back."""
    execute("""
        CREATE TABLE log.cluster (cluster_id uuid NOT NULL);
        INSERT INTO log.cluster (cluster_id) VALUES (gen_random_uuid());
        CREATE TABLE log.time_line (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            history text NOT NULL,
            skips int NOT NULL DEFAULT 0
        );
        INSERT INTO log.time_line (history) VALUES ('');
    """)
