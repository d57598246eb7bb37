"""How much of a pool one caller may have, beside others."""

import random

import pytest

from sharequeue_http.ceiling import WANTED_S, Ceiling
from sharequeue_http.forms.errors import Throttled


class Pool:
    """A pool of 10 with its own bound, as the gateway has them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.used: list[str] = []
        self.ceiling = Ceiling(10, 50, "waiting fetches (max_waiting_fetches)", lambda: self.now_s)

    def ask(self, principal: str) -> str:
        try:
            self.ceiling.check(principal, len(self.used))
        except Throttled as refused:
            return "full" if "this gateway takes at most" in refused.detail else refused.detail
        self.used.append(principal)
        self.ceiling.take(principal)
        return ""

    def end(self, principal: str) -> None:
        self.used.remove(principal)
        self.ceiling.give(principal)


def test_a_caller_alone_may_have_all() -> None:
    pool = Pool()
    assert [pool.ask("User:a") for _ in range(11)] == [""] * 10 + ["full"]


def test_beside_another_caller_one_has_half_and_the_refusal_names_it() -> None:
    pool = Pool()
    assert pool.ask("User:b") == ""
    assert [pool.ask("User:a") for _ in range(5)] == [""] * 5
    refused = pool.ask("User:a")
    assert all(word in refused for word in ("User:a", "5 waiting fetches", "max_waiting_fetches", "principal_percent"))
    assert pool.ask("User:b") == ""
    pool.end("User:b")
    pool.end("User:b")
    assert pool.ask("User:a") == ""


def test_a_caller_that_found_the_pool_full_gets_its_part() -> None:
    pool = Pool()
    assert [pool.ask("User:a") for _ in range(10)] == [""] * 10
    assert pool.ask("User:b") == "full"
    pool.end("User:a")
    assert "User:a" in pool.ask("User:a")
    assert pool.ask("User:b") == ""


def test_a_caller_that_went_away_keeps_nothing_from_others() -> None:
    pool = Pool()
    assert [pool.ask("User:a") for _ in range(10)] == [""] * 10
    assert pool.ask("User:b") == "full"
    pool.end("User:a")
    pool.now_s = WANTED_S
    assert pool.ask("User:a") == ""


def test_callers_without_a_name_have_no_ceiling() -> None:
    pool = Pool()
    assert [pool.ask("") for _ in range(11)] == [""] * 10 + ["full"]
    assert pool.ask("User:a") == "full"


def test_what_ends_leaves_nothing_behind(seed: int) -> None:
    chance, pool = random.Random(seed), Pool()
    for _ in range(2000):
        if pool.used and chance.random() < 0.5:
            pool.end(chance.choice(pool.used))
        else:
            pool.ask(chance.choice(("User:a", "User:b", "User:c", "")))
        named = [each for each in pool.used if each]
        assert pool.ceiling._all == len(named)
        assert pool.ceiling._had == {each: named.count(each) for each in set(named)}


def test_what_had_nothing_gives_nothing_back() -> None:
    """A request that was refused before its body was read ends so. It once raised, and its client lost the answer."""
    ceiling = Ceiling(10, 50, "fetches", lambda: 0.0)
    ceiling.take("User:a", 0)
    ceiling.give("User:a", 0)
    ceiling.take("User:a", 2)
    ceiling.give("User:a", 2)
    ceiling.check("User:a", 0, size=10)


def test_uses_that_do_not_fill_the_pool_yet_count_for_the_ceiling() -> None:
    """A fetch that reads is not one that waits, and it will be."""
    ceiling = Ceiling(10, 50, "fetches", lambda: 0.0)
    ceiling.take("User:a", 5)
    ceiling.take("User:b")
    with pytest.raises(Throttled, match="User:a has 5 fetches"):
        ceiling.check("User:a", 0)
