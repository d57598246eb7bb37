"""The last leader epoch that wrote dead letters of a share-partition. A paused former leader can write none."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE log.dead_letter_writers (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            leader_epoch int NOT NULL,
            PRIMARY KEY (group_id, topic_id, partition)
        ) WITH (fillfactor = 50)
    """)


def downgrade() -> None:
    op.execute("DROP TABLE log.dead_letter_writers")
