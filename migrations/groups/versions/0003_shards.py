"""Several group coordinators: who owns which shard, and the changes that each of them learns from the others."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE groups.instances (
            node_id text PRIMARY KEY,
            incarnation text NOT NULL,
            url text NOT NULL,
            seen_at timestamptz NOT NULL
        )
    """)
    op.execute("""
        CREATE TABLE groups.shards (
            shard int PRIMARY KEY,
            owner text,
            incarnation text,
            url text,
            owner_epoch bigint NOT NULL DEFAULT 0,
            lease_until timestamptz
        )
    """)
    op.execute("""
        CREATE TABLE groups.metadata_version (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            version bigint NOT NULL
        )
    """)
    # Versions go on above those that an earlier group coordinator, without this table, made from its clock.
    op.execute(
        "INSERT INTO groups.metadata_version (version) SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    )
    op.execute("""
        CREATE TABLE groups.metadata_changes (
            version bigint PRIMARY KEY,
            topic_id uuid,
            group_id text
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE groups.metadata_changes, groups.metadata_version, groups.shards, groups.instances")
