"""Compressed batches: `records` may be one LZ4 block of a batch. `uncompressed_bytes` is then the size of the batch,
and null otherwise."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.execute("ALTER TABLE log.record_batches ADD COLUMN uncompressed_bytes int")


def downgrade() -> None:
    op.execute("""
        DO $$ BEGIN
            IF EXISTS (SELECT FROM log.record_batches WHERE uncompressed_bytes IS NOT NULL) THEN
                RAISE EXCEPTION 'the log has compressed batches, which an earlier release cannot read';
            END IF;
        END $$
    """)
    op.execute("ALTER TABLE log.record_batches DROP COLUMN uncompressed_bytes")
