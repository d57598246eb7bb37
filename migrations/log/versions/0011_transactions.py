"""Transactions: the open ones with their partitions, aborted ones, outcomes, and producers with a transactional id.

`transactions` and `transaction_partitions` hold what is open, so that LASTSTABLE is one look into an index.
`aborted_transactions` lasts until the log start has passed the marker. `transaction_outcomes` has one partition per
period, which is dropped as a whole.
"""

from alembic import op

revision = "0011"
down_revision = "0010"

TABLES = (
    "transactional_producers",
    "transaction_outcomes",
    "aborted_transactions",
    "transaction_partitions",
    "transactions",
)


def upgrade() -> None:
    op.execute("""
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
            ended_at timestamptz
        ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)
    """)
    op.execute("CREATE INDEX transactions_due ON log.transactions (deadline)")
    op.execute("CREATE INDEX transactions_open ON log.transactions (began_at) WHERE state = 0")
    op.execute("""
        CREATE INDEX transactions_of_producer ON log.transactions (transactional_id)
        WHERE transactional_id IS NOT NULL AND state = 0
    """)
    op.execute("""
        CREATE TABLE log.transaction_partitions (
            transaction_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            first_offset bigint NOT NULL,
            PRIMARY KEY (transaction_id, topic_id, partition)
        ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)
    """)
    op.execute("""
        CREATE INDEX transaction_partitions_open ON log.transaction_partitions (topic_id, partition, first_offset)
    """)
    op.execute("""
        CREATE TABLE log.aborted_transactions (
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            transaction_id text NOT NULL,
            first_offset bigint NOT NULL,
            marker_offset bigint NOT NULL,
            PRIMARY KEY (topic_id, partition, transaction_id)
        )
    """)
    op.execute("""
        CREATE INDEX aborted_transactions_by_marker ON log.aborted_transactions (topic_id, partition, marker_offset)
    """)
    op.execute("""
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
            PRIMARY KEY (transaction_id, ended_hour)
        ) PARTITION BY RANGE (ended_hour)
    """)
    op.execute("""
        CREATE TABLE log.transactional_producers (
            transactional_id text PRIMARY KEY,
            producer_epoch int NOT NULL,
            principal text NOT NULL DEFAULT '',
            committed_note text,
            keep_until timestamptz NOT NULL
        ) WITH (fillfactor = 50)
    """)
    op.execute("CREATE INDEX transactional_producers_old ON log.transactional_producers (keep_until)")


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE log.{table}")
