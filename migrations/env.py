"""Runs the migrations of one chain: `groups`, `share_state` or `log`.

Each chain has its own schema and version table. Each revision is one transaction, with a lock timeout of 5 s and a
statement timeout of 5 min. An advisory lock admits one runner per chain at a time.
"""

import hashlib

from alembic import context
from alembic.runtime.migration import MigrationInfo
from sqlalchemy import Connection, text

connection: Connection = context.config.attributes["connection"]
applied: list[MigrationInfo] = context.config.attributes["applied"]
chain: str = context.config.attributes["chain"]

lock_key = int.from_bytes(hashlib.blake2b(f"sharequeue-migrate-{chain}".encode(), digest_size=8).digest(), signed=True)
connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": lock_key})
connection.execute(text("SET lock_timeout = '5s'"))
connection.execute(text("SET statement_timeout = '5min'"))
connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {chain}"))
connection.commit()
context.configure(
    connection=connection,
    version_table_schema=chain,
    version_table="schema_version",
    transaction_per_migration=True,
    on_version_apply=lambda step, **_: applied.append(step),
)
try:
    with context.begin_transaction():
        context.run_migrations()
finally:
    connection.rollback()
    connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": lock_key})
    connection.commit()
