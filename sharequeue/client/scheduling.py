"""The forms of scheduled records. No IO."""

from typing import NamedTuple


class When(NamedTuple):
    """Exactly one of the two. `deliver_at_ms`: milliseconds since the epoch. `delay_ms`: from the request on."""

    deliver_at_ms: int | None = None
    delay_ms: int | None = None


class Scheduled(NamedTuple):
    """A record that waits for its time, durably. `schedule_id`: for `cancel_scheduled`. `deliver_at_ms`: milliseconds
    since the epoch, by PostgreSQL's clock."""

    topic: str
    partition: int
    schedule_id: str
    deliver_at_ms: int


def timed(record: bytes, when: When) -> bytes:
    """A record as JSON, with its time. Raises: ValueError: not exactly one time."""
    deliver_at_ms, delay_ms = when
    if deliver_at_ms is not None and delay_ms is None:
        return b'%b,"deliver_at_ms":%d}' % (record[:-1], deliver_at_ms)
    if delay_ms is not None and deliver_at_ms is None:
        return b'%b,"delay_ms":%d}' % (record[:-1], delay_ms)
    raise ValueError("give exactly one of deliver_at_ms and delay_ms")
