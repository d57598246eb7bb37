"""The forms of scheduled records. No IO."""

from typing import NamedTuple

from sharequeue.protocol.types import MAX_INT64, MAX_SCHEDULE_MS


class When(NamedTuple):
    """Exactly one of the two. `deliver_at_ms`: milliseconds since the epoch. `delay_ms`: from the request on."""

    deliver_at_ms: int | None = None
    delay_ms: int | None = None


class Scheduled(NamedTuple):
    """A record that waits for its time, durably. `schedule_id`: for `cancel_scheduled`. `deliver_at_ms`: milliseconds
    since the epoch, by PostgreSQL's clock. `duplicate`: with `unique`, an earlier record has the key. Its time is not
    told, and it has a `schedule_id` only if it was scheduled: 0 and "" are in their place."""

    topic: str
    partition: int
    schedule_id: str
    deliver_at_ms: int
    duplicate: bool = False


def timed(record: bytes, when: When) -> bytes:
    """A record as JSON, with its time. Raises: ValueError: not exactly one time, or none that the service takes."""
    given = [(name, value) for name, value in when._asdict().items() if value is not None]
    if len(given) != 1:
        raise ValueError("give exactly one of deliver_at_ms and delay_ms")
    ((name, value),) = given
    most = MAX_SCHEDULE_MS if name == "delay_ms" else MAX_INT64
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} must be a whole number from 0 to {most}, not {value!r}")
    return b'%b,"%b":%d}' % (record[:-1], name.encode(), value)
