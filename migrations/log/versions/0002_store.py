"""What the log knows of the database that it is in: whose it is, and which history it belongs to."""

from sharequeue.stack.migrate import execute

revision = "log_2"
down_revision = "log_1"


def upgrade() -> None:
    """`cluster_id`: Redis keys carry it together with the database's own identity, so a copy has other keys.

    `history`: the system identifier and the time line of the server, which a fail-over and a restore change; empty
    before the first gateway. `skips`: how often gateways found that the log went back.
    """
    execute("""
        CREATE TABLE log.cluster (cluster_id uuid NOT NULL);
        INSERT INTO log.cluster (cluster_id) VALUES (gen_random_uuid());
        CREATE TABLE log.time_line (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            history text NOT NULL,
            skips int NOT NULL DEFAULT 0
        );
        INSERT INTO log.time_line (history) VALUES ('');
    """)
