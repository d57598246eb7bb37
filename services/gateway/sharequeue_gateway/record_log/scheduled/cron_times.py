"""The times of a schedule: the next one, and those that are due after an outage. No IO, and no clock.

Source: cronsim, which follows Debian's cron. A schedule with a fixed minute and hour runs once in an hour that its time
zone has twice, and right after an hour that it has not. Any other schedule goes by the time that passes, so it runs in
both hours, and not in the one that there is not.
"""

from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from sharequeue_http.forms.errors import InvalidRequest

MISSED_AFTER_MS: Final = 60_000
"""A time that passed longer ago, and has no record, is missed."""
ALL_MS: Final = 7 * 86_400_000
"""`all` makes no records for missed times of longer ago."""


class CronTimes:
    """The times of a cron expression in a time zone. Raises: InvalidRequest (422): one of them is wrong."""

    def __init__(self, cron: str, time_zone: str) -> None:
        self._cron = cron
        try:
            self._zone = ZoneInfo(time_zone)
        except (KeyError, ValueError, OSError):
            raise _wrong("time_zone", "it is not the IANA name of a time zone, such as Europe/Berlin") from None
        try:
            CronSim(cron, datetime(2026, 1, 1))
        except (CronSimError, ValueError, AssertionError) as fault:
            raise _wrong("cron", f"{fault}: give five fields as in crontab, or six with the second first") from None

    def after(self, at_ms: int) -> int:
        """The first time behind another one. Raises: InvalidRequest (422): there is none for 50 years."""
        for moment in CronSim(self._cron, datetime.fromtimestamp(at_ms / 1000, self._zone)):
            found = int(moment.timestamp()) * 1000
            if found > at_ms:  # an hour that there is twice has each local time twice
                return found
        raise _wrong("cron", "it has no time in the next 50 years")

    def due(self, missed: str, next_at_ms: int, now_ms: int, most: int) -> tuple[list[int], int]:
        """The times that get a record now, at most `most` of them, and the next time behind them."""
        at_ms = next_at_ms
        if at_ms < now_ms - MISSED_AFTER_MS:
            if missed == "one":
                return [at_ms], self.after(now_ms)
            first_ms = now_ms - (ALL_MS if missed == "all" else MISSED_AFTER_MS)
            at_ms = at_ms if at_ms >= first_ms else self.after(first_ms - 1)
        times: list[int] = []
        while at_ms <= now_ms and len(times) < most:
            times.append(at_ms)
            at_ms = self.after(at_ms)
        return times, at_ms


def _wrong(field: str, detail: str) -> InvalidRequest:
    return InvalidRequest(f"/{field}: {detail}", pointers=[(f"/{field}", detail)])
