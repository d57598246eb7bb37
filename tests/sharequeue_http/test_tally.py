"""Events in crowds: the first has its line at once, the next ones are counted."""

import json
import logging
import time
from typing import Any

import pytest

from sharequeue_http.log import JsonFormatter, Tally
from tests.shell.turned_loop import TurnedLoop, run

log = logging.getLogger(__name__)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [dict(record.fields) for record in caplog.records]  # type: ignore[attr-defined]


def test_the_time_of_a_line_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectors read a time without an offset as UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    record = logging.makeLogRecord({"msg": "listening", "created": 1_000_000_000.25, "msecs": 250.0})
    line = json.loads(JsonFormatter().format(record))
    monkeypatch.undo()
    time.tzset()
    assert line["time"] == "2001-09-09T01:46:40.250Z"


def test_the_first_event_is_written_at_once_and_a_crowd_once_more(caplog: pytest.LogCaptureFixture) -> None:
    async def work(loop: TurnedLoop) -> None:
        tally = Tally(log, logging.WARNING, "dead letters written", seconds=60)
        tally.note("g1", 2, group_id="g1")
        assert lines(caplog) == [{"count": 2, "group_id": "g1"}]
        for _ in range(1000):
            tally.note("g1", 5, group_id="g1")
        await loop.turn(59)
        assert len(lines(caplog)) == 1
        await loop.turn(1)
        assert lines(caplog)[1:] == [{"count": 5000, "group_id": "g1", "seconds": 60}]

    run(work)


def test_a_kind_that_paused_is_written_at_once_again(caplog: pytest.LogCaptureFixture) -> None:
    async def work(loop: TurnedLoop) -> None:
        tally = Tally(log, logging.WARNING, "locks ended", seconds=60)
        tally.note("g1")
        await loop.turn(60)
        tally.note("g1")
        assert lines(caplog) == [{"count": 1}, {"count": 1}]

    run(work)


def test_kinds_beyond_the_bound_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    async def work(loop: TurnedLoop) -> None:
        tally = Tally(log, logging.WARNING, "locks ended", seconds=60, most=2)
        for kind in ("a", "b", "c", "d", "e"):
            tally.note(kind, group_id=kind)
        assert lines(caplog) == [{"count": 1, "group_id": "a"}, {"count": 1, "group_id": "b"}, {"count": 1}]

    run(work)
