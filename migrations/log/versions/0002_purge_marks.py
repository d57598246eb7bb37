"""Purge marks: the first of several trims sets the offset to purge below, so that later trims do not postpone it.

`deleted_at` is the time when a topic was deleted.
"""

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
