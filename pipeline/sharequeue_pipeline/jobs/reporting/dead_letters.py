"""The dead letters of a report's page: by cause, and by reason with samples."""

from sharequeue_pipeline.jobs.reporting.charts import Bar, log_bars
from sharequeue_pipeline.jobs.reporting.elements import Content, element, foreign, name_of
from sharequeue_pipeline.jobs.reporting.figures import Reason, Report
from sharequeue_pipeline.jobs.reporting.parts import CAUSES, card, named
from sharequeue_pipeline.jobs.reporting.texts import number, second


def dead_letters_by_reason(report: Report) -> Content:
    total = report.total
    if not total.dead and not report.reasons:
        return card("Dead letters", None, element("p", "No record became a dead letter.", class_="state good"))
    causes = [
        Bar(CAUSES.get(cause, cause), records, "rejected") for cause, records in sorted(total.dead_letters.items())
    ]
    more = (
        element("p", f"{named(report.more_reasons, 'dead letter')} with other reasons.", class_="unit")
        if report.more_reasons
        else None
    )
    return card(
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
