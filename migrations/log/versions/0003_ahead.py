"""What a group has ahead of its floor: the age of a backlog is that of a record that waits for a worker."""

from sharequeue.stack.migrate import execute

revision = "log_3"
down_revision = "log_2"


def upgrade() -> None:
    """`ready`: the first offset that a fetch would get, if it is behind the floor; `delayed`: the first delayed one."""
    execute("ALTER TABLE log.readers ADD COLUMN ready bigint, ADD COLUMN delayed bigint")
