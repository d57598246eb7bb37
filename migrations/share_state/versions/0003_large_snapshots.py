"""Large snapshots: stored in parts, which count once a row of the state log names them.

Services of the release before can run beside it: they neither read nor write what is new, and the new ones write only
what every live instance reads (`row_format`).
"""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("CREATE SEQUENCE share_state.snapshot_ids")
    op.execute("""
        CREATE TABLE share_state.snapshot_parts (
            key_id bigint NOT NULL,
            snapshot_id bigint NOT NULL,
            part int NOT NULL,
            data bytea NOT NULL,
            written_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (key_id, snapshot_id, part)
        )
    """)
    op.execute("ALTER TABLE share_state.snapshot_parts ALTER COLUMN data SET STORAGE EXTERNAL")  # compressed already
    op.execute("ALTER TABLE share_state.share_records ADD COLUMN covers bigint, ADD COLUMN snapshot_id bigint")
    op.execute("ALTER TABLE share_state.instances ADD COLUMN row_format smallint NOT NULL DEFAULT 1")


def downgrade() -> None:
    op.execute("ALTER TABLE share_state.instances DROP COLUMN row_format")
    op.execute("ALTER TABLE share_state.share_records DROP COLUMN covers, DROP COLUMN snapshot_id")
    op.execute("DROP TABLE share_state.snapshot_parts")
    op.execute("DROP SEQUENCE share_state.snapshot_ids")
