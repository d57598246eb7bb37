"""The id of the cluster whose log this is."""

from sharequeue.stack.migrate import execute

revision = "log_2"
down_revision = "log_1"


def upgrade() -> None:
    """One row. Redis keys carry the id together with the database's own identity, so a copy has other keys."""
    execute("""
        CREATE TABLE log.cluster (cluster_id uuid NOT NULL);
        INSERT INTO log.cluster (cluster_id) VALUES (gen_random_uuid());
    """)
