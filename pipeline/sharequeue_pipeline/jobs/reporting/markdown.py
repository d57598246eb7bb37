"""A report as Markdown: its tables."""

import html
import re
from collections.abc import Sequence
from typing import Final

from sharequeue_pipeline.jobs.reporting.figures import Report
from sharequeue_pipeline.jobs.reporting.findings import MOST, findings
from sharequeue_pipeline.jobs.reporting.texts import DASH, duration, moment, number, visible

_MEANING: Final = re.compile(r"([\\`*_{}\[\]|~])")

COUNTED: Final = ("produced", "delivered", "accepted", "released", "rejected", "expired")

Row = Sequence[str]


def markdown(report: Report) -> str:
    """The whole document. Foreign text is escaped: it is no Markdown, and no HTML."""
    parts = [f"# Activity from {moment(report.from_ms)} to {moment(report.to_ms)} UTC"]
    if not report.topics:
        return f"{parts[0]}\n\nNothing was counted.\n"
    found = findings(report)
    if found:
        lines = [f"- {_safe(entry.group)} in {_safe(entry.topic)} {entry.text}" for entry in found[:MOST]]
        parts += ["## Needs attention", "\n".join(lines)]
    parts += ["## By topic and group", _by_group(report), "## Over time (UTC)", _by_time(report)]
    parts += ["## Deliveries by count", _deliveries(report), "## Dead letters by reason", _reasons(report)]
    if report.notes:
        parts.append("\n".join(f"- {_safe(note)}" for note in report.notes))
    return "\n\n".join(parts) + "\n"


def _by_group(report: Report) -> str:
    rows: list[Row] = []
    for topic in report.topics:
        name = _safe(topic.topic) + (f" (id {topic.topic_id[:8]}…)" if topic.again else "")
        if not topic.groups:
            rows.append((name, DASH, number(topic.produced), *[DASH] * 9))
        for group in topic.groups:
            times = group.time_to_accept
            counts = (group.delivered, group.accepted, group.released, group.rejected, group.expired)
            rows.append(
                (
                    name,
                    _safe(group.group),
                    number(topic.produced),
                    *map(number, counts),
                    number(group.dead),
                    number(group.lag.records) if group.lag is not None else DASH,
                    duration(times.p50_ms if times else None),
                    duration(times.p99_ms if times else None),
                )
            )
    if (others := report.others) is not None:
        rest = (
            others.delivered,
            others.accepted,
            others.released,
            others.rejected,
            others.expired,
            others.dead_letters,
        )
        names = f"others: {number(others.topics)} topics", f"{number(others.groups)} groups"
        rows.append((*names, number(others.produced), *map(number, rest), number(others.lag), DASH, DASH))
    return _table(("topic", "group"), (*COUNTED, "dead letters", "lag", "p50", "p99"), rows)


def _by_time(report: Report) -> str:
    rows = []
    for step in report.steps:
        times = step.time_to_accept
        counts = (step.produced, step.delivered, step.accepted, step.released, step.rejected, step.expired)
        quantiles = (times.p50_ms, times.p99_ms) if times else (None, None)
        rows.append((moment(step.at_ms), *map(number, counts), number(step.dead_letters), *map(duration, quantiles)))
    return _table(("from",), (*COUNTED, "dead letters", "p50", "p99"), rows)


def _deliveries(report: Report) -> str:
    rows = [(number(count), number(records)) for count, records in sorted(report.total.deliveries.items())]
    return _table((), ("delivery count", "records"), rows)


def _reasons(report: Report) -> str:
    rows = [
        (_safe(entry.topic), _safe(entry.group), _safe(entry.cause), _safe(entry.reason or DASH), number(entry.records))
        for entry in report.reasons
    ]
    return _table(("topic", "group", "cause", "reason"), ("records",), rows)


def _table(texts: Row, numbers: Row, rows: Sequence[Row]) -> str:
    if not rows:
        return "None."
    rule = [*["---"] * len(texts), *["---:"] * len(numbers)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in ([*texts, *numbers], rule, *rows))


def _safe(text: str) -> str:
    return _MEANING.sub(r"\\\1", html.escape(visible(text), quote=False))
