"""Ranges are joined, written into an offset and read back, and shared among tasks: no offset lost, none twice."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.ranges import Range, by_topic, decode, divided, encode, joined, split


@st.composite
def disjoint(draw: st.DrawFn) -> list[Range]:
    """Ranges of a few partitions, disjoint and in any order."""
    found = []
    for topic, partition in draw(st.sets(st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 2)))):
        offset = 0
        for gap, size, count in draw(
            st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50), st.integers(1, 2)), max_size=6)
        ):
            found.append(Range(topic, partition, offset + gap, offset + gap + size - 1, count))
            offset += gap + size
    return draw(st.permutations(found))


def offsets(ranges: list[Range]) -> dict[tuple[str, int, int], int]:
    found: dict[tuple[str, int, int], int] = {}
    for topic, partition, first, last, count, _ in ranges:
        for offset in range(first, last + 1):
            assert (topic, partition, offset) not in found
            found[topic, partition, offset] = count
    return found


@given(disjoint())
def test_joining_keeps_every_offset_and_its_count(ranges: list[Range]) -> None:
    together = joined(ranges)
    assert offsets(together) == offsets(ranges)
    for one, other in itertools.pairwise(together):
        assert one[:2] != other[:2] or one.last_offset + 1 < other.first_offset or one[4] != other[4]


@given(disjoint(), disjoint(), disjoint())
def test_ranges_are_divided_where_others_cover_them(
    ranges: list[Range], others: list[Range], more: list[Range]
) -> None:
    """Others may overlap."""
    inside, outside = divided(ranges, [*others, *more])
    counts, covered = offsets(ranges), offsets(others).keys() | offsets(more).keys()
    assert offsets(inside) == {place: count for place, count in counts.items() if place in covered}
    assert offsets(outside) == {place: count for place, count in counts.items() if place not in covered}
    assert [*inside] == sorted(inside)


@given(disjoint())
def test_an_offset_holds_ranges(ranges: list[Range]) -> None:
    assert sorted(decode(json.loads(json.dumps(encode(ranges))))) == sorted(ranges)


def test_ranges_of_a_topic_that_was_made_again_stay_apart() -> None:
    """Its name and offsets begin again, and its id is another."""
    both = [Range("a", 0, 0, 4, 1, "old"), Range("a", 0, 5, 9, 1, "new")]
    assert joined(both) == decode(encode(both)) == both
    assert divided(both, [Range("a", 0, 3, 6)])[0] == [Range("a", 0, 3, 4, 1, "old"), Range("a", 0, 5, 6, 1, "new")]


@given(disjoint(), st.integers(1, 12))
def test_tasks_share_ranges_evenly(ranges: list[Range], parts: int) -> None:
    shares = split(ranges, parts)
    assert offsets([piece for share in shares for piece in share]) == offsets(ranges)
    sizes = [sum(piece.size for piece in share) for share in shares]
    assert len(sizes) == min(parts, sum(entry.size for entry in ranges))
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_ranges_in_an_offset_are_compact_text() -> None:
    places = [(0, 17, 2016, 1), (0, 3000, 3001, 2), (4, 5, 5, 1)]
    ranges = [Range("orders", *place, topic_id="id") for place in places]
    assert encode(ranges) == {"orders/id": {"0": "17-2016:1,3000-3001:2", "4": "5-5:1"}}


def test_an_empty_range_belongs_to_no_task() -> None:
    """A partition of which nothing is read has one."""
    assert split([Range("t", 0, 0, 1), Range("t", 1, 5, 4), Range("t", 2, 7, 7)], 8) == [
        [Range("t", 0, 0, 0)],
        [Range("t", 0, 1, 1)],
        [Range("t", 2, 7, 7)],
    ]
    assert split([Range("t", 1, 5, 4)], 8) == []


def test_numbers_of_partitions_are_compact_text() -> None:
    assert by_topic({("b", 0): 3, ("a", 10): 2, ("a", 9): 1}) == {"a": {"9": 1, "10": 2}, "b": {"0": 3}}


def test_partitions_stay_apart() -> None:
    """Even if one begins at the offset behind another's last."""
    ranges = [Range("a", 0, 0, 4, 1), Range("a", 1, 5, 9, 1), Range("b", 1, 10, 14, 1)]
    assert joined(ranges) == ranges
