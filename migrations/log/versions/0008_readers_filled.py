"""Since which generation of gateways every share-partition that was initialised has its row in `log.readers`."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE log.readers_filled (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            since bigint NOT NULL
        )
    """)
    op.execute("INSERT INTO log.readers_filled (since) VALUES (0)")


def downgrade() -> None:
    op.execute("DROP TABLE log.readers_filled")
