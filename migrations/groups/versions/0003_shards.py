"""Several group coordinators: the owners of shards, and a feed of changes that every instance reads."""

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
    # An earlier group coordinator, without this table, made versions from its clock. New versions start above them.
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
    # A write calls this in its own statement. It fails if the shard has another epoch. The row lock keeps the epoch
    # until the write is committed.
    op.execute("""
        CREATE FUNCTION groups.held(of_shard int, epoch bigint) RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM 1 FROM groups.shards WHERE shard = of_shard AND owner_epoch = epoch FOR KEY SHARE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'shard % has another owner', of_shard USING ERRCODE = 'SQ016';
            END IF;
            RETURN true;
        END $$
    """)
    # The row of the last version stays locked until the commit, so versions have the order of commits.
    op.execute("""
        CREATE FUNCTION groups.note_change(of_topic uuid, of_group text) RETURNS bigint LANGUAGE plpgsql AS $$
        DECLARE noted bigint;
        BEGIN
            UPDATE groups.metadata_version SET version = version + 1 RETURNING version INTO noted;
            INSERT INTO groups.metadata_changes (version, topic_id, group_id) VALUES (noted, of_topic, of_group);
            IF noted % 1000 = 0 THEN
                DELETE FROM groups.metadata_changes WHERE version <= noted - 10000;
            END IF;
            PERFORM pg_notify('sharequeue_groups_changes', '');
            RETURN noted;
        END $$
    """)


def downgrade() -> None:
    op.execute("DROP FUNCTION groups.held, groups.note_change")
    op.execute("DROP TABLE groups.metadata_changes, groups.metadata_version, groups.shards, groups.instances")
