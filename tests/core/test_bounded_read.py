"""A bounded read of a group: every record that is there at its start comes once, in whatever order the group gives them."""

from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.bounded_read import LATE_FETCHES, BoundedRead, disjoint


def test_a_read_is_over_when_the_last_record_came() -> None:
    read = BoundedRead({("t", 0): (0, 5), ("t", 1): (3, 3)})
    assert [(each.topic, each.partitions) for each in read.left] == [("t", [0])]
    read.note([Range("t", 0, 0, 6, 1)])
    assert read.left == []
    read.reopen([])
    assert read.left == []


def test_a_partition_is_asked_again_for_what_the_read_has_not_had() -> None:
    read = BoundedRead({("t", 0): (0, 10)})
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
    read = BoundedRead({("t", 0): (0, 10)})
    read.note([Range("t", 0, 0, 9, 1)])
    read.reopen([Range("t", 0, 4, 4, 1)])
    assert read.left == []


def test_a_partition_that_gives_only_later_records_is_given_up() -> None:
    """With share.redelivery.percent=0 new records come first, as long as there are any."""
    read = BoundedRead({("t", 0): (0, 10)})
    read.note([Range("t", 0, 1, 9, 1)])
    fetches = 0
    while True:
        read.reopen([Range("t", 0, 0, 0, 1)])
        if not read.left:
            break
        read.note([Range("t", 0, 10 + fetches, 10 + fetches, 1)])
        fetches += 1
    assert fetches <= LATE_FETCHES


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 5)), max_size=12))
def test_disjoint_keeps_the_offsets(cuts: list[tuple[int, int, int]]) -> None:
    ranges = [Range("t", place, first, first + more) for place, first, more in cuts]

    def offsets(given: list[Range]) -> list[tuple[int, int]]:
        return [(each.partition, offset) for each in given for offset in range(each.first_offset, each.last_offset + 1)]

    found = disjoint(ranges)
    assert offsets(found) == sorted(set(offsets(ranges)))


@given(st.data())
def test_every_record_of_the_start_comes_once(data: st.DataObject) -> None:
    """A group that gives records to deliver again and new ones in turn, while others are produced and released."""
    size = data.draw(st.integers(1, 12))
    delivered = set(data.draw(st.lists(st.integers(0, size - 1))))  # before the read
    new = [offset for offset in range(size) if offset not in delivered]
    read = BoundedRead({("t", 0): (0, size)})
    had: list[int] = []
    following = size
    for turn in range(400):
        if not read.left:
            read.reopen(Range("t", 0, offset, offset, 1) for offset in sorted(delivered))
            if not read.left:
                break
        if data.draw(st.booleans()):
            new.append(following)
            following += 1
        first_new = turn % LATE_FETCHES != 0 and data.draw(st.booleans())
        begin = new[0] if first_new and new else 0
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
