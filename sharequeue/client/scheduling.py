"""The forms of scheduled records. No IO."""

from typing import NamedTuple


class Scheduled(NamedTuple):
    """A record that waits for its time, durably. `schedule_id`: for `cancel_scheduled`. `deliver_at_ms`: milliseconds
    since the epoch, by PostgreSQL's clock."""

    topic: str
    partition: int
    schedule_id: str
    deliver_at_ms: int


def timed(record: bytes, delay_ms: int | None, deliver_at_ms: int | None) -> bytes:
    """A record as JSON, with its time. Raises: ValueError: not exactly one time."""
    times = [(b"delay_ms", delay_ms), (b"deliver_at_ms", deliver_at_ms)]
    given = [b',"%b":%d}' % (name, time_ms) for name, time_ms in times if time_ms is not None]
    if len(given) != 1:
        raise ValueError("give exactly one of deliver_at_ms and delay_ms")
    return record[:-1] + given[0]
