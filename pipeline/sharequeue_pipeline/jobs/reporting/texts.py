"""Numbers, durations, times and foreign text as people read them."""

import unicodedata
from datetime import UTC, datetime
from typing import Final

DASH: Final = "–"
_UNITS_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_INVISIBLE: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_JOINERS: Final = "\u200c\u200d"
"""Scripts and emoji need them, and they reorder nothing."""


def number(n: int) -> str:
    return f"{n:,}"


def short(n: float) -> str:
    """A number in at most five characters and a unit: `950`, `12.3 k`, `4.57 M`."""
    for unit, size in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if n >= size * 0.9995:
            digits = 0 if n >= 99.95 * size else 1 if n >= 9.995 * size else 2
            text = f"{n / size:.{digits}f}"
            return (text.rstrip("0").rstrip(".") if "." in text else text) + unit
    return f"{n:.0f}" if n == int(n) else f"{n:.1f}"


def large(n: int) -> str:
    """A number of a headline: exact up to six digits."""
    return number(n) if n < 1_000_000 else short(n)


def share(part: int, whole: int) -> str:
    """A percentage; nothing that happened is 0 %, and nothing that lacks a part is 100 %."""
    if not whole:
        return DASH
    if part and part * 1000 < whole:
        return "< 0.1 %"
    if part < whole and part * 1000 > whole * 999:
        return "> 99.9 %"
    text = f"{100 * part / whole:.1f}"
    return f"{text.removesuffix('.0')} %"


def duration(ms: float | None) -> str:
    """A duration as text with a unit; a dash for None."""
    if ms is None:
        return DASH
    for unit, size in _UNITS_MS:
        if ms >= size:
            return f"{ms / size:.1f} {unit}"
    return f"{ms:.0f} ms"


def time_unit(ms: float) -> str:
    """A round duration as the label of an axis: `10 ms`, `1 s`, `2.8 h`."""
    return duration(ms).replace(".0 ", " ")


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def second(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def visible(text: str) -> str:
    """Foreign text whose characters are all seen: controls, and marks that reorder text,
    become escapes as `\\u202e`."""
    return "".join(
        character
        if character in _JOINERS or unicodedata.category(character) not in _INVISIBLE
        else f"\\u{ord(character):04x}"
        for character in text
    )


def text_of(data: bytes | None, cut: bool = False) -> str | None:
    """Bytes as text, or as hexadecimal digits if they are none. `cut`: the last character may be incomplete."""
    if data is None:
        return None
    for left in range(4 if cut else 1):
        try:
            return data[: len(data) - left].decode()
        except UnicodeDecodeError:
            continue
    return "0x" + data.hex()
