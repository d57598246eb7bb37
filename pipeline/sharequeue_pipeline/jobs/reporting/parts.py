"""The small parts of a report's page: cards, names, and the counts of a chart."""

from collections.abc import Callable
from typing import Final

from sharequeue_pipeline.jobs.reporting.charts import Bar, log_bars, period
from sharequeue_pipeline.jobs.reporting.elements import Content, Element, element, joined, name_of
from sharequeue_pipeline.jobs.reporting.figures import HOUR_MS, GroupFigures, Lag, Report, Step, TopicFigures
from sharequeue_pipeline.jobs.reporting.texts import DASH, number, share

MOST_DELIVERIES: Final = 12
CAUSES: Final = {"rejected": "rejected by a worker", "delivery_limit": "delivered too often"}


def card(title: str, about: str | None, *content: Content) -> Element:
    return element("section", element("h2", title), element("p", about or "", class_="about"), content, class_="card")


def pair_name(topic: TopicFigures, group: GroupFigures) -> Element:
    return joined([name_of(group.group), element("span", " in ", class_="of"), topic_name(topic)])


def topic_name(topic: TopicFigures) -> Element:
    name = name_of(topic.topic) if topic.topic else element("span", "a deleted topic", class_="of")
    return joined([name, element("span", f" (id {topic.topic_id[:8]}…)", class_="of") if topic.again else None])


def named(n: int, what: str) -> str:
    return f"{number(n)} {what}{'s' if n != 1 else ''}"


def lag_text(lag: Lag | None) -> str:
    if lag is None:
        return DASH
    return f"≥ {number(lag.records)}" if lag.unknown_partitions else number(lag.records)


def step_name(report: Report) -> str:
    hours = report.step_ms // HOUR_MS
    return {1: "hour", 24: "day", 168: "week"}.get(hours, f"{hours} hours" if hours < 168 else f"{hours // 168} weeks")


def unit(report: Report, what: str) -> Content:
    return element(
        "p",
        f"↑ {what} per {step_name(report)} · → time (UTC)" if "log" not in what else f"↑ {what} · → time (UTC)",
        class_="unit",
    )


def values_of(report: Report, at: dict[int, Step], of: Callable[[Step], int]) -> list[float | None]:
    return [None if (step := at.get(ms)) is None else of(step) for ms in report.moments]


def texts_of(report: Report, at: dict[int, Step], text: Callable[[Step], str]) -> list[str | None]:
    return [
        None if (step := at.get(ms)) is None else f"{period(ms, report.step_ms)}: {text(step)}" for ms in report.moments
    ]


def delivery_bars(group: GroupFigures) -> Element:
    counts = sorted(group.deliveries.items())
    rows = [
        Bar(_ordinal(count), records, "accepted" if count == 1 else "released", share(records, group.delivered))
        for count, records in counts[:MOST_DELIVERIES]
    ]
    rest = sum(records for _, records in counts[MOST_DELIVERIES:])
    if rest:
        rows.append(Bar("later", rest, "released", share(rest, group.delivered)))
    return log_bars(rows, "→ deliveries", "bars brief")


def _ordinal(count: int) -> str:
    ending = "th" if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"
