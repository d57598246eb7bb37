"""The checker of transactions: sound histories pass, and each rule notices its violation."""

import pytest

from tests.chaos.checker import check, report
from tests.chaos.history import Outcome
from tests.chaos.stories import GROUP, TOPIC, HistoryWriter, Story

OTHER = "uncommitted"


def committed_writer() -> HistoryWriter:
    """A history with one group of each isolation level."""
    writer = HistoryWriter()
    writer.history.groups = (GROUP, OTHER)
    writer.history.committed_groups = frozenset({GROUP})
    return writer


def end_of(writer: HistoryWriter) -> HistoryWriter:
    """All groups have finished all partitions."""
    for group in writer.history.groups:
        for topic, partition in writer.history.log:
            writer.history.lags.setdefault((group, topic, partition), 0)
    return writer


def finish(writer: HistoryWriter, first: int, last: int, *groups: str, partition: int = 0) -> None:
    for group in groups or (GROUP, OTHER):
        writer.fetch(f"of {group}", first, last, 1, group=group, partition=partition)
        writer.acknowledge(f"of {group}", first, last, 1, "accept", group=group, partition=partition)


def committed(writer: HistoryWriter) -> None:
    """0: plain, 1 and 2: of T, 3: its marker."""
    writer.produce(10)
    writer.produce(11, 12, transaction="T")
    writer.end_transaction("T", "commit", "unknown")
    writer.end_transaction("T", "commit", "committed", 0)
    finish(writer, 0, 2)
    writer.read_committed(0, 4)


def aborted(writer: HistoryWriter) -> None:
    """0: of T, 1: plain, 2: the marker of T, 3: plain."""
    writer.produce(10, transaction="T")
    finish(writer, 0, 0, OTHER)
    writer.read_committed(0, 0)
    writer.produce(11)
    writer.end_transaction("T", "commit", "aborted", 0)
    writer.produce(12)
    finish(writer, 1, 1)
    finish(writer, 3, 3)
    writer.read_committed(0, 4, 0)


def timed_out(writer: HistoryWriter) -> None:
    """The producer died with a lost answer; what became of it is found out later."""
    writer.produce(10, transaction="T", outcome=Outcome.UNKNOWN)
    writer.end_transaction("T", "describe", "open")
    writer.end_transaction("T", "describe", "aborted", 0)
    finish(writer, 0, 0, OTHER)
    writer.read_committed(0, 2, 0)


def wrote_nothing(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.produce(11, transaction="T", outcome=Outcome.REFUSED, kept=False)
    writer.end_transaction("T", "describe", "forgotten")
    finish(writer, 0, 0)


def two_partitions(writer: HistoryWriter) -> None:
    """Another open transaction may hold back one of them."""
    writer.produce(9, transaction="U", partition=1)
    writer.produce(10, transaction="T")
    writer.produce(11, transaction="T", partition=1)
    writer.end_transaction("T", "commit", "committed", 0, 1)
    writer.read_committed(0, 2)
    writer.read_committed(0, 0, partition=1)
    writer.end_transaction("U", "abort", "aborted", 1)
    writer.read_committed(0, 4, 0, partition=1)
    finish(writer, 0, 0)
    finish(writer, 1, 1, GROUP, partition=1)
    finish(writer, 0, 1, OTHER, partition=1)


SOUND: tuple[Story, ...] = (committed, aborted, timed_out, wrote_nothing, two_partitions)


@pytest.mark.parametrize("story", SOUND, ids=lambda story: story.__name__)
def test_a_sound_history_passes(story: Story) -> None:
    writer = committed_writer()
    story(writer)
    violations = check(end_of(writer).end())
    assert not violations, report(writer.history, violations)


# Planted violations: the rule that must notice each.


def told_both(writer: HistoryWriter) -> None:
    committed(writer)
    writer.end_transaction("T", "describe", "aborted")


def forgotten_with_records(writer: HistoryWriter) -> None:
    committed(writer)
    writer.end_transaction("T", "describe", "forgotten")


def never_told(writer: HistoryWriter) -> None:
    writer.produce(10, transaction="T")
    writer.history.log_ends[TOPIC, 0] = 2
    finish(writer, 0, 0, OTHER)


def committed_by_nobody(writer: HistoryWriter) -> None:
    writer.produce(10, transaction="T")
    writer.end_transaction("T", "describe", "committed", 0)
    finish(writer, 0, 0)


def appended_after_the_end(writer: HistoryWriter) -> None:
    committed(writer)
    writer.produce(13, transaction="T")
    finish(writer, 4, 4)


def no_marker(writer: HistoryWriter) -> None:
    writer.produce(10, transaction="T")
    writer.end_transaction("T", "commit", "committed")
    finish(writer, 0, 0)


def an_aborted_record_is_delivered(writer: HistoryWriter) -> None:
    aborted(writer)
    finish(writer, 0, 0, GROUP)


def a_record_is_delivered_before_its_commit(writer: HistoryWriter) -> None:
    writer.produce(10, transaction="T")
    finish(writer, 0, 0)
    writer.end_transaction("T", "commit", "committed", 0)


def a_committed_record_is_never_delivered(writer: HistoryWriter) -> None:
    writer.produce(10, transaction="T")
    writer.end_transaction("T", "commit", "committed", 0)
    finish(writer, 0, 0, OTHER)


def an_aborted_record_is_read(writer: HistoryWriter) -> None:
    aborted(writer)
    writer.read_committed(0, 4)


def a_committed_record_is_cut_out(writer: HistoryWriter) -> None:
    committed(writer)
    writer.read_committed(0, 4, 2)


def an_open_record_is_read(writer: HistoryWriter) -> None:
    writer.produce(10, transaction="T")
    writer.read_committed(0, 1)
    writer.end_transaction("T", "commit", "committed", 0)
    finish(writer, 0, 0)


def half_of_a_transaction_is_seen(writer: HistoryWriter) -> None:
    """Its other partition still ends where the transaction begins."""
    writer.produce(10, transaction="T")
    writer.produce(11, transaction="T", partition=1)
    writer.end_transaction("T", "commit", "committed", 0, 1)
    writer.read_committed(0, 2)
    writer.read_committed(0, 0, partition=1)
    finish(writer, 0, 0)


PLANTED: tuple[tuple[str, Story], ...] = (
    ("outcome", told_both),
    ("outcome", forgotten_with_records),
    ("outcome", never_told),
    ("outcome", committed_by_nobody),
    ("late", appended_after_the_end),
    ("dense", no_marker),
    ("aborted", an_aborted_record_is_delivered),
    ("undecided", a_record_is_delivered_before_its_commit),
    ("finished", a_committed_record_is_never_delivered),
    ("aborted", an_aborted_record_is_read),
    ("torn", a_committed_record_is_cut_out),
    ("undecided", an_open_record_is_read),
    ("torn", half_of_a_transaction_is_seen),
)


@pytest.mark.parametrize(("rule", "story"), PLANTED, ids=[story.__name__ for _, story in PLANTED])
def test_a_planted_violation_is_noticed(rule: str, story: Story) -> None:
    writer = committed_writer()
    story(writer)
    violations = check(end_of(writer).end())
    assert rule in {violation.rule for violation in violations}, violations


def test_a_report_tells_what_became_of_the_transaction() -> None:
    writer = committed_writer()
    an_open_record_is_read(writer)
    violations = check(end_of(writer).end())
    text = report(writer.history, violations)
    assert "commit of transaction T: committed" in text
    assert "read as committed: 0 to 1" in text
