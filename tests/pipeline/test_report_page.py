"""The page of a report, without Spark: it says what the figures say, on a phone too, and foreign text stays text."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from sharequeue_pipeline.jobs.reporting import charts
from sharequeue_pipeline.jobs.reporting.figures import (
    HOUR_MS,
    MOST_STEPS,
    GroupFigures,
    Lag,
    Others,
    Quantiles,
    Reason,
    Report,
    Sample,
    Step,
    TopicFigures,
    quantile,
    step_of,
)
from sharequeue_pipeline.jobs.reporting.findings import findings
from sharequeue_pipeline.jobs.reporting.markdown import markdown
from sharequeue_pipeline.jobs.reporting.overview import MOST_LAGS
from sharequeue_pipeline.jobs.reporting.page import page
from sharequeue_pipeline.jobs.reporting.texts import duration, share, short, text_of, visible

FROM_MS = 1_795_219_200_000
EVIL = "</script><script>alert(1)</script><img onerror='a()'>\"`|*\u202e\x00"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "section", "footer", "h1", "h2", "h3", "p"),
    *("span", "b", "i", "bdi", "code", "div", "dl", "dt", "dd", "ul", "li", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "path", "line", "rect"),
}
UNCLOSED = {"meta"}


class Parsed(HTMLParser):
    """What a browser would see: elements as (tag, attributes), and all text that is not style."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in UNCLOSED:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data

    def of(self, class_: str) -> Iterator[dict[str, str | None]]:
        return (attributes for _, attributes in self.elements if class_ in (attributes.get("class") or "").split())


def step(hour: int, records: int, p50_ms: float | None = 40) -> Step:
    times = None if p50_ms is None else Quantiles(records, p50_ms, p50_ms * 2, p50_ms * 9, p50_ms * 50)
    return Step(FROM_MS + hour * HOUR_MS, records, records, records, time_to_accept=times)


def report(*hours: int, topic: str = "orders", group: str = "billing", **fields: Any) -> Report:
    """A report of 24 hours, with 100 records in each of these."""
    steps = [step(hour, 100) for hour in hours]
    records = 100 * len(hours)
    times = Quantiles(records, 40, 80, 360, 2000)
    counts: dict[str, Any] = {
        "delivered": records,
        "accepted": records,
        "deliveries": {1: records},
        "time_to_accept": times,
    }
    figures = GroupFigures(group, **counts, lag=Lag(0), steps=steps)
    given: dict[str, Any] = {
        "total": GroupFigures("", **counts, lag=Lag(0)),
        "produced": records,
        "topic_count": 1,
        "group_count": 1,
        "steps": steps,
        "topics": [TopicFigures(topic, "5f3a7c11-2222", records, steps, [figures])],
        **fields,
    }
    return Report(FROM_MS, FROM_MS + 24 * HOUR_MS, FROM_MS + 23 * HOUR_MS, HOUR_MS, **given)


def hostile() -> Report:
    sample = Sample(0, 1, 2, FROM_MS, EVIL, EVIL, EVIL + "\n" * 9, 70_000)
    dead: dict[str, Any] = {
        "delivered": 9,
        "rejected": 9,
        "dead_letters": {"rejected": 5, EVIL: 4},
        "deliveries": {1: 9},
    }
    figures = GroupFigures(EVIL, **dead, lag=Lag(7, 1, 4, 2))
    return report(
        3,
        topics=[TopicFigures(EVIL, EVIL, 9, [], [figures], again=True)],
        total=GroupFigures("", **dead, lag=Lag(7, 1, 4, 2)),
        reasons=[Reason(EVIL, EVIL, EVIL, EVIL, 9, [sample]), Reason("g", "t", "rejected", None, 1)],
        only_group=EVIL,
        only_topic=EVIL,
        notes=[EVIL],
    )


def test_foreign_text_stays_text() -> None:
    seen = Parsed(page(hostile()))
    assert {tag for tag, _ in seen.elements} <= TAGS
    for tag, attributes in seen.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "href", "action")], tag
        assert "alert" not in (attributes.get("style") or "") + (attributes.get("class") or "")
    assert seen.text.count(visible(EVIL)) >= 12
    assert "\u202e" not in seen.text
    assert "\x00" not in seen.text


@pytest.mark.parametrize("given", [report(), report(*range(24)), hostile()])
def test_the_page_loads_nothing_and_runs_nothing(given: Report) -> None:
    document = page(given)
    assert "http:" not in document
    assert "https:" not in document
    assert "url(" not in document
    assert "@import" not in document
    seen = Parsed(document)
    (policy,) = (attributes for tag, attributes in seen.elements if attributes.get("http-equiv"))
    assert (policy["content"] or "").startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "@media(prefers-color-scheme:dark)" in document
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in [a for _, a in seen.elements]


def test_hours_without_data_are_gaps() -> None:
    seen = Parsed(page(report(*range(6), *range(12, 24))))
    gaps = [attributes["style"] for attributes in seen.of("gap")]
    assert set(gaps) == {"left:25.00%;width:25.00%"}
    assert len(gaps) == 4, "throughput, times, failures, and those of the group"
    lines = [attributes["d"] or "" for attributes in seen.of("stroke")]
    assert [line.count("M") for line in lines] == [2, 2, 2], "a line ends at the gap, and begins behind it"
    assert [line.count("L") for line in lines] == [16, 16, 16]
    assert "no data" in seen.text


def test_an_hour_in_which_nothing_was_accepted_breaks_the_line_of_times_alone() -> None:
    steps = [step(0, 5), step(1, 5, None), step(2, 5)]
    seen = Parsed(page(report(0, steps=steps)))
    assert [(attributes["d"] or "").count("M") for attributes in seen.of("stroke")] == [2, 2, 2]
    at_1 = [
        attributes for attributes in seen.of("gap") if (attributes["style"] or "").startswith("left:4.17%;width:4.17%")
    ]
    assert len(at_1) == 1


def widths(element: str) -> list[float]:
    found = (attributes["style"] or "" for attributes in Parsed(element).of("bar"))
    return [float(style.removeprefix("width:").removesuffix("%")) for style in found]


def test_a_retry_is_seen_beside_a_million_deliveries() -> None:
    bars = [charts.Bar(str(n), value, "accepted") for n, value in enumerate((1_000_000, 1000, 1, 0))]
    million, thousand, one, none = widths(charts.log_bars(bars, "→ deliveries"))
    assert million == 100
    assert one > 3
    assert none == 0
    assert million - thousand == pytest.approx(thousand - one, abs=0.02)


def test_bars_from_zero_are_proportional() -> None:
    four, two = widths(charts.bars([charts.Bar("a", 4, "x"), charts.Bar("b", 2, "x")], "→ records"))
    assert (four, two) == (100, 50)


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (0, ["0", "1"]),
        (1, ["0", "1"]),
        (3, ["0", "1", "2", "3"]),
        (97, ["0", "25", "50", "75", "100"]),
        (1_000_000, ["0", "250 k", "500 k", "750 k", "1 M"]),
    ],
)
def test_an_axis_of_counts_has_round_numbers(most: float, labels: list[str]) -> None:
    axis = charts.counts_axis(most)
    assert [label for _, label in axis.ticks] == labels
    assert axis.at(most) <= 1


def test_an_axis_of_times_has_units() -> None:
    axis = charts.times_axis(0.2, 59_000)
    labels = [label for _, label in axis.ticks]
    assert (labels[0], labels[-1]) == ("1 ms", "1 min")
    assert 0 <= axis.at(0.2) < axis.at(59_000) <= 1.0
    assert len(labels) <= charts.MOST_LABELS


def test_the_labels_of_time_say_where_a_day_begins() -> None:
    moments = [FROM_MS + (20 + hour) * HOUR_MS for hour in range(24)]
    labels = charts.time_labels(moments, HOUR_MS)
    assert len(labels) <= charts.MOST_LABELS
    assert [(label.text, label.day) for label in labels[:2]] == [("20:00", "21 Nov"), ("00:00", "22 Nov")]
    assert [label.text for label in charts.time_labels(moments[:3], 24 * HOUR_MS)] == ["21 Nov", "21 Nov", "21 Nov"]


def test_nothing_was_counted() -> None:
    given = report(topics=[], steps=[])
    assert "Nothing was counted" in Parsed(page(given)).text
    assert "Nothing was counted." in markdown(given)


def test_long_names_are_cut_and_kept() -> None:
    name = "t" * 100 + "-end-of-the-name"
    seen = Parsed(page(report(3, topic=name)))
    assert name not in seen.text
    assert {attributes.get("title") for tag, attributes in seen.elements if tag == "bdi"} >= {name}
    assert "…tttt-end-of-the-name" in seen.text


def test_a_name_does_not_end_the_attribute_that_it_stands_in() -> None:
    name = "t" * 100 + '" onmouseover="alert(1)" x="\'>'
    seen = Parsed(page(report(3, topic=name, group=name)))
    titles = [attributes for tag, attributes in seen.elements if tag == "bdi" and "title" in attributes]
    assert titles
    assert all(attributes == {"title": name} for attributes in titles)


def test_what_is_not_named_is_added_up() -> None:
    many = [GroupFigures(f"g{n}", delivered=1, lag=Lag(n + 1)) for n in range(50)]
    others = Others(topics=9_000, groups=9_950, produced=123, lag=4)
    seen = Parsed(page(report(3, topics=[TopicFigures("t", "id", 5, [], many)], others=others)))
    assert "others: 9,000 topics and 9,950 groups" in seen.text
    assert f"{50 - MOST_LAGS} more groups with a lag are in the table below" in seen.text


def found(produced: int = 0, **fields: Any) -> list[tuple[str, str, int]]:
    given = report(3, topics=[TopicFigures("t", "id", produced, [], [GroupFigures("g", **fields)])])
    return [(entry.weight, entry.text, entry.records) for entry in findings(given)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"delivered": 5, "accepted": 5, "lag": Lag(0)}, []),
        ({"produced": 9, "lag": Lag(0)}, []),
        ({"produced": 9}, []),
        ({"produced": 100, "delivered": 90, "accepted": 90, "lag": Lag(10)}, []),
        ({"produced": 100, "delivered": 89, "accepted": 89, "lag": Lag(11)}, ["warn finished 89 of 100"]),
        ({"produced": 100, "delivered": 89, "accepted": 89, "lag": Lag(0)}, []),
        ({"produced": 100, "lag": Lag(1)}, ["bad fetched nothing, and 1 record waits"]),
        ({"delivered": 9, "rejected": 9, "dead_letters": {"rejected": 9}, "lag": Lag(0, 0, 9)}, ["bad has 9 records"]),
        ({"delivered": 9, "accepted": 9, "lag": Lag(0, 0, 3)}, ["warn still has 3 dead letters"]),
        ({"delivered": 9, "accepted": 9, "lag": Lag(0, 0, 0, 2)}, ["bad lost 2 records to retention"]),
        ({"delivered": 1000, "accepted": 990, "expired": 10}, ["warn let 1 % of its locks end"]),
        ({"delivered": 1001, "accepted": 991, "expired": 10}, []),
        ({"delivered": 20, "accepted": 11, "expired": 9}, []),
    ],
)
def test_what_needs_attention(fields: dict[str, Any], words: list[str]) -> None:
    said = found(**fields)
    assert len(said) == len(words)
    for (weight, text, _), word in zip(said, words, strict=True):
        wanted_weight, _, wanted = word.partition(" ")
        assert weight == wanted_weight
        assert wanted in text


def test_the_most_serious_comes_first() -> None:
    groups = [
        GroupFigures("late", delivered=1, accepted=1, lag=Lag(900)),
        GroupFigures("some", delivered=9, dead_letters={"rejected": 2}),
        GroupFigures("most", delivered=9, dead_letters={"rejected": 7}),
    ]
    given = report(3, topics=[TopicFigures("t", "id", 1000, [], groups)])
    assert [entry.group for entry in findings(given)] == ["most", "some", "late"]


@pytest.mark.parametrize(
    ("hours", "step_h"), [(1, 1), (24, 1), (60, 1), (61, 2), (168, 3), (720, 12), (1500, 48), (20_000, 336)]
)
def test_a_period_has_at_most_sixty_steps(hours: int, step_h: int) -> None:
    assert step_of(FROM_MS, FROM_MS + hours * HOUR_MS) == step_h * HOUR_MS
    assert hours <= step_h * MOST_STEPS


@pytest.mark.parametrize(
    ("buckets", "part", "expected"),
    [
        ({}, 0.5, None),
        ({(10, 20): 4}, 0.5, 15),
        ({(0, 1): 1, (100, 200): 1}, 0.5, 1),
        ({(0, 1): 98, (100, 200): 2}, 0.99, 150),
        ({(100, 200): 1, (0, 10): 1}, 1.0, 200),
    ],
)
def test_quantiles(buckets: dict[tuple[int, int], int], part: float, expected: float | None) -> None:
    assert quantile(buckets, part) == (expected if expected is None else pytest.approx(expected))


def test_numbers_have_units() -> None:
    times = [duration(ms) for ms in (None, 0.4, 999, 1500, 90_000, 5_400_000, 2e8)]
    assert times == ["–", "0 ms", "999 ms", "1.5 s", "1.5 min", "1.5 h", "2.3 d"]
    counts = [short(n) for n in (0, 1.5, 950, 1000, 12_345, 999_999, 4_570_000, 2e9)]
    assert counts == ["0", "1.5", "950", "1 k", "12.3 k", "1 M", "4.57 M", "2 G"]
    shares = [share(*of) for of in ((0, 0), (0, 9), (9, 9), (1, 3), (1, 1001), (999, 1000), (9999, 10_000))]
    assert shares == ["–", "0 %", "100 %", "33.3 %", "< 0.1 %", "99.9 %", "> 99.9 %"]


def test_every_character_is_seen() -> None:
    assert visible("a\u202eb\x1b[1m\u2066\ud800") == "a\\u202eb\\u001b[1m\\u2066\\ud800"
    assert visible("الطلبات 課金 👩\u200d🚀") == "الطلبات 課金 👩\u200d🚀"


def test_bytes_are_text_or_digits() -> None:
    assert text_of(None) is None
    assert text_of("naïve".encode()) == "naïve"
    assert text_of("naï".encode()[:-1], cut=True) == "na"
    assert text_of("naï".encode()[:-1]) == "0x6e61c3"
    assert text_of(b"\xff\x00") == "0xff00"


def test_markdown_is_escaped() -> None:
    text = markdown(hostile())
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"[^\\][`*]", text)
    assert "\u202e" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} <= {3, 6, 11, 13}, "no name ends a cell"
