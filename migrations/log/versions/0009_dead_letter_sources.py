"""The records that open dead letters without a copy point to. `cleanup.settled` keeps them in the log."""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE log.dead_letter_sources (
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            record_offset bigint NOT NULL,
            group_id text NOT NULL,
            delivery_count int NOT NULL,
            letter_topic_id uuid NOT NULL,
            letter_partition int NOT NULL,
            letter_offset bigint NOT NULL,
            PRIMARY KEY (topic_id, partition, record_offset, group_id, delivery_count,
                         letter_topic_id, letter_partition, letter_offset)
        )
    """)
    op.execute("""
        CREATE INDEX dead_letter_sources_by_letter
        ON log.dead_letter_sources (letter_topic_id, letter_partition, letter_offset)
    """)


def downgrade() -> None:
    op.execute("DROP TABLE log.dead_letter_sources")
