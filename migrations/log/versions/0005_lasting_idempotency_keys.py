"""Idempotency keys that are kept for a week. Their table has one partition per day."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE log.lasting_idempotency_keys (
            created_day int NOT NULL,
            topic_id uuid NOT NULL,
            key text NOT NULL,
            path text NOT NULL,
            caller text NOT NULL,
            fingerprint bytea NOT NULL,
            answer bytea NOT NULL,
            base_offsets bigint[] NOT NULL,
            PRIMARY KEY (topic_id, key, path, caller, created_day)
        ) PARTITION BY RANGE (created_day)
    """)


def downgrade() -> None:
    op.execute("DROP TABLE log.lasting_idempotency_keys")
