"""Whose a transaction is: each call by its owner, by another caller, and through the change to required access keys."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs
from sharequeue_gateway.record_log.owner import ANY_OWNER, ANYBODY, Owner, owner_of
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.store import OWNED
from sharequeue_gateway.record_log.transactions import list_store
from sharequeue_gateway.record_log.transactions.transaction_rules import ABORT, COMMIT, TERMINATE, State
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction, TransactionOptions

from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue.protocol.messages.transactions import ListTransactionsQuery
from sharequeue_http.forms.errors import ApiError
from tests.storage.database import session
from tests.storage.record_logs import append, batch_of, new_topic
from tests.storage.test_transactions import MINUTE_MS, begin, let_pass, opened

A = owner_of("User:a", ["orders"], ["a-"])
B = owner_of("User:b", ["orders"], [])
C = owner_of("User:c", [], [])
NOBODY = owner_of("", (), ("",))
"""A caller without a key, where keys are optional."""


async def produce(log: PostgresRecordLog, transaction_id: str, owner: Owner, topic: str, *partitions: int) -> list[int]:
    appends = [
        structs.replace(batch_of(topic, ["x"], partition), transaction_id=transaction_id)
        for partition in partitions or (0,)
    ]
    return list((await log.transactions.append(transaction_id, appends, owner=owner)).base_offsets)


CALLS: dict[str, Callable[[PostgresRecordLog, str, Owner, str], Awaitable[Any]]] = {
    "produce": produce,
    "produce to two partitions": lambda log, it, owner, topic: produce(log, it, owner, topic, 0, 1),
    "begin a part": lambda log, it, owner, topic: begin(log, part_of=it, owner=owner),
    "commit": lambda log, it, owner, topic: log.transactions.end(it, COMMIT, owner=owner.patterns),
    "abort": lambda log, it, owner, topic: log.transactions.end(it, ABORT, owner=owner.patterns),
}


async def refusal(call: Awaitable[Any], transaction_id: str) -> dict[str, Any]:
    with pytest.raises(ApiError) as refused:
        await call
    error = refused.value
    said = {"code": KAFKA_CODES[error.error], "status": error.status, "definite": error.definite}
    return {**said, "detail": error.detail.replace(transaction_id, "…"), **dict.fromkeys(error.extra or {}, "…")}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", ["open", "open and past", "with records", "committed", "aborted"])
async def test_anothers_transaction_is_answered_as_one_that_never_existed(
    module_database: str, call: str, state: str
) -> None:
    topic = new_topic()
    async with opened(module_database) as log, session(module_database) as admin:
        await append(log, topic, ["first"])
        its = await begin(log, owner=A)
        if state in ("with records", "committed", "aborted"):
            await produce(log, its, A, topic)
        if state in ("committed", "aborted"):
            await log.transactions.end(its, COMMIT if state == "committed" else ABORT, owner=A.patterns)
        if state == "open and past":
            await let_pass(admin, its)
        never = str(uuid.uuid4())
        wanted = await refusal(CALLS[call](log, never, C, topic), never)
        assert wanted["code"] == 105
        for _ in range(2):
            assert await refusal(CALLS[call](log, its, C, topic), its) == wanted
        assert await log.transactions.find(its, C.patterns) is None
        found = await log.transactions.find(its, A.patterns)
        assert found is not None, "it is as it was"
        assert (found.state is State.OPEN) == (state in ("open", "open and past", "with records"))


@pytest.mark.parametrize("call", CALLS)
async def test_a_transactional_id_is_of_those_who_may_use_it(module_database: str, call: str) -> None:
    topic, its_id = new_topic(), "orders"
    async with opened(module_database) as log:
        await append(log, topic, ["first"])
        its = await begin(log, owner=A, transactional_id=its_id)
        await CALLS[call](log, its, B, topic)
        for other in (C, owner_of("User:d", ["order_"], ["orders-", "o_ders%"])):
            again = await begin(log, owner=A, transactional_id=its_id)
            assert (await refusal(CALLS[call](log, again, other, topic), again))["code"] == 105


async def test_a_part_is_of_the_caller_that_began_it(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database) as log:
        await append(log, topic, ["first"])
        whole = await begin(log, owner=A, transactional_id="orders")
        part = await begin(log, owner=B, part_of=whole)
        await produce(log, part, B, topic)
        assert (await refusal(produce(log, part, C, topic), part))["code"] == 105
        committed = await log.transactions.end(whole, COMMIT, parts=[part], owner=A.patterns)
        assert (committed.state, committed.partitions) == (State.COMMITTED, 1)


async def test_a_producer_lives_through_the_change_to_required_keys(module_database: str) -> None:
    """Each call may go to a gateway in another mode: off, optional with and without a key, required."""
    topic, name = new_topic(), "a-producer"
    async with opened(module_database) as log:
        await append(log, topic, ["first"])
        epochs = []
        for before, after in ((ANYBODY, NOBODY), (NOBODY, A), (ANYBODY, A), (A, ANYBODY), (A, A)):
            begun = await log.transactions.begin(NewTransaction(10 * MINUTE_MS, name, None, before))
            epochs.append(begun.producer_epoch)
            await produce(log, begun.transaction_id, after, topic)
            part = await begin(log, owner=before, part_of=begun.transaction_id)
            await produce(log, part, after, topic, 0, 1)
            ended = await log.transactions.end(
                begun.transaction_id, COMMIT, note=str(len(epochs)), parts=[part], owner=after.patterns
            )
            assert ended.state is State.COMMITTED
            unnamed = await begin(log, owner=before)
            await produce(log, unnamed, after, topic)
            await log.transactions.end(unnamed, ABORT, owner=after.patterns)
            again = await log.transactions.begin(NewTransaction(10 * MINUTE_MS, name, begun.producer_epoch, after))
            assert (again.committed_note, again.producer_epoch) == (str(len(epochs)), begun.producer_epoch)
        assert epochs == list(range(epochs[0], epochs[0] + 5)), "notes and epochs are kept"


async def test_terminate_and_the_sweep_end_any(module_database: str) -> None:
    async with opened(module_database) as log, session(module_database) as admin:
        its, late = await begin(log, owner=A), await begin(log, owner=A)
        assert (await log.transactions.end(its, TERMINATE, owner=ANY_OWNER)).state is State.ABORTED
        await let_pass(admin, late)
        await log.transactions.sweep()
        assert await log.transactions.find(late, A.patterns) is None


async def test_appends_of_several_callers_in_one_commit(module_database: str) -> None:
    """Those of the owner are appended, in whatever company; the other caller's are refused, and hold up nothing."""
    topic = new_topic()
    async with opened(module_database) as log:
        await append(log, topic, ["first"], 0)
        await append(log, topic, ["first"], 1)
        mine, yours = await begin(log, owner=A), await begin(log, owner=C)
        callers = [(mine, A, 0), (mine, C, 0), (yours, C, 1), (yours, A, 1), (mine, A, 1), (mine, C, 1), (yours, C, 0)]
        answers = await asyncio.gather(
            *(produce(log, it, owner, topic, partition) for it, owner, partition in callers * 5), return_exceptions=True
        )
        for (it, owner, _), answer in zip(callers * 5, answers, strict=True):
            if owner == (A if it == mine else C):
                assert isinstance(answer, list), answer
            else:
                assert isinstance(answer, ApiError)
                assert KAFKA_CODES[answer.error] == 105
        ended = await log.transactions.end(mine, COMMIT, owner=A.patterns)
        assert ended.partitions == 2


async def test_anothers_appends_take_no_bytes_of_a_transaction(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database, transactions=TransactionOptions(most_bytes=100, sweep_s=1e6)) as log:
        await append(log, topic, ["first"])
        its = await begin(log, owner=A)
        for _ in range(10):
            assert (await refusal(produce(log, its, C, topic), its))["code"] == 105
        await produce(log, its, A, topic)


async def test_one_principal_has_a_part_of_the_open_transactions_beside_others(database_url: str) -> None:
    options = TransactionOptions(most_open=6, sweep_s=1e6, percent_each=50)
    async with opened(database_url, transactions=options) as log:
        mine = [await begin(log, owner=A) for _ in range(5)]
        with pytest.raises(ApiError, match=r"User:a has 5 open transactions"):
            await begin(log, owner=A)
        await begin(log, owner=B)
        for owner in (A, B, ANYBODY):
            with pytest.raises(ApiError, match=r"6 transactions are open|User:a has 5") as refused:
                await begin(log, owner=owner)
            assert refused.value.status == 429
        for transaction_id in mine[:4]:
            await log.transactions.end(transaction_id, ABORT)
            if transaction_id in mine[:2]:
                with pytest.raises(ApiError, match=r"User:a has"):
                    await begin(log, owner=A)
        for name in (None, "a-1"):
            await begin(log, owner=A, transactional_id=name)
        with pytest.raises(ApiError, match=r"User:a has 3 open transactions.*one principal has 3.*principal_percent"):
            await begin(log, owner=A)
        await begin(log, owner=B)
        await begin(log)
        with pytest.raises(ApiError, match=r"^6 transactions are open"):
            await begin(log)


async def test_parts_count_among_the_open_transactions_of_their_principal(database_url: str) -> None:
    options = TransactionOptions(most_open=6, sweep_s=1e6, percent_each=50)
    async with opened(database_url, transactions=options) as log:
        await begin(log, owner=B)
        whole = await begin(log, owner=A)
        for _ in range(2):
            await begin(log, owner=A, part_of=whole)
        with pytest.raises(ApiError, match=r"User:a has 3 open transactions"):
            await begin(log, owner=A, part_of=whole)
        await begin(log, owner=B)


async def test_an_end_by_another_waits_for_no_lock_of_it(module_database: str) -> None:
    async with opened(module_database) as log, session(module_database) as admin:
        its = await begin(log, owner=A)
        async with admin.transaction(), asyncio.timeout(60):
            await admin.execute("SELECT FROM log.transactions WHERE transaction_id = $1 FOR UPDATE", its)
            assert (await refusal(log.transactions.end(its, ABORT, owner=C.patterns), its))["code"] == 105
        assert (await log.transactions.end(its, ABORT, owner=A.patterns)).state is State.ABORTED


async def test_lists_show_own_ones_and_those_of_known_ids(database_url: str) -> None:
    topic = new_topic()
    async with opened(database_url) as log:
        await append(log, topic, ["first"])
        its = {
            "mine": await begin(log, owner=A),
            "named": await begin(log, owner=C, transactional_id="a-1"),
            "others": await begin(log, owner=C),
            "others named": await begin(log, owner=C, transactional_id="z"),
            "nobody's": await begin(log),
        }
        listed = owner_of("User:a", ["orders"], ["a-"], of_nobody=False).patterns

        async def names(state: str, owner: str) -> set[str]:
            query = ListTransactionsQuery(state=state)  # type: ignore[arg-type]
            some: Any = list_store.list_open if state == "open" else list_store.list_ended
            page, _ = await log.database.query(some, query, None, owner)
            return {name for name, its_id in its.items() if its_id in {each.transaction_id for each in page}}

        assert await names("open", listed) == {"mine", "named"}
        assert await names("open", ANY_OWNER) == set(its)
        for transaction_id in its.values():
            await produce(log, transaction_id, ANYBODY, topic)
            await log.transactions.end(transaction_id, COMMIT)
        assert await names("committed", listed) == {"mine", "named"}
        assert await names("committed", ANY_OWNER) == set(its)


@pytest.mark.parametrize("name", ["a", "a%", "a_", "%", "_", "\\", "a\\", "ab", "é%", "i", "p", "User:a", "A"])
@pytest.mark.parametrize("right", ["a", "a%", "_", "%", "\\", "a\\", "a\nb", "p\n%", "\0", "é", "User:a"])
async def test_patterns_are_names_and_beginnings_as_they_stand(module_database: str, name: str, right: str) -> None:
    async with session(module_database) as admin:

        async def fits(owner: Owner, transactional_id: str | None, principal: str) -> bool:
            statement = (
                f"SELECT {OWNED.format(owner='$3')} FROM (SELECT $1::text AS transactional_id, $2::text AS principal) t"
            )
            found: bool = await admin.fetchval(statement, transactional_id, principal, owner.patterns)
            return found

        assert await fits(owner_of("User:x", [right], []), name, "") == (name == right)
        assert await fits(owner_of("User:x", [], [right]), name, "") == name.startswith(right)
        if right.isprintable():
            assert await fits(owner_of(name, [right], [right]), None, right) == (name == right)
