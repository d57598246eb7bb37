"""Activity by hour, group and partition, for reports."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE log.activity (
            hour int NOT NULL,
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            part uuid NOT NULL,
            topic text NOT NULL,
            produced bigint NOT NULL,
            delivered bigint NOT NULL,
            accepted bigint NOT NULL,
            released bigint NOT NULL,
            rejected bigint NOT NULL,
            expired bigint NOT NULL,
            deliveries jsonb NOT NULL,
            times_to_accept jsonb NOT NULL,
            dead_letters jsonb NOT NULL,
            PRIMARY KEY (hour, group_id, topic_id, partition, part)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE log.activity")
