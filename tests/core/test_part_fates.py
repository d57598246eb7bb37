"""When a part of `sharequeue up` that died is started again."""

from sharequeue.stack.stack import Fate


def pauses(fate: Fate, now_s: float, deaths: int) -> tuple[list[float], float]:
    """A part dies so many times, each time a second after its start. Returns: the time from each death to the next
    start, and the time of the last start."""
    found = []
    for _ in range(deaths):
        died_s = now_s = now_s + 1
        assert fate.died(now_s)
        while not fate.starts(now_s):
            assert not fate.died(now_s), "it is said once"
            now_s += 0.5
        found.append(now_s - died_s)
    return found, now_s


def test_a_part_that_dies_again_and_again_waits_longer_each_time() -> None:
    fate = Fate()
    found, now_s = pauses(fate, 1000, 7)
    assert found == [1, 2, 4, 8, 16, 30, 30]
    assert pauses(fate, now_s + 59, 1)[0] == [30], "it has not yet run for long"


def test_a_part_that_has_run_for_a_minute_begins_with_a_second() -> None:
    fate = Fate()
    _, now_s = pauses(fate, 1000, 5)
    assert pauses(fate, now_s + 60, 2)[0] == [1, 2]
