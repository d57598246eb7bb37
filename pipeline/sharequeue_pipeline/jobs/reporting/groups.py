"""The second half of a report's page: each topic and group, in a table and one by one."""

from collections.abc import Sequence

from sharequeue_pipeline.jobs.reporting.charts import Series, columns, legend, period, spark
from sharequeue_pipeline.jobs.reporting.elements import Content, Element, element, name_of
from sharequeue_pipeline.jobs.reporting.figures import GroupFigures, Report, TopicFigures
from sharequeue_pipeline.jobs.reporting.parts import (
    CAUSES,
    card,
    delivery_bars,
    lag_text,
    named,
    pair_name,
    step_name,
    topic_name,
    values_of,
)
from sharequeue_pipeline.jobs.reporting.texts import DASH, duration, number


def by_topic_and_group(report: Report) -> Content:
    columns_ = (
        "Topic and group",
        f"Per {step_name(report)}",
        "Produced",
        "Accepted",
        "Failed",
        "Lag",
        "p50",
        "p99",
        "Dead letters",
    )
    kinds = ("name", None, *["n"] * 7)
    head = element("tr", (element("th", name, class_=kind) for name, kind in zip(columns_, kinds, strict=True)))
    rows: list[Content] = []
    for topic in report.topics:
        rows.append(_topic_row(report, topic))
        rows += [_group_row(report, topic, group) for group in topic.groups]
    rows += _others_rows(report)
    return card(
        "By topic and group",
        "Failed deliveries were released, rejected, or their lock ended. p50 and p99: half of the records, and 99 % of "
        "them, were accepted within that time.",
        element("table", element("thead", head), element("tbody", rows), class_="cards"),
    )


def _topic_row(report: Report, topic: TopicFigures) -> Content:
    at = {step.at_ms: step for step in topic.steps}
    chart = spark(values_of(report, at, lambda step: step.produced)) if topic.produced else None
    return element(
        "tr",
        element("td", topic_name(topic), class_="name"),
        _cell("", element("span", chart, class_="produced") if chart else None, wide=True),
        _cell("Produced", number(topic.produced)),
        *(_cell("", None) for _ in range(6)),
        class_="topic",
    )


def _group_row(report: Report, topic: TopicFigures, group: GroupFigures) -> Content:
    at = {step.at_ms: step for step in group.steps}
    chart = spark(values_of(report, at, lambda step: step.accepted)) if group.accepted else None
    times = group.time_to_accept
    failed = group.released + group.rejected + group.expired
    return element(
        "tr",
        element("td", name_of(group.group), class_="name"),
        _cell("", element("span", chart, class_="accepted") if chart else None, wide=True),
        _cell("", None),
        _cell("Accepted", number(group.accepted)),
        _cell("Failed", number(failed), "warn" if failed * 10 > group.delivered else None),
        _cell("Lag", lag_text(group.lag)),
        _cell("p50", duration(times.p50_ms) if times else DASH),
        _cell("p99", duration(times.p99_ms) if times else DASH),
        _cell("Dead letters", number(group.dead), "bad" if group.dead else None),
        class_="group",
    )


def _others_rows(report: Report) -> list[Content]:
    others = report.others
    if others is None:
        return []
    failed = others.released + others.rejected + others.expired
    names = " and ".join(named(n, what) for n, what in ((others.topics, "topic"), (others.groups, "group")) if n)
    return [
        element(
            "tr",
            element("td", element("span", f"others: {names}", class_="of"), class_="name"),
            _cell("", None, wide=True),
            _cell("Produced", number(others.produced)),
            _cell("Accepted", number(others.accepted)),
            _cell("Failed", number(failed)),
            _cell("Lag", number(others.lag)),
            *(_cell("", None) for _ in range(2)),
            _cell("Dead letters", number(others.dead_letters), "bad" if others.dead_letters else None),
            class_="topic",
        )
    ]


def _cell(name: str, content: Content, tone: str | None = None, *, wide: bool = False) -> Element:
    kinds = ["wide" if wide else "n", *([tone] if tone else []), *([] if content else ["empty"])]
    return element("td", content, class_=" ".join(kinds), data_name=name or None)


def each_group(report: Report) -> Content:
    pairs = [(topic, group) for topic, group in report.pairs if group.delivered]
    if not pairs:
        return None
    return card(
        "Group by group",
        None,
        (
            element("details", element("summary", *_group_head(topic, group)), _group_inside(report, topic, group))
            for topic, group in pairs
        ),
    )


def _group_head(topic: TopicFigures, group: GroupFigures) -> Sequence[Content]:
    return element("span", pair_name(topic, group), class_="name"), element(
        "span", f"{number(group.delivered)} deliveries", class_="count"
    )


def _group_inside(report: Report, topic: TopicFigures, group: GroupFigures) -> Content:
    times = group.time_to_accept
    facts: list[tuple[str, Content]] = [
        (name, number(getattr(group, name))) for name in ("delivered", "accepted", "released", "rejected")
    ]
    facts.append(("lock ended", number(group.expired)))
    facts.append(("lag now", lag_text(group.lag)))
    if times is not None:
        facts += [(name, duration(getattr(times, f"{name}_ms"))) for name in ("p50", "p90", "p99")]
        facts.append(("p99.9", duration(times.p999_ms)))
    facts += [
        (f"dead letters, {CAUSES.get(cause, cause)}", number(n)) for cause, n in sorted(group.dead_letters.items())
    ]
    at, made = {step.at_ms: step for step in group.steps}, {step.at_ms: step.produced for step in topic.steps}
    series = [
        Series("produced to the topic", "produced", [made.get(ms) for ms in report.moments]),
        Series("accepted", "accepted", values_of(report, at, lambda step: step.accepted)),
    ]
    told = [
        f"{period(ms, report.step_ms)}: produced {number(made.get(ms, 0))}, accepted {number(at[ms].accepted if ms in at else 0)}"
        if ms in at or ms in made
        else None
        for ms in report.moments
    ]
    return element(
        "div",
        element(
            "dl", (element("div", element("dt", name), element("dd", value)) for name, value in facts), class_="facts"
        ),
        element("h3", f"Records per {step_name(report)}"),
        legend(series),
        columns(report.moments, report.step_ms, series, told),
        element("h3", "Deliveries by count"),
        delivery_bars(group),
        class_="inside small",
    )
