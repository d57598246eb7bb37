"""Keys and rights in the database: what each change stores, what it refuses, and the revision that it raises."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.http.metadata_api import MetadataApi
from sharequeue_coordinator.metadata import store

from sharequeue import access_store
from sharequeue.protocol.access.keys import make_key, parse_key
from sharequeue.protocol.errors import InvalidGroupId, InvalidTopic, NotCoordinator, ResourceNotFound
from sharequeue.protocol.messages.access import (
    AccessResponse,
    Acl,
    AclList,
    AddAclsRequest,
    CreatedKey,
    CreateKeyRequest,
    KeyDescription,
    KeyUsesRequest,
    ListAclsQuery,
    ListKeysQuery,
    RevokedKeys,
    RevokeKeysRequest,
    RotateKeyRequest,
)
from sharequeue.protocol.messages.cluster import MetadataChangesQuery, MetadataChangesResponse
from sharequeue.stack.checks import in_database
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest, Throttled
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.group_coordinators import instance, running, two

DAY_MS = 24 * 3600 * 1000


def a_right(resource_name: str = "orders", **members: Any) -> Acl:
    return Acl(
        **{"principal": "User:a", "operation": "READ", "resource_type": "TOPIC", "resource_name": resource_name}
        | members
    )


def now_ms() -> int:
    return int(time.time() * 1000)


async def create(coordinator: GroupCoordinator, principal: str = "User:a", **members: Any) -> CreatedKey:
    created: CreatedKey = await coordinator.metadata.change(
        access_store.create_key, CreateKeyRequest(principal=principal, **members)
    )
    return created


async def described(coordinator: GroupCoordinator) -> AccessResponse:
    found: AccessResponse = await coordinator.metadata.read(access_store.describe_access)
    return found


async def listed(coordinator: GroupCoordinator) -> dict[str, KeyDescription]:
    page = await coordinator.metadata.read(access_store.list_keys, ListKeysQuery())
    return {key.key_id: key for key in page.keys}


async def changes(coordinator: GroupCoordinator, since: int, max_wait_ms: int = 0) -> MetadataChangesResponse:
    query = MetadataChangesQuery(since=since, max_wait_ms=max_wait_ms)
    return await MetadataApi(coordinator).metadata_changes(Call(None, {}, b"", query, "r"))  # type: ignore[arg-type]


# Keys


async def test_a_key_is_stored_as_its_digest_alone(database_url: str) -> None:
    async with running(database_url) as coordinator, session(database_url) as connection:
        created = await create(coordinator, description="what it is for")
        key = parse_key(created.key)
        assert key is not None
        assert key.key_id == created.key_id
        (stored,) = (await described(coordinator)).keys
        assert key.is_of(bytes.fromhex(stored.digest))
        row = await connection.fetchrow("SELECT * FROM groups.access_keys")
        assert created.key.split("_")[2] not in repr(tuple(row))
        (shown,) = (await listed(coordinator)).values()
        assert (shown.principal, shown.description) == ("User:a", "what it is for")
        assert abs(shown.created_at_ms - now_ms()) < 60_000


async def test_a_revoked_or_ended_key_is_listed_and_does_not_hold(database_url: str) -> None:
    async with running(database_url) as coordinator, session(database_url) as connection:
        revoked, ended, held = [await create(coordinator, expires_at_ms=now_ms() + DAY_MS) for _ in range(3)]
        first = await coordinator.metadata.change(access_store.revoke_key, revoked.key_id)
        assert await coordinator.metadata.change(access_store.revoke_key, revoked.key_id) == first
        await connection.execute("UPDATE groups.access_keys SET expires_at_ms = 1 WHERE key_id = $1", ended.key_id)
        assert [key.key_id for key in (await described(coordinator)).keys] == [held.key_id]
        assert set(await listed(coordinator)) == {revoked.key_id, ended.key_id, held.key_id}
        for unknown in ("0123456789abcdef", "\x00"):
            with pytest.raises(ResourceNotFound):
                await coordinator.metadata.change(access_store.revoke_key, unknown)
            with pytest.raises(ResourceNotFound):
                await coordinator.metadata.change(access_store.rotate_key, unknown, RotateKeyRequest())
        with pytest.raises(ResourceNotFound) as refused:
            await coordinator.metadata.change(access_store.revoke_key, held.key)
        assert held.key.split("_")[2] not in refused.value.detail


async def test_both_keys_hold_while_a_rotation_overlaps(database_url: str) -> None:
    async with running(database_url) as coordinator, session(database_url) as connection:
        old = await create(coordinator, "User:job", description="nightly")
        rotate = RotateKeyRequest(overlap_ms=3_600_000)
        new = await coordinator.metadata.change(access_store.rotate_key, old.key_id, rotate)
        keys = {key.key_id: key for key in (await described(coordinator)).keys}
        assert {key.principal for key in keys.values()} == {"User:job"}
        assert keys[new.key_id].expires_at_ms is None
        assert 0 < (keys[old.key_id].expires_at_ms or 0) - now_ms() <= 3_600_000
        assert (await listed(coordinator))[new.key_id].description == "nightly"
        longer = RotateKeyRequest(overlap_ms=DAY_MS)
        await coordinator.metadata.change(access_store.rotate_key, old.key_id, longer)
        assert (await listed(coordinator))[old.key_id].expires_at_ms == keys[old.key_id].expires_at_ms, "never later"
        await connection.execute("UPDATE groups.access_keys SET expires_at_ms = 1 WHERE key_id = $1", old.key_id)
        with pytest.raises(ResourceNotFound):
            await coordinator.metadata.change(access_store.rotate_key, old.key_id, longer)


async def test_a_refused_rotation_leaves_the_old_key_as_it_was(database_url: str) -> None:
    async with running(database_url) as coordinator:
        old = await create(coordinator)
        before = await described(coordinator)
        past = RotateKeyRequest(overlap_ms=0, expires_at_ms=1)
        with pytest.raises(InvalidRequest):
            await coordinator.metadata.change(access_store.rotate_key, old.key_id, past)
        assert await described(coordinator) == before


async def test_keys_made_before_a_time_are_revoked(database_url: str) -> None:
    async with running(database_url) as coordinator, session(database_url) as connection:
        early, late = [await create(coordinator) for _ in range(2)]
        await connection.execute("UPDATE groups.access_keys SET created_at_ms = 1000 WHERE key_id = $1", early.key_id)
        assert await coordinator.metadata.change(
            access_store.revoke_keys, RevokeKeysRequest(made_before_ms=1000)
        ) == RevokedKeys(revoked_count=0)
        assert await coordinator.metadata.change(
            access_store.revoke_keys, RevokeKeysRequest(made_before_ms=1001)
        ) == RevokedKeys(revoked_count=1)
        assert await coordinator.metadata.change(
            access_store.revoke_keys, RevokeKeysRequest(made_before_ms=1001)
        ) == RevokedKeys(revoked_count=0)
        assert [key.key_id for key in (await described(coordinator)).keys] == [late.key_id]


@pytest.mark.parametrize(
    "members", [{"expires_at_ms": 1}, {"expires_at_ms": 0}, {"principal": "User:ANONYMOUS"}], ids=repr
)
async def test_a_key_that_nobody_could_use_is_refused(module_database: str, members: dict[str, Any]) -> None:
    async with running(module_database) as coordinator:
        with pytest.raises(InvalidRequest):
            await create(coordinator, **members)
        assert not await listed(coordinator)


async def test_keys_are_bounded_and_those_that_ended_do_not_count(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_store, "MAX_KEYS", 3)
    async with running(database_url) as coordinator:
        outcomes = await asyncio.gather(*(create(coordinator) for _ in range(5)), return_exceptions=True)
        made = [created for created in outcomes if isinstance(created, CreatedKey)]
        assert (len(made), [type(other) for other in outcomes if other not in made]) == (3, [Throttled] * 2)
        await coordinator.metadata.change(access_store.revoke_key, made[0].key_id)
        await create(coordinator)


async def test_a_key_is_removed_thirty_days_after_its_end(database_url: str) -> None:
    async with running(database_url) as coordinator, session(database_url) as connection:
        key = make_key(b"12345678", bytes(32))
        request = CreateKeyRequest(principal="User:admin")
        await coordinator.metadata.change(access_store.store_key, key, request)
        old, recent, held = [(await create(coordinator)).key_id for _ in range(3)]
        for key_id in (old, recent, key.key_id):
            await coordinator.metadata.change(access_store.revoke_key, key_id)
        await connection.execute(
            "UPDATE groups.access_keys SET revoked_at_ms = revoked_at_ms - $1 WHERE key_id != $2",
            30 * DAY_MS + 1,
            recent,
        )
        new = (await create(coordinator)).key_id
        assert set(await listed(coordinator)) == {recent, held, new, key.key_id}
        stored = await coordinator.metadata.change(access_store.store_key, key, request)
        assert stored.revoked_at_ms is not None, "a key from the environment does not come back"


async def test_a_key_from_the_environment_is_stored_once(database_url: str) -> None:
    async with running(database_url) as coordinator:
        key = make_key(b"12345678", bytes(32))
        request = CreateKeyRequest(principal="User:admin")
        stored = [await coordinator.metadata.change(access_store.store_key, key, request) for _ in range(2)]
        assert stored[0] == stored[1]
        for other, principal in ((key, "User:other"), (make_key(b"12345678", b"1" * 32), "User:admin")):
            with pytest.raises(InvalidRequest, match=r"the id 3132333435363738 belongs to another key"):
                await coordinator.metadata.change(access_store.store_key, other, CreateKeyRequest(principal=principal))
        assert len(await listed(coordinator)) == 1


async def test_keys_are_listed_by_pages_and_by_principal(database_url: str) -> None:
    async with running(database_url) as coordinator:
        made = sorted([(await create(coordinator, f"User:{n % 2}")).key_id for n in range(5)])
        read: list[str] = []
        query = ListKeysQuery(page_size=2)
        while True:
            page = await coordinator.metadata.read(access_store.list_keys, query)
            read += [key.key_id for key in page.keys]
            if page.next_page_token is None:
                break
            query.page_token = page.next_page_token
        assert read == made
        of_one = await coordinator.metadata.read(access_store.list_keys, ListKeysQuery(principal="User:1"))
        assert [key.principal for key in of_one.keys] == ["User:1"] * 2


async def test_a_use_never_lowers_a_time_and_changes_no_revision(database_url: str) -> None:
    async with running(database_url) as coordinator:
        key_id = (await create(coordinator)).key_id
        before = (await described(coordinator)).revision
        ended_ms = now_ms() - 60_000
        for used_at_ms in (ended_ms, ended_ms - 1000, ended_ms - 1):
            await coordinator.metadata.change(
                access_store.note_key_uses, KeyUsesRequest(used_at_ms={key_id: used_at_ms, "no such key": 1})
            )
        assert (await listed(coordinator))[key_id].last_used_at_ms == ended_ms
        await coordinator.metadata.change(
            access_store.note_key_uses, KeyUsesRequest(used_at_ms={key_id: now_ms() + DAY_MS})
        )
        assert ended_ms < ((await listed(coordinator))[key_id].last_used_at_ms or 0) < now_ms() + 60_000
        assert (await described(coordinator)).revision == before


# Rights


async def test_rights_are_added_and_removed_once(database_url: str) -> None:
    async with running(database_url) as coordinator:
        wanted = [a_right(), a_right("o", pattern_type="PREFIXED"), a_right(principal="User:b"), a_right()]
        assert await coordinator.metadata.change(access_store.add_acls, AddAclsRequest(acls=wanted)) == AclList(
            acls=wanted
        )
        before = await described(coordinator)
        assert {*map(repr, before.acls)} == {*map(repr, wanted)}
        await coordinator.metadata.change(access_store.add_acls, AddAclsRequest(acls=wanted[:1]))
        assert await described(coordinator) == before
        of_a = ListAclsQuery(principal="User:a", resource_name="orders")
        assert await coordinator.metadata.read(access_store.list_acls, of_a) == AclList(acls=[a_right()])
        assert await coordinator.metadata.change(access_store.remove_acls, of_a) == AclList(acls=[a_right()])
        after = await described(coordinator)
        assert await coordinator.metadata.change(access_store.remove_acls, of_a) == AclList(acls=[])
        assert (len(after.acls), after.revision > before.revision) == (2, True)
        with pytest.raises(InvalidRequest):
            await coordinator.metadata.change(access_store.remove_acls, ListAclsQuery())
        assert await described(coordinator) == after


async def test_rights_are_bounded_and_a_refused_call_adds_none(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_store, "MAX_RIGHTS", 3)
    async with running(database_url) as coordinator:
        await coordinator.metadata.change(access_store.add_acls, AddAclsRequest(acls=[a_right("a"), a_right("b")]))
        before = await described(coordinator)
        with pytest.raises(Throttled):
            await coordinator.metadata.change(access_store.add_acls, AddAclsRequest(acls=[a_right("c"), a_right("d")]))
        assert await described(coordinator) == before
        await coordinator.metadata.change(access_store.add_acls, AddAclsRequest(acls=[a_right("a"), a_right("c")]))


@pytest.mark.parametrize(
    ("members", "refusal"),
    [
        ({"resource_name": "a b"}, InvalidTopic),
        ({"resource_name": "__x"}, InvalidTopic),
        ({"resource_name": "*", "pattern_type": "PREFIXED"}, InvalidTopic),
        ({"resource_name": "a/b", "resource_type": "GROUP"}, InvalidGroupId),
        ({"resource_name": "orders", "resource_type": "CLUSTER"}, InvalidRequest),
        ({"resource_name": "kafka-cluster", "resource_type": "CLUSTER", "pattern_type": "PREFIXED"}, InvalidRequest),
    ],
    ids=repr,
)
async def test_a_right_of_something_that_cannot_be_is_refused(
    module_database: str, members: dict[str, Any], refusal: type[Exception]
) -> None:
    async with running(module_database) as coordinator:
        with pytest.raises(refusal):
            await coordinator.metadata.change(
                access_store.add_acls, AddAclsRequest(acls=[a_right("good"), a_right(**members)])
            )
        assert not (await described(coordinator)).acls


async def test_every_name_and_the_beginning_of_one_are_taken(database_url: str) -> None:
    longest = "n" * 249
    wanted = [
        a_right("*"),
        a_right(".", pattern_type="PREFIXED"),
        a_right(longest, pattern_type="PREFIXED"),
        a_right("*", resource_type="GROUP"),
        a_right("größe '; DROP TABLE groups.acls --", resource_type="GROUP"),
        a_right("any text/at all", resource_type="TRANSACTIONAL_ID", operation="WRITE"),
        a_right("kafka-cluster", resource_type="CLUSTER", operation="ALTER"),
        a_right("*", resource_type="CLUSTER", operation="CREATE"),
    ]
    async with running(database_url) as coordinator:
        await coordinator.metadata.change(access_store.add_acls, AddAclsRequest(acls=wanted))
        assert len((await described(coordinator)).acls) == len(wanted)


# The revision, and who may change it


async def test_a_change_raises_the_revision_unless_it_changes_nothing(database_url: str) -> None:
    """Each revision has every gateway read all keys and rights again."""
    async with running(database_url) as coordinator:
        key = make_key(b"12345678", bytes(32))
        again: list[tuple[Any, tuple[Any, ...]]] = [
            (access_store.store_key, (key, CreateKeyRequest(principal="User:a"))),
            (access_store.revoke_key, (key.key_id,)),
            (access_store.add_acls, (AddAclsRequest(acls=[a_right()]),)),
        ]
        for function, arguments in again:
            before = await described(coordinator)
            first = await coordinator.metadata.change(function, *arguments)
            changed = await described(coordinator)
            assert changed.revision > before.revision
            assert await coordinator.metadata.change(function, *arguments) == first
            assert await described(coordinator) == changed
        await create(coordinator)
        revisions = [(await described(coordinator)).revision]
        for _ in range(2):
            await coordinator.metadata.change(access_store.revoke_keys, RevokeKeysRequest(made_before_ms=1 << 60))
            revisions.append((await described(coordinator)).revision)
        assert changed.revision < revisions[0] < revisions[1] == revisions[2]


async def test_the_feed_shows_the_revision_of_each_change(database_url: str) -> None:
    async with running(database_url) as coordinator:
        before = await changes(coordinator, 0)
        assert (before.reset, before.access) == (True, (await described(coordinator)).revision)
        waiting = asyncio.create_task(changes(coordinator, before.version, max_wait_ms=30_000))
        await create(coordinator)
        await coordinator.metadata.catch_up()
        after = await waiting
        assert after.access == (await described(coordinator)).revision > before.access
        assert (after.reset, after.topics, after.group_ids) == (False, [], [])


async def test_a_change_in_the_database_itself_has_the_same_effect(database_url: str) -> None:
    """As `sharequeue keys --database-url` makes it."""
    async with running(database_url) as coordinator, session(database_url) as connection:
        before = await changes(coordinator, 0)
        async with connection.transaction():
            await access_store.create_key(connection, CreateKeyRequest(principal="User:a"))
        await coordinator.metadata.catch_up()
        after = await changes(coordinator, before.version)
        assert after.access == (await described(coordinator)).revision > before.access
        assert [key.principal for key in (await described(coordinator)).keys] == ["User:a"]


async def test_a_command_that_falls_silent_ends_soon(database_url: str) -> None:
    """While its change is open, it keeps all other changes of keys, topics and groups waiting."""

    async def timeout(connection: Any) -> str:
        return str(await connection.fetchval("SHOW idle_in_transaction_session_timeout"))

    assert await in_database(database_url, timeout) == "5s"


async def test_two_changes_at_a_time_follow_one_another(database_url: str) -> None:
    """A change in the database waits for the one of a coordinator, as both count what there is."""
    async with running(database_url) as coordinator, session(database_url) as connection:
        pid = connection.get_server_pid()
        async with session(database_url) as watching:
            async with connection.transaction():
                await access_store.add_acls(connection, AddAclsRequest(acls=[a_right()]))
                other = asyncio.create_task(
                    coordinator.metadata.change(access_store.add_acls, AddAclsRequest(acls=[a_right()]))
                )
                while not await watching.fetchval(  # noqa: ASYNC110 - what is waited for happens in PostgreSQL
                    "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", pid
                ):
                    await asyncio.sleep(0.01)
            await other
        assert (await described(coordinator)).acls == [a_right()]


async def test_a_change_in_the_database_and_the_begin_of_a_time_line_are_no_deadlock(database_url: str) -> None:
    async with (
        running(database_url) as coordinator,
        session(database_url) as connection,
        session(database_url) as other,
        session(database_url) as watching,
    ):
        fence = await coordinator.metadata.lead()
        before = await described(coordinator)
        async with connection.transaction():
            await access_store.remove_acls(connection, ListAclsQuery(principal="User:nobody"))  # the change has begun
            beginning = asyncio.create_task(store.begin_time_line(other, fence))
            await waiting_for_a_lock(watching, "")
            await access_store.add_acls(connection, AddAclsRequest(acls=[a_right()]))
        await beginning
        after = await described(coordinator)
        assert (after.acls, after.revision > before.revision + 1) == ([a_right()], True)


async def test_a_revision_that_gateways_know_is_not_given_again_after_a_restore(database_url: str) -> None:
    async with running(database_url) as coordinator, session(database_url) as connection:
        kept = (await described(coordinator)).revision
        created = await create(coordinator)
        known = (await described(coordinator)).revision
        await connection.execute("DELETE FROM groups.access_keys")
        await connection.execute("UPDATE groups.access_revision SET revision = $1", kept)
        await coordinator.metadata.catch_up()
        coordinator._database.time_line.found_older("a test says so")
        coordinator.metadata.forget()
        after = await changes(coordinator, 0)
        assert after.access > known
        assert (await described(coordinator)).keys == []
        with pytest.raises(ResourceNotFound):
            await coordinator.metadata.change(access_store.revoke_key, created.key_id)


async def test_a_change_after_a_restore_that_nobody_saw_has_a_new_revision(database_url: str) -> None:
    """All coordinators were away, and gateways were not: they know revisions which the database has lost."""
    async with running(database_url) as coordinator, session(database_url) as connection:
        kept = (await described(coordinator)).revision
        for _ in range(3):
            await create(coordinator)
        known = (await described(coordinator)).revision
        await connection.execute("UPDATE groups.access_revision SET revision = $1", kept)
        await create(coordinator)
        assert (await described(coordinator)).revision > known


async def test_a_paused_owner_changes_no_keys_and_no_rights(database_url: str) -> None:
    async with instance(database_url, "a") as (old, ownership):
        key_id = (await create(old)).key_id
        epochs = dict(ownership.owned)
        async with instance(database_url, "a") as (new, _):
            before = await described(new)
            ownership._epochs.update(epochs)
            for function, argument in (
                (access_store.create_key, CreateKeyRequest(principal="User:b")),
                (access_store.revoke_key, key_id),
                (access_store.add_acls, AddAclsRequest(acls=[a_right()])),
                (access_store.note_key_uses, KeyUsesRequest(used_at_ms={key_id: now_ms()})),
            ):
                with pytest.raises(NotCoordinator):
                    await old.metadata.change(function, argument)
            assert await described(new) == before
            assert (await listed(new))[key_id].last_used_at_ms is None


async def test_only_the_owner_of_the_cluster_answers(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        (first, _), (second, _) = await two(stack, database_url)
        await create(first)
        with pytest.raises(NotCoordinator):
            await create(second, "User:b")
        with pytest.raises(NotCoordinator):
            await described(second)
        await second.metadata.catch_up()
        assert second.metadata.access == (await described(first)).revision, "and the others know the revision"
