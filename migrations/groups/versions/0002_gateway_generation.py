"""The generation of gateways, in one row: its number and the set of gateways that lead."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE groups.gateway_generation (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            number int NOT NULL,
            previous int NOT NULL,
            gateways jsonb NOT NULL
        )
    """)
    op.execute("INSERT INTO groups.gateway_generation (number, previous, gateways) VALUES (0, 0, '[]')")
    op.execute("DROP TABLE groups.gateways")


def downgrade() -> None:
    op.execute("""
        CREATE TABLE groups.gateways (
            node_id text PRIMARY KEY,
            url text NOT NULL,
            leader_epoch int NOT NULL,
            registered_at timestamptz NOT NULL DEFAULT now()
        )
    """)
    op.execute("DROP TABLE groups.gateway_generation")
