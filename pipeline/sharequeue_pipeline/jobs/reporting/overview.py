"""The first half of a report's page: the whole of the period, over time, and what waits now."""

from operator import attrgetter
from typing import Final

from sharequeue_pipeline.jobs.reporting.charts import Bar, Series, bars, columns, legend, lines, period
from sharequeue_pipeline.jobs.reporting.elements import Content, element, name_of
from sharequeue_pipeline.jobs.reporting.figures import HOUR_MS, GroupFigures, Report, Step, TopicFigures
from sharequeue_pipeline.jobs.reporting.findings import MOST, Finding, findings
from sharequeue_pipeline.jobs.reporting.parts import (
    card,
    delivery_bars,
    named,
    pair_name,
    step_name,
    texts_of,
    unit,
    values_of,
)
from sharequeue_pipeline.jobs.reporting.texts import DASH, duration, large, moment, number, share

MOST_LAGS: Final = 8
QUANTILES: Final = (("p50", "half of the records"), ("p90", "90 %"), ("p99", "99 %"))


def tiles(report: Report) -> Content:
    total = report.total
    times, lag, dead = total.time_to_accept, total.lag, total.dead
    again = total.delivered - total.deliveries.get(1, 0)
    waiting = lag.records if lag is not None else 0
    opened = lag.open_dead_letters if lag is not None else 0
    hours = (report.to_ms - report.from_ms) / HOUR_MS
    tiles = [
        _tile(
            "Produced", large(report.produced), f"{number(round(report.produced / hours))} records an hour, on average"
        ),
        _tile("Accepted", large(total.accepted), f"{share(total.accepted, total.delivered)} of the deliveries"),
        _tile(
            "Half accepted within",
            duration(times.p50_ms if times else None),
            f"99 % within {duration(times.p99_ms)}" if times else "nothing was accepted",
        ),
        _tile(
            "Waiting now", large(waiting) if lag is not None else DASH, f"lag of {named(report.group_count, 'group')}"
        ),
        _tile("Delivered again", large(again), f"{share(again, total.delivered)} of the deliveries"),
        _tile("Dead letters", large(dead), f"{number(opened)} open now" if lag is not None else "", bad=dead > 0),
    ]
    return element("dl", tiles, class_="tiles")


def _tile(name: str, figure: str, beside: str, *, bad: bool = False) -> Content:
    return element(
        "div",
        element("dt", name),
        element("dd", figure, class_="figure"),
        element("dd", beside, class_="beside"),
        class_="tile bad" if bad else "tile",
    )


def attention(report: Report) -> Content:
    found = findings(report)
    if not found:
        return element(
            "p", element("span", "✓", aria_hidden="true"), "Nothing needs attention: no dead letters, and no group falls behind.",
            class_="state good",
        )  # fmt: skip
    more = len(found) - MOST
    return card(
        "Needs attention",
        None,
        element("ul", map(_finding, found[:MOST]), class_="found"),
        element("p", f"and {number(more)} more of the same kinds, in the table below", class_="unit")
        if more > 0
        else None,
    )


def _finding(entry: Finding) -> Content:
    text = element(
        "span", name_of(entry.group), element("span", " in ", class_="of"), name_of(entry.topic), " ", entry.text
    )
    mark = {"bad": "Act", "warn": "Watch"}[entry.weight]
    return element("li", element("span", mark, class_=f"mark {entry.weight}"), text)


def throughput(report: Report) -> Content:
    at = {step.at_ms: step for step in report.steps}
    series = [
        Series("produced", "produced", values_of(report, at, lambda step: step.produced)),
        Series("accepted, by all groups together", "accepted", values_of(report, at, lambda step: step.accepted)),
    ]
    told = texts_of(report, at, lambda step: f"produced {number(step.produced)}, accepted {number(step.accepted)}")
    return card(
        "Throughput",
        f"Records per {step_name(report)}. A record counts once when it is produced, and once for each group that accepts it.",
        legend(series),
        columns(report.moments, report.step_ms, series, told),
        unit(report, "records"),
    )


def time_to_settle(report: Report) -> Content:
    at = {step.at_ms: step for step in report.steps}

    def of(name: str) -> list[float | None]:
        found = (at.get(ms) for ms in report.moments)
        return [getattr(s.time_to_accept, f"{name}_ms") if s is not None and s.time_to_accept else None for s in found]

    series = [Series(f"{name}: {meaning}", name, of(name)) for name, meaning in QUANTILES]
    told = [
        None
        if value is None
        else f"{period(ms, report.step_ms)}: " + ", ".join(f"{s.tone} {duration(s.values[index])}" for s in series)
        for index, (ms, value) in enumerate(zip(report.moments, series[0].values, strict=True))
    ]
    return card(
        "Time to settle",
        "From a record's timestamp to its acceptance.",
        legend(series),
        lines(report.moments, report.step_ms, series, told),
        unit(report, "time, logarithmic"),
    )


def failures(report: Report) -> Content:
    at = {step.at_ms: step for step in report.steps}
    names = (("released", "released"), ("expired", "lock ended"), ("rejected", "rejected"))
    series = [Series(shown, name, values_of(report, at, attrgetter(name))) for name, shown in names]

    def text(step: Step) -> str:
        return ", ".join(f"{shown} {number(getattr(step, name))}" for name, shown in names)

    return card(
        "Deliveries that failed",
        "A released record, and one whose lock ended, comes again. A rejected one becomes a dead letter.",
        legend(series),
        columns(report.moments, report.step_ms, series, texts_of(report, at, text), stacked=True),
        unit(report, "deliveries"),
    )


def lag_now(report: Report) -> Content:
    known = [(topic, group, group.lag) for topic, group in report.pairs if group.lag is not None]
    largest = sorted((entry for entry in known if entry[2].records), key=lambda entry: -entry[2].records)
    if largest:
        rows = [
            Bar(pair_name(topic, group), lag.records, "produced", _trend(topic, group))
            for topic, group, lag in largest[:MOST_LAGS]
        ]
        shown: Content = bars(rows, "→ records that the group has not finished, now")
    else:
        shown = element("p", "No group has unfinished records.", class_="state good")
    rest = len(largest) - MOST_LAGS
    unknown = sum(lag.unknown_partitions for _, _, lag in known)
    more = [
        element("p", text, class_="unit")
        for text in (
            f"{number(rest)} more groups with a lag are in the table below." if rest > 0 else "",
            f"The lag of {named(unknown, 'partition')} is unknown: no gateway has loaded them yet." if unknown else "",
        )
        if text
    ]
    return card(
        "Lag",
        f"Records that wait for a group or are held by its workers, at {moment(report.made_ms)} UTC.",
        shown,
        more,
    )


def _trend(topic: TopicFigures, group: GroupFigures) -> str:
    change = topic.produced - group.finished
    if not topic.produced and not group.finished:
        return "unchanged"
    return f"{'+' if change > 0 else '−' if change < 0 else '±'}{number(abs(change))} in this period"


def deliveries_by_count(report: Report) -> Content:
    if not report.total.deliveries:
        return card("Deliveries by count", None, element("p", "Nothing was delivered.", class_="about"))
    return card(
        "Deliveries by count",
        "How many records were delivered for the first time, the second time, and so on.",
        delivery_bars(report.total),
    )
