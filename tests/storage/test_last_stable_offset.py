"""The last stable offset of a partition: the first offset of its oldest open transaction, from one snapshot."""

from typing import Any

from sharequeue_gateway.record_log import store

from tests.storage import transactions_by_hand as by_hand
from tests.storage.database import session
from tests.storage.record_logs import PostgresRecordLogs, new_topic


async def bounds_of(connection: Any, *places: tuple[str, int]) -> list[tuple[int, int, int]]:
    """Log start, last stable offset and log end of each place."""
    found = await store.bounds(connection, places)
    return [
        (found[place].log_start_offset, found[place].last_stable_offset, found[place].log_end_offset)
        for place in places
    ]


async def test_the_oldest_open_transaction_of_a_partition_holds_it(database_url: str) -> None:
    async with session(database_url) as connection:
        topic = new_topic()
        here, other = (topic, 0), (topic, 1)
        await by_hand.append(connection, here, "ab")
        await by_hand.append(connection, other, "ab")
        assert await bounds_of(connection, here, other) == [(0, 2, 2), (0, 2, 2)]
        first, second = await by_hand.begin(connection), await by_hand.begin(connection)
        assert await bounds_of(connection, here) == [(0, 2, 2)], "it has no batch yet"
        assert await by_hand.append(connection, here, "cd", first) == 2
        assert await by_hand.append(connection, here, "e", second) == 4
        assert await by_hand.append(connection, here, "f", first) == 5
        assert await bounds_of(connection, here, other) == [(0, 2, 6), (0, 2, 2)]
        assert await by_hand.end(connection, first, commit=True) == {here: 6}
        assert await bounds_of(connection, here) == [(0, 4, 7)]
        assert await by_hand.end(connection, second, commit=False) == {here: 7}
        assert await bounds_of(connection, here, other) == [(0, 8, 8), (0, 2, 2)]


async def test_it_is_never_below_the_log_start(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as connection, PostgresRecordLogs(database_url).open() as log:
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "abc", transaction)
        assert await log.delete_records(topic, {0: 2}) == {0: 2}
        assert await bounds_of(connection, (topic, 0)) == [(2, 2, 3)]
        assert await log.delete_records(topic, {0: -1}) == {0: 3}
        assert await bounds_of(connection, (topic, 0)) == [(3, 3, 3)]
        assert tuple((await log.offsets(topic, [0, 1]))[0]) == (3, 3, 3)


async def test_batches_say_of_which_transaction_they_are(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as connection, PostgresRecordLogs(database_url).open() as log:
        transaction = await by_hand.begin(connection)
        await by_hand.append(connection, (topic, 0), "a")
        await by_hand.append(connection, (topic, 0), "bc", transaction)
        await by_hand.end(connection, transaction, commit=True)
        await by_hand.append(connection, (topic, 0), "d")
        batches = (await log.read(topic, 0, 0, 1 << 20, 100)).batches
        assert [(batch.base_offset, batch.transaction_id, batch.control) for batch in batches] == [
            (0, None, False),
            (1, transaction, False),
            (3, transaction, True),
            (4, None, False),
        ]
        assert [batch.aborted for batch in batches] == [None] * 4
