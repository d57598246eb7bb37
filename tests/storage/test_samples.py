"""Samples of an hour become one: what happened is added up, and what was there is that of the last."""

from sharequeue_gateway.record_log import sample_store
from sharequeue_gateway.record_log.database import LogDatabase

HOUR_MS = 3_600_000
FIRST = 500_000
"""An hour of the year 2027: its milliseconds do not fit 32 bits."""


async def test_the_samples_of_an_hour_become_one(database_url: str) -> None:
    database = await LogDatabase.open(database_url)
    try:
        query, end_ms = database.query, (FIRST + 1) * HOUR_MS
        rows = [
            (FIRST * HOUR_MS, [9] * 9),
            (FIRST * HOUR_MS + 10_000, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (end_ms, [1, 1, 1, 1, 50, 60, 70, 80, 90]),
            (end_ms + 10_000, [8] * 9),
        ]
        for at_ms, counts in rows:
            await query(sample_store.write, at_ms, [("", counts), ("g/g", counts)])
        hour = [2, 3, 4, 5, 50, 60, 70, 80, 90]
        before = await query(sample_store.steps, "g/g", FIRST - 1, FIRST + 3, HOUR_MS)
        assert await query(sample_store.merge_hour, end_ms) == 2
        for series in ("", "g/g"):
            assert await query(sample_store.steps, series, FIRST - 1, FIRST + 3, HOUR_MS) == before
            assert (await query(sample_store.steps, series, FIRST, FIRST + 1, HOUR_MS))[FIRST] == hour
        assert await query(sample_store.merge_hour, end_ms) == 0, "it is one already"
        assert await query(sample_store.steps, "g/g", FIRST - 1, FIRST + 3, HOUR_MS) == before
        await query(sample_store.remove_before, end_ms + 1)
        assert await query(sample_store.steps, "g/g", FIRST - 1, FIRST + 3, HOUR_MS) == {FIRST + 1: [8] * 9}
    finally:
        await database.close()
