"""Open dead letters: those that were neither redriven nor removed from their topic;
and how many each share-partition has.

Parked dead letters are counted at once. Those in a topic are counted from this revision on: nothing but a scan of the
topic would find earlier ones.
"""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE log.open_dead_letters (
            letter_topic_id uuid NOT NULL,
            letter_partition int NOT NULL,
            first_offset bigint NOT NULL,
            last_offset bigint NOT NULL,
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            PRIMARY KEY (letter_topic_id, letter_partition, first_offset)
        )
    """)
    op.execute("""
        CREATE TABLE log.open_dead_letter_counts (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            partition int NOT NULL,
            records bigint NOT NULL,
            PRIMARY KEY (group_id, topic_id, partition)
        ) WITH (fillfactor = 50)
    """)
    op.execute("""
        INSERT INTO log.open_dead_letter_counts (group_id, topic_id, partition, records)
        SELECT group_id, topic_id, partition, count(*) FROM log.parked_dead_letters GROUP BY 1, 2, 3
    """)


def downgrade() -> None:
    op.execute("DROP TABLE log.open_dead_letter_counts")
    op.execute("DROP TABLE log.open_dead_letters")
