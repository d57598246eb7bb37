"""The work and the backlog of the cluster, each group and each topic, every ten seconds."""

from sharequeue.stack.migrate import execute

revision = "log_10"
down_revision = "log_9"


def upgrade() -> None:
    """`counts`: as in `record_log/sample_store.py`. Rows come in the order of time, and old ones are removed by it."""
    execute("""
        CREATE TABLE log.samples (
            series text NOT NULL,
            at_ms bigint NOT NULL,
            counts bigint[] NOT NULL,
            PRIMARY KEY (series, at_ms)
        );
        CREATE INDEX samples_old ON log.samples USING brin (at_ms) WITH (pages_per_range = 32);
    """)
