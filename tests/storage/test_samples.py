"""Samples of an hour become one: what happened is added up, and what was there is that of the last."""

import pytest
from sharequeue_gateway.leader.reports.sampler import Sampler
from sharequeue_gateway.record_log import sample_store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.store import Connection

HOUR_MS = 3_600_000
FIRST = 500_000
"""An hour of the year 2027: its milliseconds do not fit 32 bits."""


SERIES = ["", *(f"g/g{number}" for number in range(299))]


async def test_the_samples_of_an_hour_become_one(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_store, "MOST_CHANGED", 350)
    database = await LogDatabase.open(database_url)
    try:
        query, end_ms = database.query, (FIRST + 1) * HOUR_MS
        rows = [
            (FIRST * HOUR_MS, [9] * 9),
            (FIRST * HOUR_MS + 10_000, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (FIRST * HOUR_MS + 20_000, [0, 0, 0, 2, 11, 12, 13, 14, 15]),
            (end_ms - 10_000, [1, 1, 1, 1, 50, 60, 70, 80, 90]),
            (end_ms + 10_000, [8] * 9),
        ]
        for at_ms, counts in rows:
            await query(sample_store.write, at_ms, [(series, counts) for series in SERIES])
        await query(sample_store.write, end_ms, [("", [1] * 9)])
        seen = [sample_store.steps, "g/g7", FIRST - 1, FIRST + 3, HOUR_MS]
        before = await query(*seen)
        merged = []
        while not merged or merged[-1]:
            merged.append(await query(sample_store.merge_some, end_ms))
            assert await query(*seen) == before, "a piece changes nothing of the hour"
        assert merged == [350, 350, 200, 0], "no more in a statement"
        hours = {}
        for series in SERIES[:2]:
            hours[series] = (await query(sample_store.steps, series, FIRST, FIRST + 1, HOUR_MS))[FIRST]
        assert hours == {"": [3, 4, 5, 8, 1, 1, 1, 1, 1], "g/g0": [2, 3, 4, 7, 50, 60, 70, 80, 90]}
        fine = [sample_store.steps, "g/g7", 0, end_ms // 10_000, 10_000]
        assert list(await query(*fine)) == [FIRST * 360 - 1, end_ms // 10_000 - 1], "one row of it is left"
        await query(sample_store.remove_some, end_ms + 1)
        assert set(await query(*fine)) == {end_ms // 10_000 - 1}, "the oldest ones are removed first"
        await query(sample_store.remove_some, end_ms + 1)
        assert await query(*seen) == {FIRST + 1: [8] * 9}
    finally:
        await database.close()


async def test_a_round_makes_a_step_and_a_gateway_that_begins_finds_what_another_left(database_url: str) -> None:
    """Hours are merged once they are a day old, and removed after eight days."""
    database = await LogDatabase.open(database_url)
    try:
        query, now_ms = database.query, FIRST * HOUR_MS + 5_000
        for hours in (24, 25, 50, 190, 193, 300):
            for minute in (10, 20):
                await query(sample_store.write, now_ms - hours * HOUR_MS + minute * 60_000, [("", [1] * 9)])

        async def ages(connection: Connection) -> dict[float, int]:
            """By age in hours, the oldest first: what came in."""
            rows = await connection.fetch("SELECT at_ms, counts[1] FROM log.samples ORDER BY at_ms")
            return {round((now_ms - at_ms) / HOUR_MS, 1): count for at_ms, count in rows}

        for steps in (4, 400):
            sampler = Sampler(query, *[None] * 6)  # type: ignore[arg-type]
            for _ in range(steps):
                await sampler.tidy(now_ms)
            if steps == 4:
                begun = await query(ages)
        assert list(begun.items())[:4] == [(299.8, 1), (299.7, 1), (192.0, 2), (189.8, 1)]
        assert await query(ages) == {189.0: 2, 49.0: 2, 24.0: 2, 23.8: 1, 23.7: 1}
    finally:
        await database.close()
