"""Topics; groups with settings and initialised share-partitions; gateways and leader epochs."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE groups.topics (
            topic_id uuid PRIMARY KEY,
            name text NOT NULL,
            partitions int NOT NULL,
            config jsonb NOT NULL DEFAULT '{}',
            deleting boolean NOT NULL DEFAULT false,
            created_at timestamptz NOT NULL DEFAULT now()
        )
    """)
    op.execute("CREATE UNIQUE INDEX topics_name ON groups.topics (name) WHERE NOT deleting")
    op.execute("CREATE INDEX topics_deleting ON groups.topics (topic_id) WHERE deleting")
    op.execute("""
        CREATE TABLE groups.share_groups (
            group_id text PRIMARY KEY,
            group_epoch int NOT NULL,
            deleted boolean NOT NULL DEFAULT false
        )
    """)
    op.execute("""
        CREATE TABLE groups.share_group_topics (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            initializing int[] NOT NULL DEFAULT '{}',
            initialized int[] NOT NULL DEFAULT '{}',
            deleting boolean NOT NULL DEFAULT false,
            PRIMARY KEY (group_id, topic_id)
        )
    """)
    op.execute("CREATE INDEX share_group_topics_topic ON groups.share_group_topics (topic_id)")
    op.execute("""
        CREATE TABLE groups.share_group_configs (
            group_id text PRIMARY KEY,
            config jsonb NOT NULL
        )
    """)
    op.execute("""
        CREATE TABLE groups.gateways (
            node_id text PRIMARY KEY,
            url text NOT NULL,
            leader_epoch int NOT NULL,
            registered_at timestamptz NOT NULL DEFAULT now()
        )
    """)
    op.execute("CREATE SEQUENCE groups.leader_epoch AS int")


def downgrade() -> None:
    op.execute("DROP SEQUENCE groups.leader_epoch")
    op.execute(
        "DROP TABLE groups.gateways, groups.share_group_configs, groups.share_group_topics, "
        "groups.share_groups, groups.topics"
    )
