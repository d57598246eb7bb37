"""Samples become hours after a day, which are written beside newer rows."""

from alembic import op

revision = "log_14"
down_revision = "log_13"


def upgrade() -> None:
    """Rows do not come in the order of time any more, so the pages of a time are not together."""
    op.execute("DROP INDEX log.samples_old")
    op.execute("CREATE INDEX samples_old ON log.samples (at_ms)")
