"""Since which generation all gateways keep rows of the log's readers.

It counts only together with the number for which it was written: an earlier version of the service writes only the
number.
"""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("""
        ALTER TABLE groups.gateway_generation
          ADD COLUMN readers_since int NOT NULL DEFAULT 0, ADD COLUMN readers_number int NOT NULL DEFAULT 0
    """)


def downgrade() -> None:
    op.execute("ALTER TABLE groups.gateway_generation DROP COLUMN readers_since, DROP COLUMN readers_number")
