"""What an attempt of a task leaves out of its rows. The requests of the attempts are a list, as in the log."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.sink import known_records
from sharequeue_pipeline.sink.known_records import KnownRecords

ROWS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=12)
Requests = list[list[bytes]]


class Attempt:
    """An attempt with its rows. `requests`: those of all attempts, by number."""

    def __init__(self, rows: list[bytes], requests: Requests) -> None:
        self.rows = rows
        self.known = KnownRecords()
        self._requests = requests
        self._number = 0

    def write(self, size: int) -> None:
        """Append the next rows, as soon as all requests below are known."""
        rest, self.rows = self.rows[:size], self.rows[size:]
        while True:
            rest = [rest[place] for place in self.known.leave_out(rest)[0]]
            if not rest:
                return
            self._number += 1
            if self._number > len(self._requests):
                self._requests.append(rest)
                return
            used = self._requests[self._number - 1]
            self.known.learn(used, len(used), before=False)


@given(st.data(), ROWS, st.integers(1, 4), st.integers(2, 3))
def test_attempts_in_any_order_write_each_row_once(
    data: st.DataObject, rows: list[bytes], size: int, of_all: int
) -> None:
    requests: Requests = []
    attempts = [Attempt(data.draw(st.permutations(rows)), requests) for _ in range(of_all)]
    while attempts:
        attempt = data.draw(st.sampled_from(attempts))
        if attempt.rows:
            attempt.write(size)
        else:
            assert attempt.known.left == 0
            attempts.remove(attempt)
    assert Counter(row for request in requests for row in request) == Counter(rows)


def test_each_copy_of_a_row_counts() -> None:
    known = KnownRecords()
    known.learn([b"a", b"a", b"b"], 3, before=False)
    assert known.leave_out([b"a"]) == ([], 0)
    assert known.leave_out([b"a", b"a", b"b", b"b"]) == ([1, 3], 0)
    assert known.empty
    assert known.left == 0


def test_records_from_before_the_write_are_counted_and_taken_first() -> None:
    known = KnownRecords()
    known.learn([b"a"], 1, before=False)
    known.learn([b"a", b"b"], 2, before=True)
    assert known.leave_out([b"a"]) == ([], 1)
    assert known.leave_out([b"a"]) == ([], 0)
    assert not known.empty
    assert known.leave_out([b"a", b"b", b"c"]) == ([0, 2], 1)
    assert known.left == 0


def test_records_that_are_not_among_the_rows_are_left() -> None:
    known = KnownRecords()
    known.learn([b"a", b"b", b"b"], 3, before=False)
    known.learn([b"c"], 1, before=True)
    assert known.leave_out([b"b", b"x"]) == ([1], 0)
    assert known.left == 3
    assert not known.empty


def test_behind_records_that_are_gone_nothing_is_left_out() -> None:
    known = KnownRecords()
    known.learn([b"a"], 1, before=False)
    known.learn([b"b"], 1, before=True)
    assert not known.gone
    known.learn([b"c"], 2, before=False)
    assert known.gone
    known.learn([b"d"], 1, before=False)
    assert known.empty
    assert known.leave_out([b"a", b"b", b"c", b"d"]) == ([0, 1, 2, 3], 0)
    assert known.left == 5


def test_no_more_than_so_many_records_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_records, "MOST", 3)
    known = KnownRecords()
    known.learn([b"a", b"b"], 2, before=False)
    known.learn([b"c"], 1, before=True)
    assert not known.gone
    known.learn([b"d"], 1, before=False)
    assert known.gone
    assert known.leave_out([b"a"]) == ([0], 0)
    assert known.left == 4
