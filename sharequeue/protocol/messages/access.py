"""The messages of keys and rights. A key's text is in one answer: that of the call that made it."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from sharequeue.protocol.messages.fields import PageSize, PageToken, PlainText, Request, Response, TimestampMs, at_most
from sharequeue.protocol.types import MAX_NAME_LENGTH, MAX_PAGE_SIZE
from sharequeue_http.forms.mistakes import MUST

MAX_RIGHTS = 10_000
MAX_KEYS = 10_000

PrincipalName = Annotated[
    str,
    Meta(
        pattern=r"^User:[a-zA-Z0-9_.@+:/-]{1,200}\Z",
        extra={MUST: "be `User:` and 1 to 200 characters of a-z, A-Z, 0-9, `_`, `.`, `@`, `+`, `:`, `/` and `-`"},
    ),
]
ResourceName = Annotated[PlainText, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
ResourceTypeName = Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"]
PatternTypeName = Literal["LITERAL", "PREFIXED"]
OperationName = Literal["READ", "WRITE", "CREATE", "DELETE", "DESCRIBE", "ALTER"]


# Keys


class CreateKeyRequest(Request):
    """A new key of a principal."""

    principal: PrincipalName
    """Whom the key names: `User:orders-team`. A principal exists by its keys and rights alone."""
    expires_at_ms: TimestampMs | None = None
    """When the key ends. Without it, it holds until it is revoked."""
    description: Annotated[PlainText, Meta(max_length=200)] = ""
    """What the key is for, in words."""


class KeyDescription(Response):
    """A key without its secret."""

    key_id: str
    """The id of the key: the part between the first and the second `_`."""
    principal: str
    description: str
    created_at_ms: TimestampMs
    expires_at_ms: TimestampMs | None = None
    revoked_at_ms: TimestampMs | None = None
    last_used_at_ms: TimestampMs | None = None
    """The last use, exact to ten minutes."""


class CreatedKey(Response):
    """A key that was just made. Its text is not stored and cannot be shown again."""

    key: str
    """Send it as `Authorization: Bearer <key>`."""
    key_id: str
    principal: str
    expires_at_ms: TimestampMs | None = None


class ListKeysQuery(Request):
    """A page of the keys, by id."""

    principal: PrincipalName | None = None
    page_size: PageSize = 100
    page_token: PageToken | None = None


class KeyList(Response):
    keys: Annotated[list[KeyDescription], at_most(MAX_PAGE_SIZE)]
    next_page_token: str | None = None


class RotateKeyRequest(Request):
    """Make another key of the same principal."""

    overlap_ms: Annotated[int, Meta(ge=0, le=2_592_000_000)] = 86_400_000
    """How long the old key still holds."""
    expires_at_ms: TimestampMs | None = None
    """When the new key ends."""


class RevokeKeysRequest(Request):
    """Revoke every key that was made before a time, as after a backup was restored."""

    made_before_ms: TimestampMs


class RevokedKeys(Response):
    revoked_count: int


# Rights


class Acl(Struct, kw_only=True, frozen=True):
    """One right, in Kafka's words. There are only those that allow."""

    principal: PrincipalName
    operation: OperationName
    resource_type: ResourceTypeName
    resource_name: ResourceName
    """A name, `*` for all names, or the beginning of names if `pattern_type` is `PREFIXED`. Of the cluster:
    `kafka-cluster`."""
    pattern_type: PatternTypeName = "LITERAL"


class AddAclsRequest(Request):
    """Rights to add. One that is there already stays."""

    acls: Annotated[list[Acl], Meta(min_length=1, max_length=1000)]


class ListAclsQuery(Request):
    """Rights that have these members, by principal. A member that is left out fits all."""

    principal: PrincipalName | None = None
    operation: OperationName | None = None
    resource_type: ResourceTypeName | None = None
    resource_name: ResourceName | None = None
    pattern_type: PatternTypeName | None = None


class AclList(Response):
    acls: Annotated[list[Acl], at_most(MAX_RIGHTS)]


# Between services


class StoredKey(Struct, kw_only=True, frozen=True):
    """A key that holds, as gateways compare it. `digest`: SHA-256 in hexadecimal."""

    key_id: str
    digest: str
    principal: str
    expires_at_ms: int | None = None


class AccessResponse(Response):
    """All keys that hold, and all rights. `revision`: that of the feed when this was read, or a later one."""

    revision: int
    keys: list[StoredKey]
    acls: list[Acl]


class KeyUsesRequest(Request):
    """When keys were used last, by id, in milliseconds. A gateway reports them every ten minutes."""

    used_at_ms: dict[str, int]
