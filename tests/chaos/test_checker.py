"""The checker itself: sound histories pass, and each rule notices its violation."""

import pytest

from tests.chaos.checker import Violation, check, report
from tests.chaos.history import Outcome, Span
from tests.chaos.stories import (
    GROUP,
    LIMIT,
    LOCK_S,
    SOUND,
    TOPIC,
    HistoryWriter,
    Story,
    accepted_at_once,
    begun_again_after_a_reset,
    dead_after_the_limit,
    released_and_delivered_again,
)


@pytest.mark.parametrize("story", SOUND, ids=lambda story: story.__name__)
def test_a_sound_history_passes(story: Story) -> None:
    writer = HistoryWriter()
    story(writer)
    violations = check(writer.end())
    assert not violations, report(writer.history, violations)


# Planted violations: the rule that must notice each.


def an_answered_record_is_lost(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.produce(13, kept=False)


def a_record_that_nobody_produced(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.history.log[TOPIC, 0][3] = 99
    writer.fetch("a", 3, 3, 1)
    writer.acknowledge("a", 3, 3, 1, "accept")


def a_refused_record_is_there(writer: HistoryWriter) -> None:
    writer.produce(10, outcome=Outcome.REFUSED)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "accept")


def half_of_a_request(writer: HistoryWriter) -> None:
    writer.produce(10, 11, outcome=Outcome.UNKNOWN)
    del writer.history.log[TOPIC, 0][1]
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "accept")


def a_record_is_there_twice(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.history.log[TOPIC, 0][3] = 12
    writer.fetch("a", 3, 3, 1)
    writer.acknowledge("a", 3, 3, 1, "accept")


def the_log_has_a_hole(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.history.log[TOPIC, 0][5] = writer.history.log[TOPIC, 0].pop(2)


def another_value_is_delivered(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    fetch = writer.history.fetched[0]
    changed = fetch.ranges[0]._replace(values=((0, 10), (1, 12), (2, 11)))
    writer.history.fetched[0] = fetch._replace(ranges=(changed,))


def a_range_without_its_last_record(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    fetch = writer.history.fetched[0]
    writer.history.fetched[0] = fetch._replace(ranges=(fetch.ranges[0]._replace(values=((0, 10), (1, 11))),))


def the_same_delivery_twice(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 1)
    writer.acknowledge("b", 0, 0, 1, "accept")


def counts_fall(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 2)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 1)
    writer.acknowledge("b", 0, 0, 1, "accept")


def above_the_limit(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, LIMIT + 1)
    writer.acknowledge("a", 0, 0, LIMIT + 1, "accept")


def more_deliveries_than_the_limit(writer: HistoryWriter) -> None:
    """A delivery count may repeat around a window without Redis, but once for each window."""
    writer.produce(10)
    for number in range(LIMIT + 2):
        writer.fetch(f"m{number}", 0, 0, 1 + number % LIMIT)
        writer.wait(LOCK_S)
    writer.history.without_redis.append(Span(0, writer.now_s))
    writer.fetch("a", 0, 0, LIMIT)
    writer.acknowledge("a", 0, 0, LIMIT, "accept")


def two_holders(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")


def a_renewed_lock_is_broken(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.wait(LOCK_S - 0.5)
    writer.acknowledge("a", 0, 0, 1, "renew")
    writer.wait(1)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")


def a_holder_is_refused(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "accept", status="failed")
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")


def a_holder_is_refused_after_a_repeated_fetch(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch_without_an_answer("a", "f")
    writer.fetch("a", 0, 0, 1, fetch_id="f")
    writer.wait(LOCK_S / 2)
    writer.acknowledge("a", 0, 0, 1, "accept", status="failed")
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")


def accepted_twice_by_two_holders(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")
    writer.acknowledge("a", 0, 0, 1, "accept")


def delivered_after_it_was_accepted(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 2)


def accepted_by_who_does_not_hold_it(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("b", 0, 0, 1, "accept")


def a_zombie_releases(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("a", 0, 0, 1, "release")
    writer.acknowledge("b", 0, 0, 2, "accept")


def never_delivered(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.produce(13)


def a_group_lags(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.history.lags[GROUP, TOPIC, 0] = 1


def another_group_settled_it(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.history.groups = (GROUP, "h")


def dead_before_its_time(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "release")
    writer.dead(0, 1)


def dead_twice(writer: HistoryWriter) -> None:
    dead_after_the_limit(writer)
    writer.dead(1, 1)


def dead_and_accepted(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.dead(0, LIMIT)


def rejected_without_a_trace(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "reject")
    writer.acknowledge("a", 0, 0, 1, "accept", status="unknown")


def delivered_below_the_reset(writer: HistoryWriter) -> None:
    begun_again_after_a_reset(writer)
    writer.fetch("b", 0, 0, 1)


def a_record_is_trimmed_before_it_is_accepted(writer: HistoryWriter) -> None:
    writer.produce(10, 11, 12)
    writer.fetch("a", 0, 2, 1)
    writer.acknowledge("a", 0, 1, 1, "accept")
    writer.trim(3)
    writer.acknowledge("a", 2, 2, 1, "accept")


def a_finished_record_is_trimmed_while_another_group_holds_it(writer: HistoryWriter) -> None:
    accepted_at_once(writer)
    writer.history.held_until_s = writer.now_s + 10
    writer.trim(1)


def delivered_before_its_delay_is_over(writer: HistoryWriter) -> None:
    """By two tenths of a second: more than clocks may differ."""
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "release", delay_ms=1000)
    writer.wait(0.5)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")


def a_delay_is_forgotten_with_its_leader(writer: HistoryWriter) -> None:
    """A redelivery by the second leader comes in time; by the third it is early, and brings the next count."""
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "release", status="unknown", delay_ms=5000)
    writer.acknowledge("a", 0, 0, 1, "release", delay_ms=5000)
    writer.fetch("b", 0, 0, 3)
    writer.acknowledge("b", 0, 0, 3, "accept")


def delivered_before_the_backoff_of_a_release(writer: HistoryWriter) -> None:
    writer.history.backoff_s = {GROUP: 1.0}
    released_and_delivered_again(writer)


PLANTED: tuple[tuple[str, Story], ...] = (
    ("early", delivered_before_its_delay_is_over),
    ("early", a_delay_is_forgotten_with_its_leader),
    ("early", delivered_before_the_backoff_of_a_release),
    ("trimmed", a_record_is_trimmed_before_it_is_accepted),
    ("trimmed", a_finished_record_is_trimmed_while_another_group_holds_it),
    ("durable", an_answered_record_is_lost),
    ("durable", a_record_that_nobody_produced),
    ("refused", a_refused_record_is_there),
    ("atomic", half_of_a_request),
    ("once", a_record_is_there_twice),
    ("dense", the_log_has_a_hole),
    ("identical", another_value_is_delivered),
    ("whole", a_range_without_its_last_record),
    ("rising", the_same_delivery_twice),
    ("rising", counts_fall),
    ("limit", above_the_limit),
    ("limit", more_deliveries_than_the_limit),
    ("exclusive", two_holders),
    ("exclusive", a_renewed_lock_is_broken),
    ("holder", a_holder_is_refused),
    ("holder", a_holder_is_refused_after_a_repeated_fetch),
    ("stale", accepted_twice_by_two_holders),
    ("settled", delivered_after_it_was_accepted),
    ("owner", accepted_by_who_does_not_hold_it),
    ("stale", a_zombie_releases),
    ("finished", never_delivered),
    ("finished", a_group_lags),
    ("finished", another_group_settled_it),
    ("dead", dead_before_its_time),
    ("dead", dead_twice),
    ("dead", dead_and_accepted),
    ("dead", rejected_without_a_trace),
    ("reset", delivered_below_the_reset),
)


@pytest.mark.parametrize(("rule", "story"), PLANTED, ids=[story.__name__ for _, story in PLANTED])
def test_a_planted_violation_is_noticed(rule: str, story: Story) -> None:
    writer = HistoryWriter()
    story(writer)
    violations = check(writer.end())
    assert rule in {violation.rule for violation in violations}, violations


def test_a_report_lists_every_event_of_its_record() -> None:
    writer = HistoryWriter()
    a_holder_is_refused_after_a_repeated_fetch(writer)
    (violation, *_) = check(writer.end())
    assert isinstance(violation, Violation)
    text = report(writer.history, [violation])
    assert "asked for by a via gateway-0 fetch_id=f: unknown" in text
    assert "delivered to a via gateway-0" in text
    assert "accept by b via gateway-1" in text
