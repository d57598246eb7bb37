"""Pauses between tries: `sharequeue/repeats.py`."""

import asyncio

import pytest

from sharequeue.repeats import Rule, Tries


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
