"""Metrics by group and topic: which pairs have series, and where the others are counted."""

from collections import Counter

from sharequeue_gateway.leader.reports.activity import SHOWN_MS, Totals
from sharequeue_gateway.leader.reports.queue_series import QueueSeries

from sharequeue.protocol.configs import ShareGroupConfig

NOW_MS = 10_000_000


def totals(delivered: int, used_at_ms: int = NOW_MS, **dead_letters: int) -> Totals:
    return Totals(used_at_ms, sums=Counter(delivered=delivered), dead_letters=Counter(dead_letters))


def lines(counted: dict[tuple[str, str], Totals], most_pairs: int = 2000, **members: int) -> list[str]:
    names = {"t1": "orders", "t2": "mails"}
    configs = {group_id: ShareGroupConfig(paused=group_id == "paused") for group_id in members}
    seen = {group_id: range(count) for group_id, count in members.items()}
    series = QueueSeries(counted, names.get, lambda: seen, configs, lambda: NOW_MS, most_pairs=most_pairs).series()
    return [line for line in "".join(series).splitlines() if not line.startswith("#")]


def test_a_pair_has_a_series_for_each_event_and_cause() -> None:
    counted = {("g", "t1"): totals(7, rejected=2), ("", "t1"): totals(0)}
    counted["", "t1"].sums["produced"] = 9
    found = lines(counted, g=3, paused=1)
    assert 'sharequeue_topic_records_produced_total{topic="orders"} 9.0' in found
    assert [line for line in found if "_paused" in line] == ['sharequeue_group_paused{group="paused"} 1.0']
    assert 'sharequeue_group_records_total{event="delivered",group="g",topic="orders"} 7.0' in found
    assert 'sharequeue_group_records_total{event="accepted",group="g",topic="orders"} 0.0' in found
    assert not any("expired" in line for line in found), "most pairs never have one"
    assert 'sharequeue_group_dead_letters_total{cause="rejected",group="g",topic="orders"} 2.0' in found
    assert 'sharequeue_group_fetching_members{group="g"} 3.0' in found


def test_deleted_topics_and_pairs_unused_for_ten_minutes_have_no_series() -> None:
    counted = {("g", "deleted"): totals(1), ("g", "t1"): totals(1, NOW_MS - SHOWN_MS - 1)}
    assert lines(counted) == ["sharequeue_metric_pairs_dropped 0.0"]


def test_pairs_beyond_the_bound_are_added_up() -> None:
    counted = {(f"g{number}", "t2"): totals(number, rejected=1) for number in range(1, 6)}
    found = lines(counted, most_pairs=2)
    delivered = [line for line in found if 'event="delivered"' in line]
    assert delivered == [
        'sharequeue_group_records_total{event="delivered",group="g5",topic="mails"} 5.0',
        'sharequeue_group_records_total{event="delivered",group="g4",topic="mails"} 4.0',
        'sharequeue_group_records_total{event="delivered",group="other",topic="other"} 6.0',
    ]
    assert 'sharequeue_group_dead_letters_total{cause="rejected",group="other",topic="other"} 3.0' in found
    assert "sharequeue_metric_pairs_dropped 3.0" in found
