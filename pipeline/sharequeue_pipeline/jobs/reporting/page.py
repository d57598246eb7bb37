"""A report as one HTML file that needs no script, no network and no other file.

The page forbids scripts and everything from elsewhere by its own policy, beside the escaping of `elements`.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final

from sharequeue_pipeline.jobs.reporting.charts import Bar, Series, bars, columns, legend, lines, log_bars, period, spark
from sharequeue_pipeline.jobs.reporting.elements import Content, Element, element, foreign, joined, name_of
from sharequeue_pipeline.jobs.reporting.figures import HOUR_MS, GroupFigures, Lag, Reason, Report, Step, TopicFigures
from sharequeue_pipeline.jobs.reporting.findings import MOST, Finding, findings
from sharequeue_pipeline.jobs.reporting.style import STYLE
from sharequeue_pipeline.jobs.reporting.texts import DASH, duration, large, moment, number, second, share

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
ICON: Final = "data:,"
MOST_LAGS: Final = 8
MOST_DELIVERIES: Final = 12
CAUSES: Final = {"rejected": "rejected by a worker", "delivery_limit": "delivered too often"}
QUANTILES: Final = (("p50", "half of the records"), ("p90", "90 %"), ("p99", "99 %"))


def page(report: Report) -> str:
    """The whole document."""
    title = f"sharequeue: {moment(report.from_ms)} to {moment(report.to_ms)} UTC"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Element(STYLE)),
    )
    body = element("body", element("main", _header(report), *_sections(report), _footer(report)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _sections(report: Report) -> Iterable[Content]:
    if not report.topics:
        yield _empty(report)
        return
    yield _tiles(report)
    yield _attention(report)
    yield _throughput(report)
    yield element("div", _times(report), _retries(report), class_="pair")
    yield element("div", _lags(report), _deliveries(report), class_="pair")
    yield _dead_letters(report)
    yield _table(report)
    yield _each_group(report)


def _header(report: Report) -> Content:
    only = [
        element("span", " · only the ", what, " ", name_of(name))
        for what, name in (("group", report.only_group), ("topic", report.only_topic))
        if name is not None
    ]
    return element(
        "header",
        element("h1", "Activity report"),
        element(
            "p", f"{moment(report.from_ms)} to {moment(report.to_ms)} UTC", only, f" · made {moment(report.made_ms)} UTC",
            class_="lead",
        ),
    )  # fmt: skip


def _empty(report: Report) -> Content:
    text = (
        "No record was produced, delivered or settled in this period, and no group has unfinished records. Counters are "
        "kept for 30 days by default."
    )
    return element("section", element("h2", "Nothing was counted"), element("p", text), class_="card empty-page")


# What matters most


def _tiles(report: Report) -> Content:
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
            "Waiting now", large(waiting) if lag is not None else DASH, f"lag of {_named(report.group_count, 'group')}"
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


def _attention(report: Report) -> Content:
    found = findings(report)
    if not found:
        return element(
            "p", element("span", "✓", aria_hidden="true"), "Nothing needs attention: no dead letters, and no group falls behind.",
            class_="state good",
        )  # fmt: skip
    more = len(found) - MOST
    return _card(
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


# Over time


def _throughput(report: Report) -> Content:
    at = {step.at_ms: step for step in report.steps}
    series = [
        Series("produced", "produced", _values(report, at, lambda step: step.produced)),
        Series("accepted, by all groups together", "accepted", _values(report, at, lambda step: step.accepted)),
    ]
    told = _told(report, at, lambda step: f"produced {number(step.produced)}, accepted {number(step.accepted)}")
    return _card(
        "Throughput",
        f"Records per {_step(report)}. A record counts once when it is produced, and once for each group that accepts it.",
        legend(series),
        columns(report.moments, report.step_ms, series, told),
        _unit(report, "records"),
    )


def _times(report: Report) -> Content:
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
    return _card(
        "Time to settle",
        "From a record's timestamp to its acceptance.",
        legend(series),
        lines(report.moments, report.step_ms, series, told),
        _unit(report, "time, logarithmic"),
    )


def _retries(report: Report) -> Content:
    at = {step.at_ms: step for step in report.steps}
    names = (("released", "released"), ("expired", "lock ended"), ("rejected", "rejected"))
    series = [Series(shown, name, _values(report, at, attrgetter(name))) for name, shown in names]

    def text(step: Step) -> str:
        return ", ".join(f"{shown} {number(getattr(step, name))}" for name, shown in names)

    return _card(
        "Deliveries that failed",
        "A released record, and one whose lock ended, comes again. A rejected one becomes a dead letter.",
        legend(series),
        columns(report.moments, report.step_ms, series, _told(report, at, text), stacked=True),
        _unit(report, "deliveries"),
    )


def _values(report: Report, at: dict[int, Step], of: Callable[[Step], int]) -> list[float | None]:
    return [None if (step := at.get(ms)) is None else of(step) for ms in report.moments]


def _told(report: Report, at: dict[int, Step], text: Callable[[Step], str]) -> list[str | None]:
    return [
        None if (step := at.get(ms)) is None else f"{period(ms, report.step_ms)}: {text(step)}" for ms in report.moments
    ]


def _step(report: Report) -> str:
    hours = report.step_ms // HOUR_MS
    return {1: "hour", 24: "day", 168: "week"}.get(hours, f"{hours} hours" if hours < 168 else f"{hours // 168} weeks")


def _unit(report: Report, what: str) -> Content:
    return element(
        "p",
        f"↑ {what} per {_step(report)} · → time (UTC)" if "log" not in what else f"↑ {what} · → time (UTC)",
        class_="unit",
    )


# Now, and by delivery


def _lags(report: Report) -> Content:
    known = [(topic, group, group.lag) for topic, group in report.pairs if group.lag is not None]
    largest = sorted((entry for entry in known if entry[2].records), key=lambda entry: -entry[2].records)
    if largest:
        rows = [
            Bar(_pair(topic, group), lag.records, "produced", _trend(topic, group))
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
            f"The lag of {_named(unknown, 'partition')} is unknown: no gateway has loaded them yet." if unknown else "",
        )
        if text
    ]
    return _card(
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


def _deliveries(report: Report) -> Content:
    if not report.total.deliveries:
        return _card("Deliveries by count", None, element("p", "Nothing was delivered.", class_="about"))
    return _card(
        "Deliveries by count",
        "How many records were delivered for the first time, the second time, and so on.",
        delivery_bars(report.total),
    )


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


# Dead letters


def _dead_letters(report: Report) -> Content:
    total = report.total
    if not total.dead and not report.reasons:
        return _card("Dead letters", None, element("p", "No record became a dead letter.", class_="state good"))
    causes = [
        Bar(CAUSES.get(cause, cause), records, "rejected") for cause, records in sorted(total.dead_letters.items())
    ]
    more = (
        element("p", f"{_named(report.more_reasons, 'dead letter')} with other reasons.", class_="unit")
        if report.more_reasons
        else None
    )
    return _card(
        "Dead letters",
        "Records that will not come again unless someone redrives them, by cause, and by the reason that workers gave. "
        "Reasons that differ only in numbers count as one; # stands for a number.",
        log_bars(causes, "→ records") if causes else None,
        element("h3", "By reason") if report.reasons else None,
        map(_reason, report.reasons),
        more,
    )


def _reason(entry: Reason) -> Content:
    name = foreign(entry.reason) if entry.reason is not None else element("span", "no reason given", class_="of")
    where = element(
        "span", name_of(entry.group), element("span", " in ", class_="of"), name_of(entry.topic), class_="count"
    )
    inside = [
        element(
            "div",
            element("p", _place_of(entry, index)),
            element("p", "reason: ", foreign(sample.reason)) if sample.reason not in (None, entry.reason) else None,
            element("p", "key: ", foreign(sample.key)) if sample.key is not None else None,
            element("code", sample.value, _cut(sample.value, sample.value_bytes)) if sample.value is not None else None,
            class_="sample",
        )
        for index, sample in enumerate(entry.samples)
    ]
    head = [
        element("span", name, class_="name"),
        where,
        element(
            "span", f"{CAUSES.get(entry.cause, entry.cause)} · ", element("b", number(entry.records)), class_="count"
        ),
    ]
    if not inside:
        return element("details", element("summary", head), element("p", "No samples.", class_="inside unit"))
    return element("details", element("summary", head), element("div", inside, class_="inside"))


def _place_of(entry: Reason, index: int) -> str:
    sample = entry.samples[index]
    parts = [f"{second(sample.died_ms)} UTC"]
    if sample.partition is not None and sample.offset is not None:
        parts.append(f"partition {sample.partition}, offset {number(sample.offset)}")
    if sample.delivery_count is not None:
        parts.append(f"delivery {sample.delivery_count}")
    return " · ".join(parts)


def _cut(value: str | None, whole: int) -> Content:
    if value is None or len(value.encode()) >= whole or value.startswith("0x"):
        return None
    return element("span", f" … of {number(whole)} bytes", class_="of")


# By topic and group


def _table(report: Report) -> Content:
    columns_ = (
        "Topic and group",
        f"Per {_step(report)}",
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
    return _card(
        "By topic and group",
        "Failed deliveries were released, rejected, or their lock ended. p50 and p99: half of the records, and 99 % of "
        "them, were accepted within that time.",
        element("table", element("thead", head), element("tbody", rows), class_="cards"),
    )


def _topic_row(report: Report, topic: TopicFigures) -> Content:
    at = {step.at_ms: step for step in topic.steps}
    chart = spark(_values(report, at, lambda step: step.produced)) if topic.produced else None
    return element(
        "tr",
        element("td", _topic(topic), class_="name"),
        _cell("", element("span", chart, class_="produced") if chart else None, wide=True),
        _cell("Produced", number(topic.produced)),
        *(_cell("", None) for _ in range(6)),
        class_="topic",
    )


def _group_row(report: Report, topic: TopicFigures, group: GroupFigures) -> Content:
    at = {step.at_ms: step for step in group.steps}
    chart = spark(_values(report, at, lambda step: step.accepted)) if group.accepted else None
    times = group.time_to_accept
    failed = group.released + group.rejected + group.expired
    return element(
        "tr",
        element("td", name_of(group.group), class_="name"),
        _cell("", element("span", chart, class_="accepted") if chart else None, wide=True),
        _cell("", None),
        _cell("Accepted", number(group.accepted)),
        _cell("Failed", number(failed), "warn" if failed * 10 > group.delivered else None),
        _cell("Lag", _lag(group.lag)),
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
    names = " and ".join(_named(n, what) for n, what in ((others.topics, "topic"), (others.groups, "group")) if n)
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


def _lag(lag: Lag | None) -> str:
    if lag is None:
        return DASH
    return f"≥ {number(lag.records)}" if lag.unknown_partitions else number(lag.records)


def _each_group(report: Report) -> Content:
    pairs = [(topic, group) for topic, group in report.pairs if group.delivered]
    if not pairs:
        return None
    return _card(
        "Group by group",
        None,
        (
            element("details", element("summary", *_group_head(topic, group)), _group_inside(report, topic, group))
            for topic, group in pairs
        ),
    )


def _group_head(topic: TopicFigures, group: GroupFigures) -> Sequence[Content]:
    return element("span", _pair(topic, group), class_="name"), element(
        "span", f"{number(group.delivered)} deliveries", class_="count"
    )


def _group_inside(report: Report, topic: TopicFigures, group: GroupFigures) -> Content:
    times = group.time_to_accept
    facts: list[tuple[str, Content]] = [
        (name, number(getattr(group, name))) for name in ("delivered", "accepted", "released", "rejected")
    ]
    facts.append(("lock ended", number(group.expired)))
    facts.append(("lag now", _lag(group.lag)))
    if times is not None:
        facts += [(name, duration(getattr(times, f"{name}_ms"))) for name in ("p50", "p90", "p99")]
        facts.append(("p99.9", duration(times.p999_ms)))
    facts += [
        (f"dead letters, {CAUSES.get(cause, cause)}", number(n)) for cause, n in sorted(group.dead_letters.items())
    ]
    at, made = {step.at_ms: step for step in group.steps}, {step.at_ms: step.produced for step in topic.steps}
    series = [
        Series("produced to the topic", "produced", [made.get(ms) for ms in report.moments]),
        Series("accepted", "accepted", _values(report, at, lambda step: step.accepted)),
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
        element("h3", f"Records per {_step(report)}"),
        legend(series),
        columns(report.moments, report.step_ms, series, told),
        element("h3", "Deliveries by count"),
        delivery_bars(group),
        class_="inside small",
    )


# Small parts


def _card(title: str, about: str | None, *content: Content) -> Element:
    return element("section", element("h2", title), element("p", about or "", class_="about"), content, class_="card")


def _pair(topic: TopicFigures, group: GroupFigures) -> Element:
    return joined([name_of(group.group), element("span", " in ", class_="of"), _topic(topic)])


def _topic(topic: TopicFigures) -> Element:
    name = name_of(topic.topic) if topic.topic else element("span", "a deleted topic", class_="of")
    return joined([name, element("span", f" (id {topic.topic_id[:8]}…)", class_="of") if topic.again else None])


def _named(n: int, what: str) -> str:
    return f"{number(n)} {what}{'s' if n != 1 else ''}"


def _footer(report: Report) -> Content:
    notes = [
        *report.notes,
        "A striped part of a chart has no data: nothing was counted in that time. Either nothing happened, or no gateway ran.",
        "Counts are those of the gateways, which write them every few seconds; a gateway that is killed loses its last ones.",
        "Times come from histograms and are right within 13 %. A time begins at the record's timestamp, which a producer "
        "may have set.",
    ]
    return element("footer", element("ul", (element("li", note) for note in notes)))
