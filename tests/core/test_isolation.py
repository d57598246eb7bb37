"""Which records a query reads together after an earlier one failed: all come again,
and the last delivery comes alone."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.ranges import Range, joined
from sharequeue_pipeline.source.isolation import Isolation, piece_size

from tests.core.test_ranges import disjoint, offsets


@pytest.mark.parametrize(
    ("records", "delivery", "limit", "size"),
    [
        (8000, 2, 5, 846),
        (846, 3, 5, 90),
        (90, 4, 5, 10),
        (10, 5, 5, 1),
        (100, 2, 2, 1),
        (100, 7, 5, 1),
        (1, 2, 5, 1),
        (8000, 2, 10, 2948),
    ],
)
def test_a_piece_shrinks_to_one_record_at_the_last_delivery(records: int, delivery: int, limit: int, size: int) -> None:
    assert piece_size(records, delivery, limit) == size


@given(disjoint(), st.integers(2, 8))
def test_every_delivered_record_comes_again_once(delivered: list[Range], limit: int) -> None:
    isolation = Isolation(delivered, limit)
    counts = offsets(delivered)
    seen: Counter[tuple[str, int, int]] = Counter()
    while (piece := isolation.next()) is not None:
        first = min(
            offset
            for topic, partition, offset in counts
            if (topic, partition) == piece[:2] and (topic, partition, offset) not in seen
        )
        taken = Range(piece.topic, piece.partition, first, first + piece.max_records - 1, 9)
        of_piece = {counts[place] for place in offsets([taken])}
        assert len(of_piece) == 1
        if of_piece == {limit - 1}:
            assert piece.max_records == 1
        seen.update(offsets([taken]).keys())
        isolation.note([taken])
    assert isolation.left == 0
    assert dict(seen) == dict.fromkeys(counts, 1)


@given(disjoint(), disjoint())
def test_records_that_come_are_no_longer_left(delivered: list[Range], found: list[Range]) -> None:
    isolation = Isolation(joined(delivered), 5)
    isolation.note(found)
    assert isolation.left == len(offsets(delivered).keys() - offsets(found).keys())


def test_a_piece_keeps_its_size_while_its_level_is_read() -> None:
    isolation = Isolation([Range("t", 0, 0, 7999, 1)], 5)
    pieces = 0
    while (piece := isolation.next()) is not None:
        isolation.note([Range("t", 0, 8000 - isolation.left, 8000 - isolation.left + piece.max_records - 1, 2)])
        pieces += 1
    assert pieces == 10


def test_a_partition_that_gives_nothing_is_asked_again_for_the_next_batch() -> None:
    isolation = Isolation([Range("t", 0, 0, 9, 1), Range("t", 1, 0, 4, 2)], 5)
    first = isolation.next()
    assert first == ("t", 0, 6)
    isolation.pass_over(first)
    second = isolation.next()
    assert second == ("t", 1, 3)
    isolation.pass_over(second)
    assert isolation.next() is None
    assert isolation.left == 15
    assert isolation.look()
    assert isolation.next() == first
    assert not isolation.look()


def test_records_that_others_finished_are_no_longer_left() -> None:
    isolation = Isolation([Range("t", 0, 0, 9, 1)], 5)
    isolation.refresh([Range("t", 0, 4, 6, 2), Range("t", 0, 20, 29, 1), Range("t", 1, 0, 9, 1)])
    assert isolation.left == 3
    assert isolation.next() == ("t", 0, 3)


def test_records_that_were_never_delivered_are_not_isolated() -> None:
    assert Isolation([Range("t", 0, 0, 9, 0)], 5).next() is None


def test_a_level_is_as_large_as_all_its_ranges() -> None:
    """Whether its records lie side by side or not, the level takes the same number of pieces."""
    spread = Isolation([Range("t", partition, 0, 99, 1) for partition in range(80)], 5)
    assert spread.next() == ("t", 0, 100)
    spread = Isolation([Range("t", 0, 0, 499, 1), Range("t", 1, 0, 7499, 1)], 5)
    assert spread.next() == ("t", 0, 500)
    spread.note([Range("t", 0, 0, 499, 2)])
    assert spread.next() == ("t", 1, 846)


def test_a_delivery_to_another_member_makes_the_next_piece_smaller() -> None:
    isolation = Isolation([Range("t", 0, 0, 9, 1)], 5)
    assert isolation.next() == ("t", 0, 6)
    isolation.refresh([Range("t", 0, 0, 9, 4)])
    assert isolation.next() == ("t", 0, 1)


def test_a_fetch_that_names_no_piece_leaves_out_their_partitions() -> None:
    isolation = Isolation([Range("t", 0, 0, 9, 1), Range("t", 1, 0, 4, 2), Range("t", 2, 0, 4, 0)], 5)
    assert isolation.partitions == {("t", 0), ("t", 1)}
    first = isolation.next()
    assert first is not None
    isolation.pass_over(first)
    assert isolation.partitions == {("t", 0), ("t", 1)}
    isolation.note([Range("t", 0, 0, 9, 2)])
    assert isolation.partitions == {("t", 1)}


def test_a_piece_takes_neighbours_of_its_partition_alone() -> None:
    assert Isolation([Range("t", 0, 0, 4, 1), Range("t", 0, 5, 99, 1)], 5).next() == ("t", 0, 32)
    assert Isolation([Range("t", 0, 0, 4, 1), Range("t", 1, 5, 99, 1)], 5).next() == ("t", 0, 5)
    assert Isolation([Range("t", 0, 0, 4, 1), Range("t", 0, 6, 100, 1)], 5).next() == ("t", 0, 5)
    assert Isolation([Range("t", 0, 0, 4, 1), Range("t", 0, 5, 99, 2)], 5).next() == ("t", 0, 4)
