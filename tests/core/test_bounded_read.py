"""A bounded read of a group: every record that is there at its start comes once,
in whatever order the group gives them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.bounded_read import LATE_FETCHES, BoundedRead


def test_a_read_is_over_when_the_last_record_came() -> None:
    read = BoundedRead({("t", 0): (0, 5), ("t", 1): (3, 3)}, 75)
    assert [(each.topic, each.partitions) for each in read.left] == [("t", [0])]
    read.note([Range("t", 0, 0, 6, 1)])
    assert read.left == []
    read.reopen([])
    assert read.left == []


def test_a_partition_is_asked_again_for_what_the_read_has_not_had() -> None:
    read = BoundedRead({("t", 0): (0, 10)}, 75)
    read.note([Range("t", 0, 0, 2, 1), Range("t", 0, 5, 12, 1)])
    read.reopen([Range("t", 0, 3, 3, 1), Range("t", 0, 20, 21, 1)])
    assert [each.partitions for each in read.left] == [[0]]
    read.note([Range("t", 0, 13, 14, 1)])  # new records have their turn
    assert read.left == []
    read.reopen([Range("t", 0, 3, 3, 1)])
    assert read.left != []
    read.note([Range("t", 0, 3, 3, 2), Range("t", 0, 15, 15, 1)])
    read.reopen([])
    assert read.left == []


def test_a_record_that_the_read_has_had_is_left_to_the_next() -> None:
    """A job that releases it would otherwise use up all its deliveries in one run."""
    read = BoundedRead({("t", 0): (0, 10)}, 75)
    read.note([Range("t", 0, 0, 5, 1), Range("t", 0, 6, 9, 1)])
    read.reopen([Range("t", 0, 4, 4, 1)])
    assert read.left == []
    read.note([Range("t", 0, 4, 4, 2)])
    read.reopen([Range("t", 0, 2, 2, 1), Range("t", 0, 7, 8, 1)])
    assert read.left == []


@pytest.mark.parametrize("percent", [1, 3, 24, 25, 75])
def test_a_released_record_comes_whatever_share_of_fetches_it_has(percent: int) -> None:
    """Others keep producing, so every fetch that may begin at new records has some. Each is as small as it can be."""
    read = BoundedRead({("t", 0): (0, 10)}, percent)
    read.note([Range("t", 0, 1, 9, 1)])
    turn, following = 99, 10
    for _ in range(99 // percent + 1):
        read.reopen([Range("t", 0, 0, 0, 1)])
        assert read.left
        assert read.most == 1
        turn += 100 - percent
        if turn < 100:
            read.note([Range("t", 0, 0, 0, 2)])
            break
        turn -= 100
        read.note([Range("t", 0, following, following, 1)])
        following += 1
    else:
        pytest.fail("the released record did not come")
    read.reopen([])
    assert read.given_up == []


def test_a_partition_is_given_up_where_new_records_always_come_first() -> None:
    """With share.redelivery.percent=0. The caller learns which records it did not get."""
    read = BoundedRead({("t", 0): (0, 10), ("t", 1): (0, 3)}, 0)
    read.note([Range("t", 0, 1, 9, 1), Range("t", 1, 0, 2, 1)])
    for late in range(LATE_FETCHES):
        read.reopen([Range("t", 0, 0, 0, 1), Range("t", 1, 0, 2, 1)])
        assert read.left
        assert read.given_up == []
        read.note([Range("t", 0, 10 + late, 10 + late, 1)])
    read.reopen([Range("t", 0, 0, 0, 1), Range("t", 1, 0, 2, 1)])
    assert read.left == []
    assert read.given_up == [Range("t", 0, 0, 0)]
    read.reopen([])
    assert read.given_up == []


def test_a_record_of_the_start_ends_the_row_of_later_ones() -> None:
    read = BoundedRead({("t", 0): (0, 10)}, 0)
    read.note([Range("t", 0, 2, 9, 1)])
    for late in range(LATE_FETCHES - 1):
        read.reopen([Range("t", 0, 0, 1, 1)])
        read.note([Range("t", 0, 10 + late, 10 + late, 1)])
    read.reopen([Range("t", 0, 0, 1, 1)])
    read.note([Range("t", 0, 0, 0, 2), Range("t", 0, 20, 20, 1)])
    read.reopen([Range("t", 0, 1, 1, 1)])
    assert read.left
    read.note([Range("t", 0, 21, 21, 1)])
    read.reopen([Range("t", 0, 1, 1, 1)])
    assert read.left
    assert read.given_up == []


def test_a_fetch_asks_for_no_more_than_is_missing() -> None:
    """A partition that has not given its last record yet gives as much as it can."""
    read = BoundedRead({("t", 0): (0, 10), ("t", 1): (0, 10), ("u", 0): (0, 5)}, 75)
    assert read.most is None
    read.note([Range("t", 0, 4, 9, 1), Range("t", 1, 9, 9, 1)])
    read.reopen([Range("t", 0, 0, 1, 1), Range("t", 0, 3, 3, 2), Range("t", 1, 0, 20, 1)])
    assert read.most is None
    read.note([Range("u", 0, 0, 7, 1)])
    assert read.most == 3 + 9
    read.note([Range("t", 1, 10, 12, 1)])
    assert read.most == 3
    read.note([Range("t", 0, 10, 10, 1)])
    assert (read.left, read.most) == ([], None)


def test_what_is_behind_the_end_or_without_an_end_is_not_asked_for() -> None:
    read = BoundedRead({("t", 0): (5, 10), ("t", 1): (4, 4)}, 75)
    read.note([Range("t", 0, 9, 9, 1)])
    read.reopen([Range("t", 0, 10, 12, 1), Range("t", 1, 4, 4, 1), Range("v", 0, 0, 0, 1)])
    assert read.left == []
    read.reopen([Range("t", 0, 8, 12, 1)])
    assert read.most == 1


@given(st.data())
def test_every_record_of_the_start_comes_once(data: st.DataObject) -> None:
    """A group that gives records to deliver again and new ones in turn, while others are produced and released."""
    size = data.draw(st.integers(1, 12))
    percent = data.draw(st.sampled_from([1, 10, 25, 75, 99]))
    turn = data.draw(st.integers(0, 99))
    delivered = set(data.draw(st.lists(st.integers(0, size - 1))))  # before the read
    new = [offset for offset in range(size) if offset not in delivered]
    read = BoundedRead({("t", 0): (0, size)}, percent)
    had: list[int] = []
    following = size
    for _ in range(4000):
        if not read.left:
            read.reopen(Range("t", 0, offset, offset, 1) for offset in sorted(delivered))
            if not read.left:
                break
        if data.draw(st.booleans()):
            new.append(following)
            following += 1
        begin = 0
        if new and delivered:
            turn += 100 - percent
            begin, turn = (new[0], turn - 100) if turn >= 100 else (0, turn)
        found = [offset for offset in sorted({*new, *delivered}) if offset >= begin][: data.draw(st.integers(1, 4))]
        if not found:
            break
        new = [offset for offset in new if offset not in found]
        delivered -= set(found)
        had += found
        read.note(Range("t", 0, offset, offset, 1) for offset in found)
        delivered |= {offset for offset in found if had.count(offset) < 3 and data.draw(st.booleans())}  # released
    else:
        raise AssertionError("the read does not end")
    assert set(range(size)) <= set(had)
