"""Samples of an hour become one: what happened is added up, and what was there is that of the last."""

from sharequeue_gateway.record_log import sample_store
from sharequeue_gateway.record_log.database import LogDatabase

HOUR_MS = 3_600_000


async def test_the_samples_of_an_hour_become_one(database_url: str) -> None:
    database = await LogDatabase.open(database_url)
    try:
        query = database.query
        rows = [
            (HOUR_MS, [9] * 9),
            (HOUR_MS + 10_000, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (2 * HOUR_MS, [1, 1, 1, 1, 50, 60, 70, 80, 90]),
            (2 * HOUR_MS + 10_000, [8] * 9),
        ]
        for at_ms, counts in rows:
            await query(sample_store.write, at_ms, [("", counts), ("g/g", counts)])
        hour = [2, 3, 4, 5, 50, 60, 70, 80, 90]
        before = await query(sample_store.steps, "g/g", 0, 4, HOUR_MS)
        assert await query(sample_store.merge_hour, 2 * HOUR_MS) == 2
        for series in ("", "g/g"):
            assert await query(sample_store.steps, series, 0, 4, HOUR_MS) == before
            assert (await query(sample_store.steps, series, 1, 2, HOUR_MS))[1] == hour
        assert await query(sample_store.merge_hour, 2 * HOUR_MS) == 0, "it is one already"
        assert await query(sample_store.steps, "g/g", 0, 4, HOUR_MS) == before
        await query(sample_store.remove_before, 2 * HOUR_MS + 1)
        assert await query(sample_store.steps, "g/g", 0, 4, HOUR_MS) == {2: [8] * 9}
    finally:
        await database.close()
