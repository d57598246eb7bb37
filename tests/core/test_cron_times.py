"""The times of schedules: hours that a time zone has twice or not at all, and times that an outage has taken."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from sharequeue_gateway.record_log.scheduled.cron_times import CronTimes

from sharequeue_http.forms.errors import InvalidRequest

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE_MS, DAY_MS = 60_000, 86_400_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def local(cron: str, begin: str, count: int) -> list[str]:
    """Some times in Berlin with their distance to UTC, from `begin` on."""
    times, at_ms, found = CronTimes(cron, "Europe/Berlin"), ms(begin), []
    for _ in range(count):
        at_ms = times.after(at_ms)
        found.append(datetime.fromtimestamp(at_ms / 1000, BERLIN).strftime("%dT%H:%M%z"))
    return found


@pytest.mark.parametrize(
    ("cron", "begin", "expected"),
    [
        ("30 2 * * *", "2026-03-28T00:00+01:00", ["28T02:30+0100", "29T03:00+0200", "30T02:30+0200"]),
        ("0,30 2 * * *", "2026-03-29T00:00+01:00", ["29T03:00+0200", "30T02:00+0200"]),
        ("*/30 * * * *", "2026-03-29T01:00+01:00", ["29T01:30+0100", "29T03:00+0200", "29T03:30+0200"]),
        ("30 2 * * *", "2026-10-24T12:00+02:00", ["25T02:30+0200", "26T02:30+0100"]),
        ("45 2 * * *", "2026-10-25T02:30+01:00", ["26T02:45+0100"]),
        ("*/30 * * * *", "2026-10-25T02:00+02:00", ["25T02:30+0200", "25T02:00+0100", "25T02:30+0100"]),
    ],
)
def test_an_hour_that_is_missing_or_doubled(cron: str, begin: str, expected: list[str]) -> None:
    assert local(cron, begin, len(expected)) == expected


@pytest.mark.parametrize(
    ("missed", "late_ms", "times", "following"),
    [
        ("one", MINUTE_MS, [0, 1], 2),
        ("none", MINUTE_MS, [0, 1], 2),
        ("one", 10 * MINUTE_MS, [0], 11),
        ("none", 10 * MINUTE_MS, [9, 10], 11),
        ("all", 10 * MINUTE_MS, [*range(11)], 11),
        ("all", 8 * DAY_MS, [*range(1440, 1460)], 1460),
    ],
)
def test_missed_times(missed: str, late_ms: int, times: list[int], following: int) -> None:
    """Times are counted in minutes from the first missed one. A call makes at most 20 records."""
    first_ms = ms("2026-01-01T00:00+00:00")
    found, next_ms = CronTimes("* * * * *", "UTC").due(missed, first_ms, first_ms + late_ms, 20)
    assert ([(at - first_ms) // MINUTE_MS for at in found], (next_ms - first_ms) // MINUTE_MS) == (times, following)


@pytest.mark.parametrize(
    ("cron", "zone", "field"),
    [
        ("* * * *", "UTC", "/cron"),
        ("61 * * * *", "UTC", "/cron"),
        ("0 0 30 2 *", "UTC", "/cron"),
        ("*/0 * * * *", "UTC", "/cron"),
        ("* * * * *", "Europe", "/time_zone"),
        ("* * * * *", "Mars/Base", "/time_zone"),
        ("* * * * *", "../../etc/passwd", "/time_zone"),
    ],
)
def test_what_is_no_time_is_refused(cron: str, zone: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        CronTimes(cron, zone)
    assert [pointer for pointer, _ in refused.value.pointers] == [field]
