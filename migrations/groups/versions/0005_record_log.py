"""The Kafka cluster whose topics these are. No row: the topics' records are in PostgreSQL."""

from sharequeue.stack.migrate import execute

revision = "groups_5"
down_revision = "groups_4"


def upgrade() -> None:
    execute("""
        CREATE TABLE groups.record_log (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            kafka_cluster_id text NOT NULL
        );
    """)
