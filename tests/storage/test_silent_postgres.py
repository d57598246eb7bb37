"""The record log on PostgreSQL when it stops answering: producers are answered in time,
and nothing is written twice."""

import asyncio
import base64
import random
from collections import Counter
from collections.abc import Awaitable

import pytest
from sharequeue_gateway.record_log import appending

from sharequeue_http.forms.errors import ApiError, RequestTimedOut
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.lossy_proxy import LossyProxy
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import PostgresRecordLogs, append, batch_of, deadline, new_topic, read_all

DEADLINE_S = 2.0
HANG_S = 60.0


async def failed_in_time(call: Awaitable[object]) -> ApiError:
    """The error of an append that fails at its deadline: PostgreSQL does not answer before."""
    with pytest.raises(ApiError) as raised:
        async with asyncio.timeout(HANG_S):
            await call
    assert (raised.value.status, raised.value.error.retriable) in {(503, True), (504, True)}
    return raised.value


@pytest.mark.parametrize("connected", [True, False])
async def test_a_producer_is_answered_in_time_and_later_appends_succeed(module_database: str, connected: bool) -> None:
    topic = new_topic()
    async with (
        LossyProxy(module_database).running() as proxy,
        PostgresRecordLogs(proxy.url).open(deadline_s=HANG_S) as log,
    ):
        await append(log, topic, ["first"])
        await append(log, topic, ["second"])
        if not connected:
            proxy.cut()
        proxy.lose_answers = True
        calls = [failed_in_time(append(log, topic, [number])) for number in range(20)]
        calls.append(failed_in_time(log.appender.append([batch_of(topic, ["b"], 0), batch_of(topic, ["c"], 1)])))
        calls.append(failed_in_time(log.appender.append([batch_of(topic, ["d"], 0)], key_of(topic, "k", b"1"))))
        with deadline(log, DEADLINE_S):
            errors = await asyncio.gather(*calls)
        assert all(error.definite or isinstance(error, RequestTimedOut) for error in errors)
        proxy.lose_answers = False
        last = await append(log, topic, ["later"])
        values = await read_all(log, topic)
        assert (values[:2], values[last]) == (["first", "second"], "later")
        definite = {number for number, error in enumerate(errors[:20]) if error.definite}
        assert not definite.intersection(value for value in values if isinstance(value, int))
        assert max(Counter(map(str, values)).values()) == 1


async def test_appends_behind_a_silent_commit_are_answered_in_time(module_database: str) -> None:
    topic, other = new_topic(), new_topic()
    async with (
        session(module_database) as admin,
        LossyProxy(module_database).running() as proxy,
        PostgresRecordLogs(proxy.url).open(deadline_s=HANG_S) as log,
    ):
        for topic_id in (topic, other):
            await append(log, topic_id, ["first"])
            await append(log, topic_id, ["second"])
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            with deadline(log, DEADLINE_S):
                first = asyncio.create_task(failed_in_time(append(log, topic, ["third"])))
                await waiting_for_a_lock(admin, "sharequeue-gateway-append")
                proxy.lose_answers = True
                behind = asyncio.create_task(failed_in_time(append(log, other, ["third"])))
                await asyncio.gather(first, behind)
        proxy.lose_answers = False
        for topic_id in (topic, other):
            await append(log, topic_id, ["later"])
            values = await read_all(log, topic_id)
            assert values in (["first", "second", "later"], ["first", "second", "third", "later"])


async def test_an_append_that_would_be_late_is_refused_before_it_is_sent(
    module_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits of the first ones take the time of the last ones, each half of what is left of it."""
    monkeypatch.setattr(appending, "AT_ONCE", 32)
    topic = new_topic()
    async with (
        session(module_database) as admin,
        PostgresRecordLogs(module_database).open(deadline_s=HANG_S) as log,
    ):
        await append(log, topic, ["first"])
        await append(log, topic, ["second"])
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            with deadline(log, DEADLINE_S):
                errors = await asyncio.gather(*(failed_in_time(append(log, topic, [number])) for number in range(200)))
        assert "PostgreSQL did not begin with this append in time; send it again" in {error.detail for error in errors}
        await append(log, topic, ["later"])
        numbers = [value for value in await read_all(log, topic) if isinstance(value, int)]
        assert len(numbers) == len(set(numbers))
        assert not [number for number in numbers if errors[number].definite]


@pytest.mark.parametrize("keyed", [None, False, True])
async def test_a_hanging_connection_is_retried_on_another(module_database: str, keyed: bool | None) -> None:
    """`keyed`: None is a single append, which goes by the connection that all appends share."""
    topic = new_topic()
    async with (
        LossyProxy(module_database).running() as proxy,
        PostgresRecordLogs(proxy.url).open(deadline_s=HANG_S) as log,
    ):
        await append(log, topic, ["first"])
        await append(log, topic, ["second"])
        proxy.hold_requests = True
        if keyed is None:
            with deadline(log, 4 * DEADLINE_S):  # half of it is for the retry
                task = asyncio.create_task(log.appender.append([batch_of(topic, ["third"])]))
                await proxy.held.wait()
                proxy.hold_requests = False
                assert (await task).base_offsets == [2]
        else:
            key = key_of(topic, "k", b"1") if keyed else None
            task = asyncio.create_task(log.appender.append([batch_of(topic, "x", 1), batch_of(topic, ["third"])], key))
            with deadline(log, DEADLINE_S):
                await proxy.held.wait()
                error = await failed_in_time(task)
            assert error.definite, "the transaction had not begun"
            proxy.hold_requests = False
            assert list(
                (await log.appender.append([batch_of(topic, "x", 1), batch_of(topic, ["third"])], key)).base_offsets
            ) == [
                0,
                2,
            ]
        await proxy.deliver()
        assert await append(log, topic, ["fourth"]) == 3
        assert await read_all(log, topic) == ["first", "second", "third", "fourth"]


@pytest.mark.parametrize("closed", [True, False], ids=["PostgreSQL closes it", "its time is over"])
async def test_a_large_append_ends_with_its_connection_while_it_waits_for_room_in_the_socket(
    module_database: str, closed: bool
) -> None:
    """Large appends take turns: all later ones would wait behind it."""
    topic, value = new_topic(), base64.b64encode(random.Random(1).randbytes(4 << 20)).decode()
    large = [batch_of(topic, [value], partition) for partition in range(4)]
    async with (
        session(module_database) as admin,
        PostgresRecordLogs(module_database).open(deadline_s=HANG_S) as log,
        asyncio.timeout(HANG_S),
    ):
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")  # COPY does not read
            with deadline(log, HANG_S if closed else DEADLINE_S):
                first = asyncio.create_task(log.appender.append(large))
                waits = await waiting_for_a_lock(admin, "sharequeue-gateway-log")
                if closed:
                    await admin.execute("SELECT pg_terminate_backend($1)", *waits)
                    while await waiting_for_a_lock(admin, "sharequeue-gateway-log") == waits:
                        pass  # it is not tried again yet
                else:
                    assert isinstance(await failed_in_time(first), RequestTimedOut)
        result = await (first if closed else log.appender.append(large))
        assert list(result.base_offsets) == [0] * 4
        assert await read_all(log, topic, 3) == [value]


async def test_an_append_that_cannot_be_looked_up_in_time_is_unknown(module_database: str) -> None:
    topic = new_topic()
    async with (
        session(module_database) as admin,
        LossyProxy(module_database).running() as proxy,
        PostgresRecordLogs(proxy.url).open(deadline_s=HANG_S) as log,
    ):
        await append(log, topic, ["first"])
        await append(log, topic, ["second"])
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            with deadline(log, DEADLINE_S):
                several = asyncio.create_task(
                    failed_in_time(log.appender.append([batch_of(topic, "b", 1), batch_of(topic, "c", 2)]))
                )
                await waiting_for_a_lock(admin, "sharequeue-gateway-log")
                proxy.lose_answers = True
                single = asyncio.create_task(failed_in_time(append(log, topic, ["a"])))
                for task in (single, several):
                    assert isinstance(await task, RequestTimedOut)
        proxy.lose_answers = False
        await append(log, topic, ["later"])
        assert await read_all(log, topic) in (["first", "second", "later"], ["first", "second", "a", "later"])
        assert (await read_all(log, topic, 1), await read_all(log, topic, 2)) in (([], []), (["b"], ["c"]))
