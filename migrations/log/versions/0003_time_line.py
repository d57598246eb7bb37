"""Which history of PostgreSQL the log belongs to: a fail-over or a restore begins another one."""

from sharequeue.stack.migrate import execute

revision = "log_3"
down_revision = "log_2"


def upgrade() -> None:
    """`history`: the system identifier and the time line of the server; empty before the first gateway. `skips`: how
    often gateways found that the log went back."""
    execute("""
        CREATE TABLE log.time_line (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            history text NOT NULL,
            skips int NOT NULL DEFAULT 0
        );
        INSERT INTO log.time_line (history) VALUES ('');
    """)
