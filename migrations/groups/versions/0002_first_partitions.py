"""Where a group begins in a topic: the number of partitions at first sight, and the epochs of open initialisations."""

from sharequeue.stack.migrate import execute

revision = "groups_2"
down_revision = "groups_1"


def upgrade() -> None:
    """A group that has begun in a topic has seen all its present partitions. Open initialisations begin again."""
    execute("""
        ALTER TABLE groups.share_group_topics
            ADD COLUMN initializing_epochs int[] NOT NULL DEFAULT '{}',
            ADD COLUMN first_partitions int NOT NULL DEFAULT 0;
        UPDATE groups.share_group_topics SET initializing = '{}';
        UPDATE groups.share_group_topics s SET first_partitions = t.partitions
            FROM groups.topics t WHERE t.topic_id = s.topic_id AND NOT s.deleting;
    """)
