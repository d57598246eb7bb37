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
    Story,
    Told,
    accepted_at_once,
    begun_anew,
    dead_after_the_limit,
)


@pytest.mark.parametrize("story", SOUND, ids=lambda story: story.__name__)
def test_a_sound_history_passes(story: Story) -> None:
    told = Told()
    story(told)
    violations = check(told.end())
    assert not violations, report(told.history, violations)


# Planted violations: the rule that must notice each.


def an_answered_record_is_lost(told: Told) -> None:
    accepted_at_once(told)
    told.produce(13, kept=False)


def an_answered_record_lies_elsewhere(told: Told) -> None:
    accepted_at_once(told)
    log = told.history.log[TOPIC, 0]
    log[0], log[1] = log[1], log[0]


def a_record_that_nobody_produced(told: Told) -> None:
    accepted_at_once(told)
    told.history.log[TOPIC, 0][3] = 99
    told.fetch("a", 3, 3, 1)
    told.acknowledge("a", 3, 3, 1, "accept")


def a_refused_record_is_there(told: Told) -> None:
    told.produce(10, outcome=Outcome.REFUSED)
    told.fetch("a", 0, 0, 1)
    told.acknowledge("a", 0, 0, 1, "accept")


def half_of_a_request(told: Told) -> None:
    told.produce(10, 11, outcome=Outcome.UNKNOWN)
    del told.history.log[TOPIC, 0][1]
    told.fetch("a", 0, 0, 1)
    told.acknowledge("a", 0, 0, 1, "accept")


def a_record_is_there_twice(told: Told) -> None:
    accepted_at_once(told)
    told.history.log[TOPIC, 0][3] = 12
    told.fetch("a", 3, 3, 1)
    told.acknowledge("a", 3, 3, 1, "accept")


def the_log_has_a_hole(told: Told) -> None:
    accepted_at_once(told)
    told.history.log[TOPIC, 0][5] = told.history.log[TOPIC, 0].pop(2)


def another_value_is_delivered(told: Told) -> None:
    accepted_at_once(told)
    fetch = told.history.fetched[0]
    changed = fetch.ranges[0]._replace(values=((0, 10), (1, 12), (2, 11)))
    told.history.fetched[0] = fetch._replace(ranges=(changed,))


def a_range_without_its_last_record(told: Told) -> None:
    accepted_at_once(told)
    fetch = told.history.fetched[0]
    told.history.fetched[0] = fetch._replace(ranges=(fetch.ranges[0]._replace(values=((0, 10), (1, 11))),))


def the_same_delivery_twice(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.wait(LOCK_S)
    told.fetch("b", 0, 0, 1)
    told.acknowledge("b", 0, 0, 1, "accept")


def the_same_delivery_under_another_fetch_id(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1, fetch_id="f")
    told.fetch("a", 0, 0, 1, fetch_id="g")
    told.acknowledge("a", 0, 0, 1, "accept")


def counts_fall(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 2)
    told.wait(LOCK_S)
    told.fetch("b", 0, 0, 1)
    told.acknowledge("b", 0, 0, 1, "accept")


def above_the_limit(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, LIMIT + 1)
    told.acknowledge("a", 0, 0, LIMIT + 1, "accept")


def more_deliveries_than_the_limit(told: Told) -> None:
    """A delivery count may repeat around a window without Redis, but once for each window."""
    told.produce(10)
    for number in range(LIMIT + 2):
        told.fetch(f"m{number}", 0, 0, 1 + number % LIMIT)
        told.wait(LOCK_S)
    told.history.without_redis.append(Span(0, told.now_s))
    told.fetch("a", 0, 0, LIMIT)
    told.acknowledge("a", 0, 0, LIMIT, "accept")


def two_holders(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.fetch("b", 0, 0, 2)
    told.acknowledge("b", 0, 0, 2, "accept")


def a_renewed_lock_is_broken(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.wait(LOCK_S - 0.5)
    told.acknowledge("a", 0, 0, 1, "renew")
    told.wait(1)
    told.fetch("b", 0, 0, 2)
    told.acknowledge("b", 0, 0, 2, "accept")


def a_refused_release_is_no_release(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.acknowledge("b", 0, 0, 1, "release", status="failed")
    told.fetch("b", 0, 0, 2)
    told.acknowledge("b", 0, 0, 2, "accept")


def a_holder_is_refused(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.acknowledge("a", 0, 0, 1, "accept", status="failed")
    told.wait(LOCK_S)
    told.fetch("b", 0, 0, 2)
    told.acknowledge("b", 0, 0, 2, "accept")


def a_holder_is_refused_after_a_repeated_fetch(told: Told) -> None:
    told.produce(10)
    told.fetch_without_an_answer("a", "f")
    told.fetch("a", 0, 0, 1, fetch_id="f")
    told.wait(LOCK_S / 2)
    told.acknowledge("a", 0, 0, 1, "accept", status="failed")
    told.wait(LOCK_S)
    told.fetch("b", 0, 0, 2)
    told.acknowledge("b", 0, 0, 2, "accept")


def a_holder_is_told_that_it_is_finished(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.acknowledge("a", 0, 0, 1, "renew", status="ignored")


def accepted_twice_by_two_holders(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.wait(LOCK_S)
    told.fetch("b", 0, 0, 2)
    told.acknowledge("b", 0, 0, 2, "accept")
    told.acknowledge("a", 0, 0, 1, "accept")


def accepted_and_rejected(told: Told) -> None:
    accepted_at_once(told)
    told.acknowledge("a", 0, 0, 1, "reject")
    told.dead(0, 1)


def delivered_after_it_was_accepted(told: Told) -> None:
    accepted_at_once(told)
    told.wait(LOCK_S)
    told.fetch("b", 0, 0, 2)


def accepted_by_who_does_not_hold_it(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.acknowledge("b", 0, 0, 1, "accept")


def renewed_by_who_does_not_hold_it(told: Told) -> None:
    told.produce(10)
    told.acknowledge("a", 0, 0, 1, "renew")
    told.wait(LOCK_S)
    told.fetch("b", 0, 0, 1)
    told.acknowledge("b", 0, 0, 1, "accept")


def a_zombie_releases(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.wait(LOCK_S)
    told.fetch("b", 0, 0, 2)
    told.acknowledge("a", 0, 0, 1, "release")
    told.acknowledge("b", 0, 0, 2, "accept")


def never_delivered(told: Told) -> None:
    accepted_at_once(told)
    told.produce(13)


def a_group_lags(told: Told) -> None:
    accepted_at_once(told)
    told.history.lags[GROUP, TOPIC, 0] = 1


def another_group_settled_it(told: Told) -> None:
    accepted_at_once(told)
    told.history.groups = (GROUP, "h")


def its_accept_was_refused(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.wait(LOCK_S)
    told.acknowledge("a", 0, 0, 1, "accept", status="failed")


def dead_before_its_time(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.acknowledge("a", 0, 0, 1, "release")
    told.dead(0, 1)


def dead_twice(told: Told) -> None:
    dead_after_the_limit(told)
    told.dead(1, 1)


def dead_and_accepted(told: Told) -> None:
    accepted_at_once(told)
    told.dead(0, LIMIT)


def rejected_without_a_trace(told: Told) -> None:
    told.produce(10)
    told.fetch("a", 0, 0, 1)
    told.acknowledge("a", 0, 0, 1, "reject")
    told.acknowledge("a", 0, 0, 1, "accept", status="unknown")


def delivered_below_the_reset(told: Told) -> None:
    begun_anew(told)
    told.fetch("b", 0, 0, 1)


def not_delivered_after_the_reset(told: Told) -> None:
    told.produce(10, 11)
    told.fetch("a", 0, 1, 1)
    told.acknowledge("a", 0, 1, 1, "accept")
    told.reset(0)
    told.fetch("a", 1, 1, 1)
    told.acknowledge("a", 1, 1, 1, "accept")


PLANTED: tuple[tuple[str, Story], ...] = (
    ("durable", an_answered_record_is_lost),
    ("durable", an_answered_record_lies_elsewhere),
    ("durable", a_record_that_nobody_produced),
    ("refused", a_refused_record_is_there),
    ("atomic", half_of_a_request),
    ("once", a_record_is_there_twice),
    ("dense", the_log_has_a_hole),
    ("identical", another_value_is_delivered),
    ("whole", a_range_without_its_last_record),
    ("rising", the_same_delivery_twice),
    ("rising", the_same_delivery_under_another_fetch_id),
    ("rising", counts_fall),
    ("limit", above_the_limit),
    ("limit", more_deliveries_than_the_limit),
    ("exclusive", two_holders),
    ("exclusive", a_renewed_lock_is_broken),
    ("exclusive", a_refused_release_is_no_release),
    ("holder", a_holder_is_refused),
    ("holder", a_holder_is_refused_after_a_repeated_fetch),
    ("holder", a_holder_is_told_that_it_is_finished),
    ("stale", accepted_twice_by_two_holders),
    ("settled", accepted_and_rejected),
    ("settled", delivered_after_it_was_accepted),
    ("owner", accepted_by_who_does_not_hold_it),
    ("owner", renewed_by_who_does_not_hold_it),
    ("stale", a_zombie_releases),
    ("finished", never_delivered),
    ("finished", a_group_lags),
    ("finished", another_group_settled_it),
    ("finished", its_accept_was_refused),
    ("dead", dead_before_its_time),
    ("dead", dead_twice),
    ("dead", dead_and_accepted),
    ("dead", rejected_without_a_trace),
    ("reset", delivered_below_the_reset),
    ("reset", not_delivered_after_the_reset),
)


@pytest.mark.parametrize(("rule", "story"), PLANTED, ids=[story.__name__ for _, story in PLANTED])
def test_a_planted_violation_is_noticed(rule: str, story: Story) -> None:
    told = Told()
    story(told)
    violations = check(told.end())
    assert rule in {violation.rule for violation in violations}, violations


def test_a_report_lists_every_event_of_its_record() -> None:
    told = Told()
    a_holder_is_refused_after_a_repeated_fetch(told)
    (violation, *_) = check(told.end())
    assert isinstance(violation, Violation)
    text = report(told.history, [violation])
    assert "asked for by a via gateway-0 fetch_id=f: unknown" in text
    assert "delivered to a via gateway-0" in text
    assert "accept by b via gateway-1" in text
