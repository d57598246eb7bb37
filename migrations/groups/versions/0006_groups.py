"""Topics, groups, gateways, shards of the group coordinators, the feed of changes, keys and rights of callers."""

from alembic import op

from sharequeue.stack.migrate import execute

revision = "groups_6"
down_revision = None


def upgrade() -> None:
    """`record_log`: the Kafka cluster whose topics these are. No row: the topics' records are in PostgreSQL."""
    execute("""
        CREATE TABLE groups.topics (
            topic_id uuid PRIMARY KEY,
            name text NOT NULL,
            partitions int NOT NULL,
            config jsonb NOT NULL DEFAULT '{}',
            deleting boolean NOT NULL DEFAULT false,
            created_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE UNIQUE INDEX topics_name ON groups.topics (name) WHERE NOT deleting;
        CREATE INDEX topics_deleting ON groups.topics (topic_id) WHERE deleting;
        CREATE TABLE groups.record_log (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            kafka_cluster_id text NOT NULL
        );
    """)
    _groups()
    _gateways_and_shards()
    _changes()
    _access()


def _groups() -> None:
    """`used_at`: when the group coordinator last knew that the group was used: an empty group may be deleted after a
    time. `first_partitions`: how many partitions the topic had when the group began in it. `initializing_epochs`: of
    the open initialisations."""
    execute("""
        CREATE TABLE groups.share_groups (
            group_id text PRIMARY KEY,
            group_epoch int NOT NULL,
            deleted boolean NOT NULL DEFAULT false,
            assignment_epoch int NOT NULL DEFAULT 0,
            assigned_at_ms bigint NOT NULL DEFAULT 0,
            metadata_hash bigint NOT NULL DEFAULT 0,
            revision bigint NOT NULL DEFAULT 0,
            used_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE TABLE groups.share_group_topics (
            group_id text NOT NULL,
            topic_id uuid NOT NULL,
            initializing int[] NOT NULL DEFAULT '{}',
            initialized int[] NOT NULL DEFAULT '{}',
            deleting boolean NOT NULL DEFAULT false,
            initializing_epochs int[] NOT NULL DEFAULT '{}',
            first_partitions int NOT NULL DEFAULT 0,
            PRIMARY KEY (group_id, topic_id)
        );
        CREATE INDEX share_group_topics_topic ON groups.share_group_topics (topic_id);
        CREATE TABLE groups.share_group_configs (
            group_id text PRIMARY KEY,
            config jsonb NOT NULL
        );
        CREATE TABLE groups.share_group_members (
            group_id text NOT NULL,
            member_id text NOT NULL,
            rack_id text,
            client_id text NOT NULL,
            client_host text NOT NULL,
            subscribed_topic_names text[] NOT NULL,
            member_epoch int NOT NULL,
            previous_member_epoch int NOT NULL,
            assignment jsonb NOT NULL,
            PRIMARY KEY (group_id, member_id)
        );
        CREATE TABLE groups.share_group_targets (
            group_id text NOT NULL,
            member_id text NOT NULL,
            assignment jsonb NOT NULL,
            PRIMARY KEY (group_id, member_id)
        );
    """)


def _gateways_and_shards() -> None:
    """The gateways are one row: the generation's number and its set."""
    execute("""
        CREATE SEQUENCE groups.leader_epoch AS int;
        CREATE TABLE groups.gateway_generation (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            number int NOT NULL,
            previous int NOT NULL,
            gateways jsonb NOT NULL
        );
        INSERT INTO groups.gateway_generation (number, previous, gateways) VALUES (0, 0, '[]');
        CREATE TABLE groups.instances (
            node_id text PRIMARY KEY,
            incarnation text NOT NULL,
            url text NOT NULL,
            seen_at timestamptz NOT NULL
        );
        CREATE TABLE groups.shards (
            shard int PRIMARY KEY,
            owner text,
            incarnation text,
            url text,
            owner_epoch bigint NOT NULL DEFAULT 0,
            lease_until timestamptz
        );
    """)
    # A write calls this in its own statement. It fails if the shard has another epoch. The row lock keeps the epoch
    # until the write is committed.
    op.execute("""
        CREATE FUNCTION groups.held(of_shard int, epoch bigint) RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM 1 FROM groups.shards WHERE shard = of_shard AND owner_epoch = epoch FOR KEY SHARE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'shard % has another owner', of_shard USING ERRCODE = 'SQ016';
            END IF;
            RETURN true;
        END $$
    """)


def _changes() -> None:
    """The feed of changes that every instance reads. Its versions begin at the time in milliseconds: so they lie above
    all versions that gateways may know from a database which was there before."""
    execute("""
        CREATE TABLE groups.metadata_version (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            version bigint NOT NULL
        );
        INSERT INTO groups.metadata_version (version) SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
        CREATE TABLE groups.metadata_changes (
            version bigint PRIMARY KEY,
            topic_id uuid,
            group_id text
        );
    """)
    # The row of the last version stays locked until the commit, so versions have the order of commits.
    op.execute("""
        CREATE FUNCTION groups.note_change(of_topic uuid, of_group text) RETURNS bigint LANGUAGE plpgsql AS $$
        DECLARE noted bigint;
        BEGIN
            UPDATE groups.metadata_version SET version = version + 1 RETURNING version INTO noted;
            INSERT INTO groups.metadata_changes (version, topic_id, group_id) VALUES (noted, of_topic, of_group);
            IF noted % 1000 = 0 THEN
                DELETE FROM groups.metadata_changes WHERE version <= noted - 10000;
            END IF;
            PERFORM pg_notify('sharequeue_groups_changes', '');
            RETURN noted;
        END $$
    """)


def _access() -> None:
    """Keys of callers, rights of principals, and the revision of both. A revision is the time in milliseconds, or the
    number after the last one. So a database that went back to an older state gives no revision again that gateways may
    know."""
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
