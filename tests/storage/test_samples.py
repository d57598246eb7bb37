"""Samples, and the hours that they are added to: counts add up, and a level is that of the last sample."""

from sharequeue_gateway.record_log import sample_store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.removing import purging
from sharequeue_gateway.record_log.store import HOUR_MS, Connection

FIRST = 500_000
"""An hour of the year 2027: its milliseconds do not fit 32 bits."""
END_MS = (FIRST + 1) * HOUR_MS


async def test_a_sample_is_a_row_and_a_part_of_its_hour(database_url: str) -> None:
    database = await LogDatabase.open(database_url)
    try:
        rows = [
            (FIRST * HOUR_MS, [9] * 9),
            (FIRST * HOUR_MS + 10_000, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (FIRST * HOUR_MS + 20_000, [0, 0, 0, 2, 11, 12, 13, 14, 15]),
            (END_MS - 10_000, [1, 1, 1, 1, 50, 60, 70, 80, 90]),
            (END_MS + 10_000, [8] * 9),
        ]
        for at_ms, counts in rows:
            for _ in range(2):  # the answer to the first was lost
                await database.query(sample_store.write, at_ms, [("", counts), ("g/g", counts)])
        await database.query(sample_store.write, END_MS, [("", [1] * 9)])

        async def hours(series: str) -> dict[int, list[int]]:
            return await database.query(sample_store.steps, series, FIRST - 1, FIRST + 2, HOUR_MS)

        hour = [2, 3, 4, 7, 50, 60, 70, 80, 90]
        assert await hours("g/g") == {FIRST - 1: [9] * 9, FIRST: hour, FIRST + 1: [8] * 9}
        assert (await hours(""))[FIRST] == [3, 4, 5, 8, 1, 1, 1, 1, 1], "its end belongs to an hour"
        for series in ("", "g/g"):
            assert await hours(sample_store.hours_of(series)) == await hours(series)
        fine = await database.query(sample_store.steps, "g/g", 0, END_MS // 10_000, 10_000)
        first = FIRST * 360
        assert list(fine) == [first - 1, first, first + 1, END_MS // 10_000 - 2]
    finally:
        await database.close()


async def test_samples_are_kept_for_a_day_and_hours_for_a_week(database_url: str) -> None:
    database = await LogDatabase.open(database_url)
    try:
        query, now_ms = database.query, int(await database.now_ms())
        for hours in (23, 25, 50, 190, 193, 300):
            await query(sample_store.write, now_ms - hours * HOUR_MS, [("", [1] * 9)])
        assert await query(lambda c: purging.remove_expired("samples", c, 1000, 0)) == 6

        async def ages(connection: Connection, series: str) -> list[int]:
            rows = await connection.fetch("SELECT at_ms FROM log.samples WHERE series = $1 ORDER BY at_ms", series)
            return [round((now_ms - at_ms) / HOUR_MS) for (at_ms,) in rows]

        assert await query(ages, "") == [25, 23], "also the row before a span of a day"
        assert len(await query(ages, sample_store.hours_of(""))) == 4
    finally:
        await database.close()
