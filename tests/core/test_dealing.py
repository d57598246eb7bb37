"""How many records a consumer asks for, by the time that those before took."""

import pytest

from sharequeue.client.consuming.dealing import Dealing


@pytest.mark.parametrize(
    ("seconds", "asked"),
    [
        (1.0, [10, 1, 1, 1]),
        (0.1, [10, 2, 2, 2]),
        (0.0, [10, 40, 160, 500, 500]),
        (0.001, [10, 40, 160, 200, 200]),
    ],
)
def test_a_consumer_asks_for_what_it_handles_in_a_fifth_of_a_second(seconds: float, asked: list[int]) -> None:
    dealing, now = Dealing(), 0.0
    found = []
    for _ in asked:
        found.append(dealing.asked(now, 10))
        dealing.handed_out(found[-1], now)
        now += found[-1] * seconds
    assert found == pytest.approx(asked, abs=1)


def test_a_poll_that_found_nothing_says_nothing_of_the_time() -> None:
    dealing = Dealing()
    assert dealing.asked(0, 1) == 1
    dealing.handed_out(0, 0)
    assert dealing.asked(60, 10) == 1
