"""The messages of keys and rights. A key's text is in one answer alone, to the call that made it."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Request, Response, at_most
from sharequeue.protocol.types import MAX_NAME_LENGTH, MAX_PAGE_SIZE
from sharequeue_http.forms.mistakes import MUST

MAX_RIGHTS = 10_000
MAX_KEYS = 10_000

PrincipalName = Annotated[
    str,
    Meta(
        pattern=r"^User:[a-zA-Z0-9_.@+:/-]{1,200}\Z",
        max_length=205,
        extra={MUST: "be `User:` and 1 to 200 characters of a-z, A-Z, 0-9, `_`, `.`, `@`, `+`, `:`, `/` and `-`"},
    ),
]
KeyId = Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9a-f]{16}$", "maxLength": 16})]
ResourceName = Annotated[fields.PlainText, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
ResourceType = Annotated[
    Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"],
    Meta(title="ResourceType", description="The kind of the things that a right covers."),
]
PatternType = Annotated[
    Literal["LITERAL", "PREFIXED"],
    Meta(title="PatternType", description="Whether `resource_name` is a whole name or the beginning of names."),
]
Operation = Annotated[
    Literal["READ", "WRITE", "CREATE", "DELETE", "DESCRIBE", "ALTER"],
    Meta(title="Operation", description="What a right allows. READ, WRITE, DELETE and ALTER include DESCRIBE."),
]


# Keys


class CreateKeyRequest(Request):
    """A new key of a principal."""

    principal: PrincipalName
    """Whom the key names: `User:orders-team`. A principal exists by its keys and rights alone."""
    expires_at_ms: fields.TimestampMs | None = None
    """When the key ends. Without it, it holds until it is revoked."""
    description: Annotated[fields.PlainText, Meta(max_length=200)] = ""
    """What the key is for, in words."""


class KeyDescription(Response):
    """A key without its secret."""

    key_id: KeyId
    """The id of the key: the part between its first and second `_`."""
    principal: str
    """Whom the key names."""
    description: str
    """What the key is for, as it was said when the key was made."""
    created_at_ms: fields.TimestampMs
    """When the key was made."""
    expires_at_ms: fields.TimestampMs | None = None
    """When the key ends; absent: it holds until it is revoked."""
    revoked_at_ms: fields.TimestampMs | None = None
    """When the key was revoked; absent: it was not."""
    last_used_at_ms: fields.TimestampMs | None = None
    """The last use, exact to ten minutes; absent: none is known."""


class CreatedKey(KeyDescription, kw_only=True):
    """A key that was just made. Its text is not stored and cannot be shown again."""

    key: str
    """The key. Send it as `Authorization: Bearer <key>`."""


class ListKeysQuery(Request):
    """A page of the keys, by id."""

    principal: PrincipalName | None = None
    """Only the keys that name this one."""
    page_size: fields.PageSize = 100
    """The most keys of the page."""
    page_token: fields.PageToken | None = None


class KeyList(Response):
    """A page of the keys."""

    keys: Annotated[list[KeyDescription], at_most(MAX_PAGE_SIZE)]
    """The keys of the page, by id."""
    next_page_token: fields.NextPageToken | None = None


class RotateKeyRequest(Request):
    """Make another key of the same principal."""

    overlap_ms: Annotated[int, Meta(ge=0, le=2_592_000_000, extra_json_schema={"format": "int64"})] = 86_400_000
    """How long the old key still holds: a day, at most 30 days."""
    expires_at_ms: fields.TimestampMs | None = None
    """When the new key ends."""


class RevokeKeysRequest(Request):
    """Revoke every key that was made before a time, as after a backup was restored."""

    made_before_ms: fields.TimestampMs
    """Keys that were made earlier are revoked."""


class RevokedKeys(Response):
    """The outcome of a revocation of many keys."""

    revoked_count: fields.Count
    """How many keys held until now."""


# Rights


class Acl(Struct, kw_only=True, frozen=True):
    """One right, in Kafka's words. There are only those that allow."""

    principal: PrincipalName
    """Who gets the right."""
    operation: Operation
    """What the right allows."""
    resource_type: ResourceType
    """What kind of thing it covers."""
    resource_name: ResourceName
    """A name, `*` for all names, or the beginning of names if `pattern_type` is `PREFIXED`. Of the cluster:
    `kafka-cluster`."""
    pattern_type: PatternType = "LITERAL"
    """How `resource_name` is meant."""


class AddAclsRequest(Request):
    """Rights to add. One that is there already stays."""

    acls: Annotated[list[Acl], Meta(min_length=1, max_length=1000)]
    """The rights: 1 to 1,000, all added or none."""


class ListAclsQuery(Request):
    """Rights that have these members, by principal. A member that is left out fits all."""

    principal: PrincipalName | None = None
    """Only the rights that this one has."""
    operation: Operation | None = None
    """Only rights that allow this."""
    resource_type: ResourceType | None = None
    """Only rights that cover things of this kind."""
    resource_name: ResourceName | None = None
    """Rights with exactly this name; a right that covers the name by another text does not fit."""
    pattern_type: PatternType | None = None
    """Only rights whose names are meant in this way."""


class AclList(Response):
    """The rights that a call added, found or removed."""

    acls: Annotated[list[Acl], at_most(MAX_RIGHTS)]
    """The rights, by principal."""


# Between services


class StoredKey(Struct, kw_only=True, frozen=True):
    """A key that holds, as gateways compare it. `digest`: SHA-256 in hexadecimal."""

    key_id: str
    digest: str
    principal: str
    expires_at_ms: int | None = None


class AccessResponse(Response):
    """All keys that hold, and all rights. `revision`: of the feed when this was read, or a later one."""

    revision: int
    keys: list[StoredKey]
    acls: list[Acl]


class KeyUsesRequest(Request):
    """The times at which keys were used last, by id, in milliseconds. A gateway reports them every ten minutes."""

    used_at_ms: dict[str, int]
