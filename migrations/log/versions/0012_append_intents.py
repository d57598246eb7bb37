"""Appends to Kafka that must happen once."""

from alembic import op

revision = "log_12"
down_revision = "log_11"


def upgrade() -> None:
    """One row for each append that has begun and whose outcome is not written. The n-th entries of `partitions`,
    `ends`, `leader_epochs` and `records` belong together."""
    op.execute("""
        CREATE TABLE log.append_intents (
            subject bigint PRIMARY KEY,
            intent_id uuid NOT NULL,
            transactional_id text NOT NULL,
            producer_id bigint NOT NULL,
            producer_epoch int NOT NULL,
            topic_id uuid NOT NULL,
            partitions int[] NOT NULL,
            ends bigint[] NOT NULL,
            leader_epochs int[] NOT NULL,
            records int[] NOT NULL,
            kind smallint NOT NULL,
            outcome bytea NOT NULL,
            began_at timestamptz NOT NULL DEFAULT clock_timestamp()
        )
    """)
    op.execute("CREATE INDEX append_intents_began_at ON log.append_intents (began_at)")
