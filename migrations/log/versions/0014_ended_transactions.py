"""An index of the outcomes of transactions by their end, for lists of committed and of aborted ones.

Each transaction that wrote pays for it, so it has no more than the list needs to find the last ones: those that ended
in the same microsecond are sorted.
"""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute("CREATE INDEX transaction_outcomes_by_end ON log.transaction_outcomes (committed, ended_at)")


def downgrade() -> None:
    op.execute("DROP INDEX log.transaction_outcomes_by_end")
