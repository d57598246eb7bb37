"""What in a report needs attention, the most serious first. Rules over figures; each names the group and the topic."""

from typing import Final, Literal, NamedTuple

from sharequeue_pipeline.jobs.reporting.figures import GroupFigures, Report, TopicFigures
from sharequeue_pipeline.jobs.reporting.texts import number, share

MOST: Final = 8
EXPIRED_SHARE: Final = 0.01
EXPIRED_LEAST: Final = 10
GROWTH_SHARE: Final = 0.1

Weight = Literal["bad", "warn"]


class Finding(NamedTuple):
    """`text` follows the names of the group and the topic. `records`: how many it is about."""

    weight: Weight
    group: str
    topic: str
    text: str
    records: int


def findings(report: Report) -> list[Finding]:
    """All findings, the most serious and largest first."""
    found = [finding for topic, group in report.pairs for finding in _of(topic, group)]
    return sorted(found, key=lambda entry: (entry.weight != "bad", -entry.records, entry.group, entry.topic))


def _of(topic: TopicFigures, group: GroupFigures) -> list[Finding]:
    found: list[Finding] = []

    def add(weight: Weight, records: int, text: str) -> None:
        found.append(Finding(weight, group.group, topic.topic, text, records))

    lag = group.lag
    waiting = lag.records if lag is not None else 0
    if lag is not None and lag.removed_unfinished:
        add(
            "bad",
            lag.removed_unfinished,
            f"lost {_records(lag.removed_unfinished)} to retention before it had finished them",
        )
    if group.dead:
        add("bad", group.dead, f"has {_records(group.dead)} that became dead letters")
    elif lag is not None and lag.open_dead_letters:
        add("warn", lag.open_dead_letters, f"still has {number(lag.open_dead_letters)} dead letters from before")
    if waiting and not group.delivered:
        add("bad", waiting, f"fetched nothing, and {_records(waiting)} {'wait' if waiting > 1 else 'waits'}")
    elif waiting and topic.produced - group.finished > GROWTH_SHARE * topic.produced:
        add(
            "warn",
            waiting,
            f"falls behind: it finished {number(group.finished)} of {number(topic.produced)} produced records",
        )
    if group.expired >= EXPIRED_LEAST and group.expired >= EXPIRED_SHARE * group.delivered:
        part = share(group.expired, group.delivered)
        add("warn", group.expired, f"let {part} of its locks end: workers died, or took longer than their locks")
    return found


def _records(n: int) -> str:
    return f"{number(n)} record{'s' if n != 1 else ''}"
