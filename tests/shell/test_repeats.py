"""Pauses between tries: `sharequeue/repeats.py`."""

import asyncio

import pytest

from sharequeue.repeats import Every, Rule, Tries, heard


@pytest.mark.parametrize(
    ("rule", "pauses"),
    [(Rule("", 0.1), [0.1, 0.1, 0.1]), (Rule("", 0.125, 0.3), [0.125, 0.25, 0.3, 0.3])],
    ids=["equal", "doubled"],
)
def test_pauses_follow_the_rule(rule: Rule, pauses: list[float]) -> None:
    pause_s, found = 0.0, []
    for _ in pauses:
        pause_s = rule.after(pause_s)
        found.append(pause_s)
    assert found == pauses


def test_a_pause_beyond_the_patience_is_not_made() -> None:
    """Neither a pause of the rule, nor one that an answer asks for."""
    assert not asyncio.run(Tries(Rule("", 3600.0, patience_s=60.0)).pause())
    assert not asyncio.run(Tries(Rule("", 0.001), 60.0).pause(3600.0))
    assert asyncio.run(Tries(Rule("", 0.001), 60.0).pause())


def test_each_turn_but_an_early_first_one_has_its_pause_before_it() -> None:
    done: list[str] = []

    def period_s() -> float:
        done.append("pause")
        return 0.001

    async def turns() -> None:
        async for _ in Every(period_s, at_once=True):
            done.append("turn")
            if len(done) == 5:
                return

    asyncio.run(turns())
    assert done == ["turn", "pause", "turn", "pause", "turn"]


def test_an_event_ends_a_wait_and_so_does_its_time() -> None:
    async def waits() -> None:
        event = asyncio.Event()
        await heard(event, 0.001)
        assert not event.is_set()
        asyncio.get_running_loop().call_soon(event.set)
        await heard(event, None)
        assert event.is_set()

    asyncio.run(asyncio.wait_for(waits(), 60))
