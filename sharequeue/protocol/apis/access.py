"""Keys and rights: calls of a gateway, which passes them on to the group coordinator."""

from functools import partial

from sharequeue.protocol.access.columns import Access, always, cluster
from sharequeue.protocol.messages import access as messages
from sharequeue.protocol.messages.operations import Empty
from sharequeue_http.forms.api import Api

_reads = partial(Api, tag="Access", access=Access((cluster("DESCRIBE"),), keyed=True))
_changes = partial(Api, tag="Access", access=Access((cluster("ALTER"),), keyed=True, audited=always))

CREATE_KEY = _changes(
    "createKey",
    "POST /v1/keys",
    "Make a key of a principal; its text is in this answer alone.",
    description="The key holds at every gateway within 5 seconds. A principal may have several keys, so that one can replace "
    "another while both hold.",
    request=messages.CreateKeyRequest,
    response=messages.CreatedKey,
    status=201,
)
LIST_KEYS = _reads(
    "listKeys",
    "GET /v1/keys",
    "List keys by id, a page at a time, without their secrets.",
    description="Keys that have ended or were revoked are among them for 30 days.",
    request=messages.ListKeysQuery,
    response=messages.KeyList,
)
ROTATE_KEY = _changes(
    "rotateKey",
    "POST /v1/keys/{key_id}/rotate",
    "Make another key of the same principal; the old one holds for `overlap_ms` more.",
    description="Give the new key to its users within that time. Both keys name the same principal, so its waiting fetches, "
    "streams and transactions go on.",
    request=messages.RotateKeyRequest,
    response=messages.CreatedKey,
    status=201,
    errors=("RESOURCE_NOT_FOUND",),
)
REVOKE_KEY = _changes(
    "revokeKey",
    "DELETE /v1/keys/{key_id}",
    "Revoke a key: within 5 seconds no gateway takes it any more.",
    description="Its waiting fetches end. Records that were answered to it stay locked until their locks end.",
    response=messages.KeyDescription,
    errors=("RESOURCE_NOT_FOUND",),
    idempotent=True,
)
REVOKE_KEYS = _changes(
    "revokeKeys",
    "DELETE /v1/keys",
    "Revoke every key that was made before a time.",
    description="A backup of PostgreSQL has keys that were revoked later. After restoring it, revoke those made before the "
    "restore, and make new ones in the database itself (`--database-url`).",
    request=messages.RevokeKeysRequest,
    response=messages.RevokedKeys,
    idempotent=True,
)
ADD_ACLS = _changes(
    "addAcls",
    "POST /v1/acls",
    "Add rights of principals.",
    description="They hold at every gateway within 5 seconds. All of them are added, or none.",
    request=messages.AddAclsRequest,
    response=messages.AclList,
    status=201,
    idempotent=True,
)
LIST_ACLS = _reads(
    "listAcls",
    "GET /v1/acls",
    "List rights.",
    description="There are at most 10,000.",
    request=messages.ListAclsQuery,
    response=messages.AclList,
)
REMOVE_ACLS = _changes(
    "removeAcls",
    "DELETE /v1/acls",
    "Remove the rights that have these members; answers those that were removed.",
    description="At least one member is needed. Gateways refuse what the rights covered within 5 seconds.",
    request=messages.ListAclsQuery,
    response=messages.AclList,
    idempotent=True,
)
DESCRIBE_ACCESS = Api(
    "describeAccess",
    "GET /v1/metadata/access",
    "Get all keys that hold, and all rights.",
    response=messages.AccessResponse,
)
NOTE_KEY_USES = Api(
    "noteKeyUses",
    "POST /v1/metadata/key-uses",
    "Note when keys were used last.",
    request=messages.KeyUsesRequest,
    response=Empty,
    idempotent=True,
)
