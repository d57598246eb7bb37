"""The window of a stream: nothing lost, nothing twice within a delivery, never more held than its size."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharequeue_gateway.share_partition.stream_window import UNKNOWN, SentRange, StreamWindow

from sharequeue.protocol.types import OffsetsAt
from tests.examples import examples

PLACES = [("a", 0), ("a", 1), ("b", 0)]


def sent(first: int, last: int, count: int = 1, place: tuple[str, int] = ("a", 0)) -> SentRange:
    return SentRange(*place, first, last, count)


def opened(*events: SentRange, size: int = 10) -> StreamWindow:
    """A window whose events were all written, one range each."""
    window = StreamWindow(size)
    for part in events:
        window.written(window.acquired([part]))
    return window


# Room


def test_st_031_what_was_acquired_takes_room_until_it_is_settled() -> None:
    window = opened(sent(0, 3), sent(4, 5))
    assert (window.held, window.room, window.position) == (6, 4, 2)
    assert window.learn([sent(2, 3), sent(4, 5)], {("a", 0)}) == 2
    assert (window.held, window.room, window.ranges(1)) == (4, 6, [sent(2, 3)])
    assert window.learn([], {("a", 0)}) == 4
    assert (window.room, window.all_ranges()) == (10, [])


def test_st_032_a_partition_whose_leader_did_not_answer_keeps_its_room() -> None:
    window = opened(sent(0, 3), sent(0, 1, place=("b", 0)))
    assert window.learn([], {("b", 0)}) == 2
    assert window.all_ranges() == [sent(0, 3)]


def test_st_033_a_smaller_window_has_no_room_before_records_are_settled() -> None:
    window = opened(sent(0, 5))
    window.size = 4
    assert window.room == 0


def test_st_034_a_later_delivery_takes_the_place_of_the_earlier_one() -> None:
    window = opened(sent(0, 3), sent(2, 2, 2))
    assert (window.held, window.ranges(1), window.ranges(2)) == (4, [sent(0, 1), sent(3, 3)], [sent(2, 2, 2)])
    assert window.learn([sent(2, 2, 2)], {("a", 0)}) == 3


def test_st_034_another_delivery_of_the_member_is_not_the_streams() -> None:
    window = opened(sent(0, 3))
    assert window.learn([sent(0, 3, 2)], {("a", 0)}) == 4


@pytest.mark.parametrize(
    ("size", "held", "looks"), [(1, 0, False), (1, 1, True), (10, 4, False), (10, 5, True), (2000, 999, False)]
)
def test_st_035_it_learns_when_half_of_the_room_is_used(size: int, held: int, looks: bool) -> None:
    window = opened(*([sent(0, held - 1)] if held else []), size=size)
    assert window.looks() is looks


def test_st_035_a_look_that_freed_nothing_is_not_repeated_at_once() -> None:
    window = opened(sent(0, 4))
    window.learn([sent(0, 4)], {("a", 0)})
    looked = []
    for offset in range(5, 10):
        window.acquired([sent(offset, offset)])
        if window.looks():
            looked.append(offset)
            window.learn([sent(0, offset)], {("a", 0)})
    assert looked == [7, 8, 9]


def test_neighbours_are_one_range_for_a_look() -> None:
    window = opened(sent(4, 5), sent(0, 3), sent(6, 6, 2), sent(8, 9), sent(7, 7, place=("a", 1)))
    assert [part[:4] for part in window.all_ranges()] == [("a", 0, 0, 6), ("a", 0, 8, 9), ("a", 1, 7, 7)]


# Reconnects


def test_st_036_a_reconnect_lacks_what_is_held_behind_its_last_event() -> None:
    window = opened(sent(0, 1), sent(2, 3), sent(4, 5), sent(6, 7))
    window.learn([sent(0, 1), sent(2, 3), sent(7, 7)], {("a", 0)})
    assert window.resume(1) == [2, 4]
    assert window.ranges(4) == [sent(7, 7)]
    assert window.resume(4) == window.resume(99) == []
    assert window.resume(0) == [1, 2, 4]


def test_st_037_a_client_without_its_last_event_lacks_everything() -> None:
    window = opened(sent(0, 1), sent(2, 3), sent(4, 5))
    window.learn([sent(2, 3), sent(4, 5)], {("a", 0)})
    assert window.first_held == 2
    assert window.resume(window.first_held - 1) == [2, 3]
    window.learn([], {("a", 0)})
    assert window.first_held == 4


def test_st_038_what_was_not_written_is_given_back_and_the_rest_released() -> None:
    window = opened(sent(0, 1))
    window.acquired([sent(2, 3)])
    window.acquired([sent(4, 5)])
    window.resume(2)  # the client has the second event, whatever became of its write
    assert list(window.ends()) == [(sent(0, 1), True), (sent(2, 3), True), (sent(4, 5), False)]


# Another gateway


def test_st_039_a_restored_stream_sends_what_is_held_behind_the_last_event() -> None:
    held = [sent(0, 1), sent(4, 7), sent(9, 9, 2)]
    remembered = {3: [OffsetsAt("a", 0, 2, 5)], 4: [OffsetsAt("a", 0, 6, 6), OffsetsAt("b", 0, 0, 9)]}
    window = StreamWindow.restored(20, 2, 0, remembered, held)
    assert (window.position, window.held) == (4, 7)
    assert window.resume(2) == [3, 4]
    assert (window.ranges(3), window.ranges(4)) == ([sent(4, 5)], [sent(6, 6)])
    assert window.ranges(UNKNOWN) == [sent(0, 1), sent(7, 7), sent(9, 9, 2)]
    assert window.resume(window.first_held - 1) == [UNKNOWN, 3, 4]


def test_st_039_the_last_event_of_a_record_counts() -> None:
    remembered = {1: [OffsetsAt("a", 0, 0, 3)], 2: [OffsetsAt("a", 0, 1, 1)]}
    window = StreamWindow.restored(20, 0, 5, remembered, [sent(1, 1, 2)])
    assert (window.resume(0), window.ranges(2), window.position) == ([2], [sent(1, 1, 2)], 5)


# Any history

Record = tuple[str, int, int]


class Leaders:
    """Who holds which record: records by their delivery count, those of the stream's member that are held."""

    def __init__(self) -> None:
        self.ends = Counter[tuple[str, int]]()
        self.counts = Counter[Record]()
        self.held: set[Record] = set()
        self.free: set[Record] = set()

    def acquire(self, place: tuple[str, int], again: bool, records: int) -> list[SentRange]:
        """Acquire new records of a partition, or such as were held before."""
        if again:
            taken = sorted(record for record in self.free if record[:2] == place)[:records]
        else:
            end = self.ends[place]
            taken = [(*place, offset) for offset in range(end, end + records)]
            self.ends[place] = end + records
        self.free -= set(taken)
        self.held |= set(taken)
        self.counts.update(taken)
        return self.ranges(taken)

    def ranges(self, records: Iterable[Record]) -> list[SentRange]:
        """Records as ranges of one delivery count."""
        found: list[SentRange] = []
        for topic, partition, offset in sorted(records):
            count = self.counts[topic, partition, offset]
            last = found[-1] if found else None
            if last is not None and last[:2] == (topic, partition) and last[3:] == (offset - 1, count):
                found[-1] = last._replace(last_offset=offset)
            else:
                found.append(SentRange(topic, partition, offset, offset, count))
        return found


class Client:
    """What the client has seen: records with their delivery counts."""

    def __init__(self) -> None:
        self.position = 0
        self.seen = Counter[tuple[Record, int]]()

    def receive(self, position: int, ranges: Iterable[SentRange]) -> None:
        self.position = position
        for part in ranges:
            for offset in range(part.first_offset, part.last_offset + 1):
                self.seen[(*part.place, offset), part.delivery_count] += 1


ACTIONS = st.one_of(
    st.tuples(st.just("fetch"), st.sampled_from(PLACES), st.booleans(), st.integers(1, 6), st.booleans()),
    st.tuples(st.just("settle"), st.sets(st.integers(0, 30), max_size=6)),
    st.tuples(st.just("end"), st.sets(st.integers(0, 30), max_size=6)),
    st.tuples(st.just("learn"), st.sets(st.sampled_from(PLACES))),
    st.tuples(st.just("resume"), st.integers(0, 4)),
    st.tuples(st.just("move"), st.integers(0, 4)),
)


@settings(max_examples=examples(400))
@given(st.integers(1, 12), st.lists(ACTIONS, max_size=40))
def test_st_040_nothing_is_lost_or_doubled_and_the_window_holds(size: int, actions: list) -> None:
    """Fetches, cuts after any event, reconnects here and elsewhere, settlements, locks that end, leaders away."""
    leaders, client, window = Leaders(), Client(), StreamWindow(size)
    remembered: dict[int, list[OffsetsAt]] = {}
    connected = True

    def stream_again(most: int) -> None:
        """Connect: send again what the client lacks, cut after `most` events."""
        nonlocal connected
        positions = window.resume(client.position)
        for position in positions[:most]:
            client.receive(position, window.ranges(position))
            window.written(position)
        connected = most >= len(positions)

    for action, *arguments in actions:
        match action, arguments:
            case "fetch", [place, again, records, received] if connected and window.room:
                ranges = leaders.acquire(place, again, min(records, window.room))
                if ranges:
                    position = window.acquired(ranges)
                    remembered[position] = [OffsetsAt(*part[:4]) for part in ranges]
                    connected = received
                    if received:
                        window.written(position)
                        client.receive(position, ranges)
            case "settle", [offsets]:
                leaders.held -= {record for record in leaders.held if record[2] in offsets}
            case "end", [offsets]:
                ended = {record for record in leaders.held if record[2] in offsets}
                leaders.held -= ended
                leaders.free |= ended
            case "learn", [places]:
                window.learn(leaders.ranges(leaders.held), places)
            case "resume", [most]:
                window.learn(leaders.ranges(leaders.held), set(PLACES))
                stream_again(most)
            case "move", [most]:
                behind = {position: kept for position, kept in remembered.items() if position > client.position}
                window = StreamWindow.restored(size, client.position, 0, behind, leaders.ranges(leaders.held))
                stream_again(most)
        assert len(leaders.held) <= window.held <= size
        known = {record for part in window.all_ranges() for record in records_of(part)}
        assert leaders.held <= known
        assert client.seen.total() == len(client.seen), "a client got a record twice in one delivery"
    window.learn(leaders.ranges(leaders.held), set(PLACES))
    assert window.held == len(leaders.held)
    stream_again(100)
    assert all(client.seen[record, leaders.counts[record]] == 1 for record in leaders.held), "a held record is lost"


def records_of(part: SentRange) -> set[Record]:
    return {(*part.place, offset) for offset in range(part.first_offset, part.last_offset + 1)}
