"""Several share coordinators: shards with leases replace the one shard without a lease."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE share_state.instances (
            node_id text PRIMARY KEY,
            incarnation text NOT NULL,
            url text NOT NULL,
            seen_at timestamptz NOT NULL
        )
    """)
    op.execute("ALTER TABLE share_state.shards ALTER COLUMN owner DROP NOT NULL")
    op.execute("""
        ALTER TABLE share_state.shards
            ADD COLUMN incarnation text, ADD COLUMN url text, ADD COLUMN lease_until timestamptz
    """)
    # The former owner may still run. Without its row it can write nothing. No new shard has a lower epoch than it had.
    op.execute("""
        DO $$
        DECLARE first bigint;
        BEGIN
            DELETE FROM share_state.shards RETURNING owner_epoch INTO first;
            EXECUTE format('ALTER TABLE share_state.shards ALTER COLUMN owner_epoch SET DEFAULT %s', coalesce(first, 0));
        END $$
    """)


def downgrade() -> None:
    op.execute("DROP TABLE share_state.instances")
    op.execute("DELETE FROM share_state.shards")
    op.execute("ALTER TABLE share_state.shards ALTER COLUMN owner_epoch DROP DEFAULT, ALTER COLUMN owner SET NOT NULL")
    op.execute("ALTER TABLE share_state.shards DROP COLUMN incarnation, DROP COLUMN url, DROP COLUMN lease_until")
