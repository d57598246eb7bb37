"""The charts of a report, as SVG inside HTML, readable without a script.

The SVG has the marks alone and is stretched to the width that there is; its strokes keep their width. All text is HTML
beside or over it, so it has the size of text on a phone too. Heights and places are percentages.
"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sharequeue_pipeline.jobs.reporting.elements import Content, Element, element
from sharequeue_pipeline.jobs.reporting.texts import moment, number, short, time_unit

WIDTH: Final = 1000
HEIGHT: Final = 100
DAY_MS: Final = 86_400_000
MOST_LABELS: Final = 7
EVERY: Final = (1, 2, 3, 4, 6, 8, 12, 24)
"""A label stands at each first, second, third … column."""
ROUND_MS: Final = (
    *(1, 3, 10, 30, 100, 300),
    *(1_000, 3_000, 10_000, 30_000, 60_000, 300_000, 900_000),
    *(3_600_000, 10_800_000, 43_200_000, 86_400_000, 604_800_000, 2_592_000_000, 31_536_000_000, 315_360_000_000),
)
"""Where an axis of durations may have its lines."""


class Series(NamedTuple):
    """`tone`: the name of its colour. `values`: one for each moment; None is a gap."""

    name: str
    tone: str
    values: Sequence[float | None]


class Axis(NamedTuple):
    """A vertical axis. `ticks`: (value, label), the lowest first. `at`: the height of a value, from 0 to 1."""

    ticks: Sequence[tuple[float, str]]
    at: Callable[[float], float]


def counts_axis(most: float) -> Axis:
    """From 0 to a round number, with lines at round numbers."""
    raw = max(most, 1) / 4
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    step = max(1.0, math.ceil(step) if step < 10 else step)
    top = step * math.ceil(max(most, 1) / step)
    ticks = [(step * n, short(step * n)) for n in range(round(top / step) + 1)]
    return Axis(ticks, lambda value: value / top)


def times_axis(least: float, most: float) -> Axis:
    """A logarithmic axis of durations in ms, with lines at round durations."""
    bottom = max((tick for tick in ROUND_MS if tick <= least), default=1)
    top = next((tick for tick in ROUND_MS if tick >= most and tick > bottom), max(most, bottom * 10))
    ticks = [tick for tick in ROUND_MS if bottom <= tick <= top]
    while len(ticks) > MOST_LABELS:
        ticks = ticks[::2]
    span = math.log(top / bottom)
    return Axis(
        [(tick, time_unit(tick)) for tick in ticks],
        lambda value: math.log(max(value, bottom) / bottom) / span,
    )


def columns(
    moments: Sequence[int], step_ms: int, series: Sequence[Series], told: Sequence[str | None], *, stacked: bool = False
) -> Element:
    """Counts over time as columns, side by side or stacked. `told`: the text of each moment;
    None: there are no data."""
    shown = [[value or 0 for value in entry.values] for entry in series]
    tops = [sum(at) if stacked else max(at) for at in zip(*shown, strict=True)]
    axis = counts_axis(max(tops, default=0))
    wide = WIDTH / max(1, len(moments))
    room = wide * 0.72
    marks = []
    beneath = [0.0] * len(moments)
    for place, entry in enumerate(series):
        path = []
        for index, value in enumerate(shown[place]):
            if not value:
                continue
            width = room if stacked else room / len(series)
            left = index * wide + (wide - room) / 2 + (0 if stacked else place * width)
            low, high = (axis.at(beneath[index]), axis.at(beneath[index] + value)) if stacked else (0, axis.at(value))
            high = max(high, low + 0.008)
            path.append(f"M{left:.1f} {_down(low)}V{_down(high)}h{width:.1f}V{_down(low)}z")
            beneath[index] += value if stacked else 0
        if path:
            marks.append(element("path", class_=f"fill {entry.tone}", d="".join(path)))
    return _over_time(moments, step_ms, axis, marks, told)


def lines(moments: Sequence[int], step_ms: int, series: Sequence[Series], told: Sequence[str | None]) -> Element:
    """Durations over time as lines on a logarithmic axis. A line ends where there are no data."""
    values = [value for entry in series for value in entry.values if value is not None]
    axis = times_axis(min(values, default=1), max(values, default=1000))
    wide = WIDTH / max(1, len(moments))
    marks = []
    for entry in series:
        path, dots, before = [], [], False
        for index, value in enumerate(entry.values):
            if value is not None:
                place = f"{(index + 0.5) * wide:.1f} {_down(axis.at(value))}"
                path.append(f"{'L' if before else 'M'}{place}")
                dots.append(f"M{place}h0")
            before = value is not None
        if path:
            marks.append(element("path", class_=f"stroke {entry.tone}", d="".join(path)))
            marks.append(element("path", class_=f"dots {entry.tone}", d="".join(dots)))
    return _over_time(moments, step_ms, axis, marks, told)


def spark(values: Sequence[float | None]) -> Element:
    """Counts over time, as small as a word. A gap has no mark, and a zero has a line."""
    top = max((value for value in values if value is not None), default=0) or 1
    wide = WIDTH / max(1, len(values))
    path = "".join(
        f"M{index * wide:.1f} {HEIGHT}V{_down(max(0.04, value / top * 0.98))}h{wide * 0.8:.1f}V{HEIGHT}z"
        for index, value in enumerate(values)
        if value is not None
    )
    return _svg([element("path", class_="fill", d=path)] if path else [], "spark")


def legend(series: Sequence[Series]) -> Element:
    return element(
        "ul", (element("li", element("i", class_=f"key {entry.tone}"), entry.name) for entry in series), class_="legend"
    )


class Bar(NamedTuple):
    """`name`: foreign text. `beside`: further text behind the value."""

    name: Content
    value: int
    tone: str
    beside: Content = None


def log_bars(bars: Sequence[Bar], unit: str, class_: str = "bars") -> Element:
    """Counts as bars on a logarithmic axis from below 1, with lines at powers of ten."""
    decades = max(1, math.ceil(math.log10(max((bar.value for bar in bars), default=1) or 1)))
    first = 0.3  # the room of a bar of 1, in decades

    def at(value: float) -> float:
        return (math.log10(value) + first) / (decades + first) if value else 0.0

    every = 1 if decades <= 5 else 2
    ticks = [(at(10**power), short(10**power)) for power in range(0, decades + 1, every)]
    scale = f"{unit}, logarithmic: each line is {10**every:,} times the one before"
    return _bars(bars, [at(bar.value) for bar in bars], ticks, scale, class_)


def bars(entries: Sequence[Bar], unit: str) -> Element:
    """Counts as bars from 0, below long names."""
    axis = counts_axis(max((entry.value for entry in entries), default=0))
    ticks = [(axis.at(value), label) for value, label in axis.ticks]
    return _bars(entries, [axis.at(entry.value) for entry in entries], ticks, unit, "bars names")


def _bars(
    entries: Sequence[Bar], widths: Sequence[float], ticks: Sequence[tuple[float, str]], unit: str, class_: str = "bars"
) -> Element:
    rows = [
        element(
            "li",
            element("span", entry.name, class_="name"),
            element(
                "span",
                [element("i", class_="rule", style=f"left:{_percent(place)}") for place, _ in ticks],
                element("i", class_=f"bar {entry.tone}", style=f"width:{_percent(width)}"),
                class_="track",
            ),
            element("span", element("b", number(entry.value)), " ", element("span", entry.beside), class_="value"),
        )
        for entry, width in zip(entries, widths, strict=True)
    ]
    scale = element(
        "li",
        element("span", class_="name"),
        element(
            "span",
            [element("span", label, class_="tick", style=f"left:{_percent(place)}") for place, label in ticks],
            class_="track",
        ),
        element("span", class_="value"),
        class_="scale",
        aria_hidden="true",
    )
    return element("div", element("ul", rows, scale, class_=class_), element("p", unit, class_="unit"))


def _over_time(
    moments: Sequence[int], step_ms: int, axis: Axis, marks: Sequence[Element], told: Sequence[str | None]
) -> Element:
    wide = 100 / max(1, len(moments))
    rules = [
        element("line", class_="grid", x1=0, x2=WIDTH, y1=_down(axis.at(value)), y2=_down(axis.at(value)))
        for value, _ in axis.ticks
    ]
    hover = [
        element(
            "rect",
            element("title", text),
            class_="hover",
            x=f"{index * WIDTH / len(moments):.1f}",
            y=0,
            width=f"{WIDTH / len(moments):.1f}",
            height=HEIGHT,
        )
        for index, text in enumerate(told)
        if text is not None
    ]
    gaps = [
        element(
            "span",
            element("span", "no data") if length * wide > 14 else None,
            class_="gap",
            style=f"left:{_percent(first * wide / 100)};width:{_percent(length * wide / 100)}",
            title="nothing was counted",
        )
        for first, length in runs_of_none(told)
    ]
    heights = [element("span", label, style=f"bottom:{_percent(axis.at(value))}") for value, label in axis.ticks]
    times = [
        element("span", label, element("i", day), class_="less" if less else None, style=f"left:{_percent(place)}")
        for place, label, day, less in time_labels(moments, step_ms)
    ]
    return element(
        "div",
        element("div", heights, class_="y", aria_hidden="true"),
        element("div", _svg([*rules, *marks, *hover]), gaps, class_="area"),
        element("div", times, class_="x", aria_hidden="true"),
        class_="plot",
    )


def _svg(marks: Sequence[Element], class_: str = "marks") -> Element:
    return element(
        "svg", marks, class_=class_, viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", aria_hidden="true"
    )


def runs_of_none(values: Sequence[object | None]) -> list[tuple[int, int]]:
    """Where values are missing: (first index, how many), ascending."""
    found: list[tuple[int, int]] = []
    for index, value in enumerate(values):
        if value is None:
            if found and sum(found[-1]) == index:
                found[-1] = (found[-1][0], found[-1][1] + 1)
            else:
                found.append((index, 1))
    return found


class TimeLabel(NamedTuple):
    """`place`: from 0 to 1. `day`: below the time, where a day begins. `less`: a narrow screen leaves it out."""

    place: float
    text: str
    day: str | None
    less: bool


def time_labels(moments: Sequence[int], step_ms: int) -> list[TimeLabel]:
    """The labels below an axis of time, at most `MOST_LABELS`."""
    every = next((each for each in EVERY if len(moments) <= each * MOST_LABELS), -(-len(moments) // MOST_LABELS))
    found: list[TimeLabel] = []
    for index in range(0, len(moments), every):
        at = datetime.fromtimestamp(moments[index] / 1000, UTC)
        begins = index == 0 or moments[index] // DAY_MS != moments[index - every] // DAY_MS
        day = f"{at.day} {at.strftime('%b')}"
        less = len(found) % 2 == 1 and len(moments) > every * 4
        if step_ms >= DAY_MS:
            found.append(TimeLabel(index / len(moments), day, None, less))
        else:
            found.append(TimeLabel(index / len(moments), at.strftime("%H:%M"), day if begins else None, less))
    return found


def period(at_ms: int, step_ms: int) -> str:
    """The time that a column stands for."""
    end = at_ms + step_ms
    return f"{moment(at_ms)} to {moment(end)[11:] if end // DAY_MS == at_ms // DAY_MS else moment(end)} UTC"


def _down(height: float) -> str:
    """From a height of 0 to 1 to the place in the drawing, which is counted from above."""
    return f"{HEIGHT * (1 - height):.2f}".rstrip("0").rstrip(".")


def _percent(part: float) -> str:
    return f"{100 * part:.2f}%"
