"""Unique keys of scheduled records."""

from alembic import op

revision = "log_11"
down_revision = "log_10"


def upgrade() -> None:
    """`schedule_id`: of the first record with the key, if it was scheduled. It has no offset then."""
    op.execute("ALTER TABLE log.unique_keys ADD COLUMN schedule_id uuid")
