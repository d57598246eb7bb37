"""When each group was used last, as far as the group coordinator knows: an empty group may be deleted after a time."""

from sharequeue.stack.migrate import execute

revision = "groups_3"
down_revision = "groups_2"


def upgrade() -> None:
    """The time of a group that is there begins now."""
    execute("ALTER TABLE groups.share_groups ADD COLUMN used_at timestamptz NOT NULL DEFAULT now()")
