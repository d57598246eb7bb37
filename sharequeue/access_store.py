"""Keys and rights in schema `groups`: every statement that reads or changes them.

Two callers have these functions: the group coordinator, in a transaction of its fence, and `sharequeue keys` and
`sharequeue acls` with `--database-url`. A function that changes something expects a transaction. It locks the revision
first, so that changes come one after another. It raises the revision if it has changed something: then every gateway
reads all keys and rights again.
The text of a key is in its answer alone: what is stored is a digest. All times are PostgreSQL's.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from sharequeue.protocol.access.keys import ID_BYTES, KEY_ID, SECRET_BYTES, Key, make_key
from sharequeue.protocol.access.rights import ANONYMOUS, ANY_NAME, CLUSTER_NAME
from sharequeue.protocol.apis import access as apis
from sharequeue.protocol.errors import InvalidGroupId, InvalidTopic, ResourceNotFound
from sharequeue.protocol.messages import access as messages
from sharequeue.protocol.messages.access import MAX_KEYS, MAX_RIGHTS
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.types import MAX_NAME_LENGTH, group_id_fault, topic_name_fault
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import InvalidRequest, Throttled

Connection = Any  # asyncpg ships no types

KEPT_MS: Final = 30 * 24 * 3600 * 1000
"""How long a key is listed after its end. One from the environment always is: otherwise it could be stored again."""

_NOW_MS: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_HOLDS: Final = f"revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > {_NOW_MS})"
_DESCRIBED: Final = ", ".join(messages.KeyDescription.__struct_fields__)
_RIGHT: Final = ", ".join(messages.Acl.__struct_fields__)
_FITS: Final = " AND ".join(f"{member} = coalesce(${n}, {member})" for n, member in enumerate(_RIGHT.split(", "), 1))


async def revision(connection: Connection) -> int:
    """The number of the last change."""
    found: int = await connection.fetchval("SELECT revision FROM groups.access_revision")
    return found


async def describe_access(connection: Connection) -> messages.AccessResponse:
    """All keys that hold and all rights, as of one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        number = await revision(connection)
        rows = await connection.fetch(
            f"""SELECT key_id, encode(digest, 'hex') AS digest, principal, expires_at_ms FROM groups.access_keys
                WHERE {_HOLDS}"""
        )
        rights = await list_acls(connection, messages.ListAclsQuery())
    return messages.AccessResponse(revision=number, keys=[messages.StoredKey(**row) for row in rows], acls=rights.acls)


async def _begin_change(connection: Connection) -> int:
    """Wait for other changes, and keep later ones waiting until the commit. Returns: the time in milliseconds."""
    await connection.execute("SELECT FROM groups.access_revision FOR UPDATE")
    now_ms: int = await connection.fetchval(f"SELECT {_NOW_MS}")
    return now_ms


async def _note(connection: Connection, changed: object) -> None:
    """Raise the revision if something has changed. Every gateway learns of it after the commit."""
    if changed:
        await connection.execute("SELECT groups.note_access()")


# Keys


def new_key() -> Key:
    """Make a key that nobody else has."""
    return make_key(secrets.token_bytes(ID_BYTES), secrets.token_bytes(SECRET_BYTES))


async def create_key(connection: Connection, request: messages.CreateKeyRequest) -> messages.CreatedKey:
    """Make and store a key. Raises: InvalidRequest: it has ended already; Throttled: MAX_KEYS hold."""
    key = new_key()
    return messages.CreatedKey(key=key.text, **await _insert_key(connection, key, request, from_environment=False))


async def store_key(connection: Connection, key: Key, request: messages.CreateKeyRequest) -> messages.KeyDescription:
    """Store a key that was made elsewhere. One that is stored already stays as it is, also if it was revoked.

    Raises: as `create_key`; InvalidRequest: another key or another principal has its id.
    """
    await _begin_change(connection)
    row = await connection.fetchrow(f"SELECT {_DESCRIBED} FROM groups.access_keys WHERE key_id = $1", key.key_id)
    if row is None:
        row = await _insert_key(connection, key, request, from_environment=True)
    digest = await connection.fetchval("SELECT digest FROM groups.access_keys WHERE key_id = $1", key.key_id)
    if not key.is_of(digest) or row["principal"] != request.principal:
        raise InvalidRequest(f"the id {key.key_id} belongs to another key, of {row['principal']}: make a new one")
    return messages.KeyDescription(**row)


async def _insert_key(
    connection: Connection, key: Key, request: messages.CreateKeyRequest, *, from_environment: bool
) -> Mapping[str, Any]:
    """Returns: the members of its description."""
    now_ms = await _begin_change(connection)
    if request.expires_at_ms is not None and request.expires_at_ms <= now_ms:
        raise InvalidRequest("the key would have ended", pointers=[("/expires_at_ms", "must lie in the future")])
    if request.principal == ANONYMOUS:
        raise InvalidRequest(f"{ANONYMOUS} is the caller without a key: give the key another principal")
    if await connection.fetchval(f"SELECT count(*) FROM groups.access_keys WHERE {_HOLDS}") >= MAX_KEYS:
        raise Throttled(f"{MAX_KEYS} keys hold, and there may be no more: revoke some")
    described: Mapping[str, Any] = await connection.fetchrow(
        f"""INSERT INTO groups.access_keys
              (key_id, digest, principal, description, from_environment, created_at_ms, expires_at_ms)
            VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING {_DESCRIBED}""",
        key.key_id,
        key.digest,
        request.principal,
        request.description,
        from_environment,
        now_ms,
        request.expires_at_ms,
    )
    await connection.execute(
        "DELETE FROM groups.access_keys WHERE least(expires_at_ms, revoked_at_ms) < $1 AND NOT from_environment",
        now_ms - KEPT_MS,
    )
    await _note(connection, described)
    return described


async def rotate_key(connection: Connection, key_id: str, request: messages.RotateKeyRequest) -> messages.CreatedKey:
    """Make another key of the same principal, and end this one after `overlap_ms`.

    Raises: ResourceNotFound: there is no such key, or it has ended; as `create_key`.
    """
    _check_id(key_id)
    now_ms = await _begin_change(connection)
    row = await connection.fetchrow(
        f"""UPDATE groups.access_keys SET expires_at_ms = least(expires_at_ms, $2) WHERE key_id = $1 AND {_HOLDS}
            RETURNING principal, description""",
        key_id,
        now_ms + request.overlap_ms,
    )
    if row is None:
        raise ResourceNotFound(f"no key that holds has the id {key_id}")
    return await create_key(connection, messages.CreateKeyRequest(**row, expires_at_ms=request.expires_at_ms))


async def revoke_key(connection: Connection, key_id: str) -> messages.KeyDescription:
    """Revoke a key. One that was revoked stays as it is. Raises: ResourceNotFound."""
    _check_id(key_id)
    now_ms = await _begin_change(connection)
    row = await connection.fetchrow(
        f"""UPDATE groups.access_keys SET revoked_at_ms = coalesce(revoked_at_ms, $2) WHERE key_id = $1
            RETURNING {_DESCRIBED}""",
        key_id,
        now_ms,
    )
    if row is None:
        raise ResourceNotFound(f"no key has the id {key_id}")
    await _note(connection, row["revoked_at_ms"] == now_ms)
    return messages.KeyDescription(**row)


async def revoke_keys(connection: Connection, request: messages.RevokeKeysRequest) -> messages.RevokedKeys:
    """Revoke all keys that were made before a time."""
    now_ms = await _begin_change(connection)
    rows = await connection.fetch(
        f"UPDATE groups.access_keys SET revoked_at_ms = $2 WHERE created_at_ms < $1 AND {_HOLDS} RETURNING 1",
        request.made_before_ms,
        now_ms,
    )
    await _note(connection, rows)
    return messages.RevokedKeys(revoked_count=len(rows))


def _check_id(key_id: str) -> None:
    """Raises: ResourceNotFound: PostgreSQL may be unable to have this; it may be a whole key, so it is not repeated."""
    if not KEY_ID.fullmatch(key_id):
        raise ResourceNotFound("the id of a key has 16 characters of 0-9 and a-f: those after `sq_`")


async def list_keys(connection: Connection, query: messages.ListKeysQuery) -> messages.KeyList:
    """A page of the keys, by id."""
    rows = await connection.fetch(
        f"""SELECT {_DESCRIBED} FROM groups.access_keys WHERE key_id > $1 AND principal = coalesce($2, principal)
            ORDER BY key_id LIMIT $3""",
        query.page_token or "",
        query.principal,
        query.page_size + 1,
    )
    page = [messages.KeyDescription(**row) for row in rows[: query.page_size]]
    return messages.KeyList(keys=page, next_page_token=page[-1].key_id if len(rows) > len(page) else None)


async def note_key_uses(connection: Connection, request: messages.KeyUsesRequest) -> Empty:
    """Note when keys were used last. A time is never lowered, and never lies in the future. Gateways need not learn."""
    await _begin_change(connection)
    await connection.execute(
        f"""UPDATE groups.access_keys SET last_used_at_ms = greatest(last_used_at_ms, least(used.at_ms, {_NOW_MS}))
            FROM unnest($1::text[], $2::bigint[]) AS used(id, at_ms) WHERE key_id = used.id""",
        list(request.used_at_ms),
        list(request.used_at_ms.values()),
    )
    return Empty()


# Rights


async def add_acls(connection: Connection, request: messages.AddAclsRequest) -> messages.AclList:
    """Add rights; those that are there stay. Returns: the wanted ones.

    Raises: InvalidTopic, InvalidGroupId, InvalidRequest: nothing can have the name; Throttled: there are MAX_RIGHTS.
    """
    wanted = request.acls
    for acl in wanted:
        _check(acl)
    await _begin_change(connection)
    added = await connection.fetch(
        f"""INSERT INTO groups.acls ({_RIGHT})
            SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
            ON CONFLICT DO NOTHING RETURNING 1""",
        *map(list, zip(*map(msgspec.structs.astuple, wanted), strict=True)),
    )
    if added and await connection.fetchval("SELECT count(*) FROM groups.acls") > MAX_RIGHTS:
        raise Throttled(f"there may be {MAX_RIGHTS} rights: remove some, or give one for the beginning of many names")
    await _note(connection, added)
    return messages.AclList(acls=wanted)


async def list_acls(connection: Connection, query: messages.ListAclsQuery) -> messages.AclList:
    """The rights that have the members of a query, by principal."""
    found = f"SELECT {_RIGHT} FROM groups.acls WHERE {_FITS} ORDER BY {_RIGHT}"
    rows = await connection.fetch(found, *msgspec.structs.astuple(query))
    return messages.AclList(acls=[messages.Acl(**row) for row in rows])


async def remove_acls(connection: Connection, query: messages.ListAclsQuery) -> messages.AclList:
    """Remove the rights that have the members of a query. Returns: those. Raises: InvalidRequest: it has no member."""
    members = msgspec.structs.astuple(query)
    if not any(members):
        raise InvalidRequest("name at least one member of the rights to remove")
    await _begin_change(connection)
    rows = await connection.fetch(f"DELETE FROM groups.acls WHERE {_FITS} RETURNING {_RIGHT}", *members)
    await _note(connection, rows)
    return messages.AclList(acls=sorted((messages.Acl(**row) for row in rows), key=msgspec.structs.astuple))


def _check(acl: messages.Acl) -> None:
    """Raises: InvalidTopic, InvalidGroupId, InvalidRequest: nothing can have the name."""
    name, prefixed = acl.resource_name, acl.pattern_type == "PREFIXED"
    if acl.resource_type == "CLUSTER":
        if prefixed or name not in (CLUSTER_NAME, ANY_NAME):
            raise InvalidRequest(f"a right of the cluster has the resource_name {CLUSTER_NAME!r}, and no prefix")
    elif prefixed or name != ANY_NAME:
        whole = f"{name}x"[:MAX_NAME_LENGTH] if prefixed else name
        if acl.resource_type == "TOPIC" and (fault := topic_name_fault(whole)):
            raise InvalidTopic(fault)
        if acl.resource_type == "GROUP" and (fault := group_id_fault(whole)):
            raise InvalidGroupId(fault)


# The calls

ACTS: Final[Mapping[Api, Callable[..., Awaitable[Any]]]] = {
    apis.CREATE_KEY: create_key,
    apis.LIST_KEYS: list_keys,
    apis.ROTATE_KEY: rotate_key,
    apis.REVOKE_KEY: revoke_key,
    apis.REVOKE_KEYS: revoke_keys,
    apis.ADD_ACLS: add_acls,
    apis.LIST_ACLS: list_acls,
    apis.REMOVE_ACLS: remove_acls,
    apis.DESCRIBE_ACCESS: describe_access,
    apis.NOTE_KEY_USES: note_key_uses,
}
"""Each call, and its function, which takes what the path names and then the request."""


def act(connection: Connection, api: Api, path: Mapping[str, str], request: Any) -> Awaitable[Any]:
    """Do one call in the database."""
    return ACTS[api](connection, *path.values(), *(() if request is None else (request,)))
