"""Keys of callers, rights of principals, and the revision of both."""

from alembic import op

from sharequeue.stack.migrate import execute

revision = "groups_4"
down_revision = "groups_3"


def upgrade() -> None:
    """A revision is the time in milliseconds, or the number after the last one. So a database that went back to an
    older state gives no revision again that gateways may know."""
    execute("""
        CREATE TABLE groups.access_keys (
            key_id text PRIMARY KEY,
            digest bytea NOT NULL,
            principal text NOT NULL,
            description text NOT NULL,
            from_environment boolean NOT NULL DEFAULT false,
            created_at_ms bigint NOT NULL,
            expires_at_ms bigint,
            revoked_at_ms bigint,
            last_used_at_ms bigint
        );
        CREATE TABLE groups.acls (
            principal text NOT NULL,
            operation text NOT NULL,
            resource_type text NOT NULL,
            resource_name text NOT NULL,
            pattern_type text NOT NULL,
            PRIMARY KEY (principal, operation, resource_type, resource_name, pattern_type)
        );
        CREATE TABLE groups.access_revision (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            revision bigint NOT NULL
        );
        INSERT INTO groups.access_revision (revision) SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    """)
    # Every change of keys and rights calls this in its own transaction. A change without ids makes each instance read
    # the revision.
    op.execute("""
        CREATE FUNCTION groups.note_access() RETURNS bigint LANGUAGE sql AS $$
            UPDATE groups.access_revision
                SET revision = greatest(revision + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
            SELECT groups.note_change(NULL, NULL);
        $$
    """)
