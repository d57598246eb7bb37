"""Parts of transactions: `part_of` names the transaction whose commit says which of its parts count."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("ALTER TABLE log.transactions ADD COLUMN part_of text")
    op.execute("CREATE INDEX transactions_parts ON log.transactions (part_of) WHERE part_of IS NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE log.transactions DROP COLUMN part_of")
