"""Members of share groups, their target assignments, and the epochs of both."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("""
        ALTER TABLE groups.share_groups
            ADD COLUMN assignment_epoch int NOT NULL DEFAULT 0,
            ADD COLUMN assigned_at_ms bigint NOT NULL DEFAULT 0,
            ADD COLUMN metadata_hash bigint NOT NULL DEFAULT 0,
            ADD COLUMN revision bigint NOT NULL DEFAULT 0
    """)
    op.execute("""
        CREATE TABLE groups.share_group_members (
            group_id text NOT NULL,
            member_id text NOT NULL,
            rack_id text,
            client_id text NOT NULL,
            client_host text NOT NULL,
            subscribed_topic_names text[] NOT NULL,
            member_epoch int NOT NULL,
            previous_member_epoch int NOT NULL,
            assignment jsonb NOT NULL,
            PRIMARY KEY (group_id, member_id)
        )
    """)
    op.execute("""
        CREATE TABLE groups.share_group_targets (
            group_id text NOT NULL,
            member_id text NOT NULL,
            assignment jsonb NOT NULL,
            PRIMARY KEY (group_id, member_id)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE groups.share_group_targets, groups.share_group_members")
    op.execute("""
        ALTER TABLE groups.share_groups
            DROP COLUMN assignment_epoch, DROP COLUMN assigned_at_ms, DROP COLUMN metadata_hash,
            DROP COLUMN revision
    """)
