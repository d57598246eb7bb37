"""A count of the replaced batches of each partition. Gateways compare it, and discard older batches from memory."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("ALTER TABLE log.partitions ADD COLUMN replacements bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE log.partitions DROP COLUMN replacements")
