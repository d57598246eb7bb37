"""Spans of time as programs write them: seconds, or texts such as "90s", "5m", "1.5h". No IO."""

import math
import re
from datetime import datetime, timedelta
from typing import Final

Span = float | str | timedelta
"""Seconds, a text, or a timedelta."""

_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(span: Span) -> float:
    """Seconds of a span. Raises: ValueError: it is none, or not finite, or below 0."""
    if isinstance(span, timedelta):
        return seconds(span.total_seconds())
    if isinstance(span, str):
        found = _TEXT.fullmatch(span.strip())
        if found is None:
            raise ValueError(f"{span!r} is no span of time: write 90, '90s', '5m', '2h' or '1d'")
        return float(found[1]) * _SECONDS[found[2]]
    if isinstance(span, bool) or not (span >= 0 and math.isfinite(span)):
        raise ValueError(f"{span!r} is no span of time: it must be a number of seconds, at least 0")
    return float(span)


def milliseconds(span: Span) -> int:
    """Milliseconds of a span. Raises: ValueError: as `seconds`."""
    return round(seconds(span) * 1000)


def when(delay: Span | None, at: datetime | None) -> dict[str, int]:
    """Return the time of a record that is sent later, as Producer takes it.

    Raises: ValueError: there are two, or `at` has no time zone, or as `seconds`.
    """
    if at is None:
        return {} if delay is None else {"delay_ms": milliseconds(delay)}
    if delay is not None:
        raise ValueError("give delay or at, and not both")
    if at.tzinfo is None:
        raise ValueError(f"{at} has no time zone: write datetime(…, tzinfo=ZoneInfo('Europe/Berlin'))")
    return {"deliver_at_ms": round(at.timestamp() * 1000)}
