"""The calls about keys and rights, as gateways pass them on and make them on their own behalf."""

from sharequeue import access_store
from sharequeue.protocol import apis
from sharequeue.protocol.messages.access import (
    AccessResponse,
    AclList,
    AddAclsRequest,
    CreatedKey,
    KeyDescription,
    KeyList,
    KeyUsesRequest,
    RevokedKeys,
    RevokeKeysRequest,
)
from sharequeue.protocol.messages.operations import Empty
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api


class AccessApi:
    """The handlers of the calls about keys and rights."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._change = coordinator.access.change
        self._read = coordinator.access.read

    def calls(self) -> list[tuple[Api, Handler]]:
        return [
            (apis.CREATE_KEY, self.create_key),
            (apis.LIST_KEYS, self.list_keys),
            (apis.ROTATE_KEY, self.rotate_key),
            (apis.REVOKE_KEY, self.revoke_key),
            (apis.REVOKE_KEYS, self.revoke_keys),
            (apis.ADD_ACLS, self.add_acls),
            (apis.LIST_ACLS, self.list_acls),
            (apis.REMOVE_ACLS, self.remove_acls),
            (apis.DESCRIBE_ACCESS, self.describe_access),
            (apis.NOTE_KEY_USES, self.note_key_uses),
        ]

    # Keys

    async def create_key(self, call: Call) -> CreatedKey:
        created: CreatedKey = await self._change(access_store.create_key, call.request)
        return created

    async def list_keys(self, call: Call) -> KeyList:
        listed: KeyList = await self._read(access_store.list_keys, call.request)
        return listed

    async def rotate_key(self, call: Call) -> CreatedKey:
        created: CreatedKey = await self._change(access_store.rotate_key, call.path["key_id"], call.request)
        return created

    async def revoke_key(self, call: Call) -> KeyDescription:
        revoked: KeyDescription = await self._change(access_store.revoke_key, call.path["key_id"])
        return revoked

    async def revoke_keys(self, call: Call) -> RevokedKeys:
        request: RevokeKeysRequest = call.request
        return RevokedKeys(revoked_count=await self._change(access_store.revoke_keys, request.made_before_ms))

    # Rights

    async def add_acls(self, call: Call) -> AclList:
        request: AddAclsRequest = call.request
        return AclList(acls=await self._change(access_store.add_acls, request.acls))

    async def list_acls(self, call: Call) -> AclList:
        return AclList(acls=await self._read(access_store.acls, call.request))

    async def remove_acls(self, call: Call) -> AclList:
        return AclList(acls=await self._change(access_store.remove_acls, call.request))

    # For gateways

    async def describe_access(self, _: Call) -> AccessResponse:
        described: AccessResponse = await self._read(access_store.read_all)
        return described

    async def note_key_uses(self, call: Call) -> Empty:
        request: KeyUsesRequest = call.request
        await self._change(access_store.note_uses, request.used_at_ms)
        return Empty()
