"""A report as one HTML file that needs no script, no network and no other file.

The page forbids scripts and everything from elsewhere by its own policy, beside the escaping of `elements`.
"""

from collections.abc import Iterable
from typing import Final

from sharequeue_pipeline.jobs.reporting.dead_letters import dead_letters_by_reason
from sharequeue_pipeline.jobs.reporting.elements import Content, Element, element, name_of
from sharequeue_pipeline.jobs.reporting.figures import Report
from sharequeue_pipeline.jobs.reporting.groups import by_topic_and_group, each_group
from sharequeue_pipeline.jobs.reporting.overview import (
    attention,
    deliveries_by_count,
    failures,
    lag_now,
    throughput,
    tiles,
    time_to_settle,
)
from sharequeue_pipeline.jobs.reporting.style import STYLE
from sharequeue_pipeline.jobs.reporting.texts import moment

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


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
    yield tiles(report)
    yield attention(report)
    yield throughput(report)
    yield element("div", time_to_settle(report), failures(report), class_="pair")
    yield element("div", lag_now(report), deliveries_by_count(report), class_="pair")
    yield dead_letters_by_reason(report)
    yield by_topic_and_group(report)
    yield each_group(report)


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


def _footer(report: Report) -> Content:
    notes = [
        *report.notes,
        "A striped part of a chart has no data: nothing was counted in that time. Either nothing happened, or no gateway ran.",
        "Counts are those of the gateways, which write them every few seconds; a gateway that is killed loses its last ones.",
        "Dead letters are records of their own topics, and count there as produced.",
        "Times come from histograms and are right within 13 %. A time begins at the record's timestamp, which a producer "
        "may have set.",
    ]
    return element("footer", element("ul", (element("li", note) for note in notes)))
