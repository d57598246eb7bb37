"""A transaction that settles is committed with an append by one statement."""

from alembic import op

revision = "log_15"
down_revision = "log_14"


def upgrade() -> None:
    """`has_written` tells whether a transaction has records, also those that were committed since the statement that
    calls it began: that statement has locked the transaction's row meanwhile."""
    op.execute("""
        CREATE FUNCTION log.has_written(id text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
        BEGIN
            RETURN EXISTS (SELECT FROM log.transaction_partitions p WHERE p.transaction_id = id);
        END $$
    """)
