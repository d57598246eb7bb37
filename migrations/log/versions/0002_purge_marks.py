"""What may be purged is marked by the first of a row of trims, so that later ones do not put it off; when a topic went."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("""
        ALTER TABLE log.partitions
            ADD COLUMN purge_before bigint NOT NULL DEFAULT 0,
            ADD COLUMN deleted_at timestamptz
    """)
    op.execute("UPDATE log.partitions SET purge_before = log_start_offset WHERE trimmed_at IS NOT NULL")
    op.execute("UPDATE log.partitions SET deleted_at = now() WHERE deleted")
    op.execute("CREATE INDEX partitions_deleted ON log.partitions (deleted_at) WHERE deleted_at IS NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE log.partitions DROP COLUMN purge_before, DROP COLUMN deleted_at")
