"""Dead letters one by one: listed with what became of them, redriven and dropped by what names them."""

import time
from itertools import chain
from typing import Any

from tests.http.calls import Gateway, Json, good, problem, wait_until
from tests.http.test_redrive import dead, records, redrive


def path(group: str, call: str = "") -> str:
    return f"/v1/share-groups/{group}/dead-letters{call}"


def listed(gateway: Gateway, group: str, **query: Any) -> Json:
    return dict(good(gateway.http.get(path(group), params=query)))


def letters(gateway: Gateway, group: str, **query: Any) -> list[Json]:
    return list(listed(gateway, group, **query)["dead_letters"])


def drop(gateway: Gateway, group: str, **fields: Any) -> Json:
    return dict(good(gateway.http.post(path(group, "/drop"), json=fields)))


def test_dl_101_three_of_twenty_go_back_and_one_is_dropped(gateway: Gateway, name: str) -> None:
    """All have the same reason: their offsets tell them apart."""
    gateway.produce(name, *range(20))
    dead(gateway, name, name, 20, reason="poison")
    for offset in (3, 5, 19):
        chosen = {"topic": name, "offset": offset}
        assert redrive(gateway, name, dry_run=True, **chosen) == {"matched": 1, "redriven": 0}
        assert redrive(gateway, name, **chosen) == {"matched": 1, "redriven": 1}
        assert redrive(gateway, name, **chosen) == {"matched": 0, "redriven": 0}
    assert drop(gateway, name, topic=name, offset=5) == {"matched": 0, "dropped": 0}
    assert drop(gateway, name, topic=name, offset=7) == {"matched": 1, "dropped": 1}
    assert sorted(value for _, value, _, _ in records(gateway, name, name)) == [3, 5, 19]
    left = [letter["offset"] for letter in letters(gateway, name)]
    assert left == [offset for offset in range(20) if offset not in (3, 5, 7, 19)]
    closed = {letter["offset"]: letter for letter in letters(gateway, name, closed=True) if letter["state"] != "open"}
    assert {offset: letter["state"] for offset, letter in closed.items()} == {
        3: "redriven",
        5: "redriven",
        7: "dropped",
        19: "redriven",
    }
    assert closed[5]["redriven_to"] == {"topic": name, "partition": 0, "offset": 21}
    assert min(letter["closed_at_ms"] - letter["died_at_ms"] for letter in closed.values()) > -60_000
    assert redrive(gateway, name)["redriven"] == 16, "what was dropped is never sent back"


def test_dl_102_a_list_follows_filters_and_shows_the_record_if_asked(gateway: Gateway, name: str) -> None:
    gateway.produce(name, {"n": 1}, key="ann", headers={"trace": "x"})
    gateway.produce(name, 2, key="bob")
    dead(gateway, name, name, 1, reason="too large")
    between_ms = letters(gateway, name)[0]["died_at_ms"] + 1
    wait_until(lambda: time.time_ns() // 1_000_000 > between_ms + 100)
    dead(gateway, name, name, 1, reason="too small")

    def found(**query: Any) -> list[int]:
        return [letter["offset"] for letter in letters(gateway, name, **query)]

    assert found() == [0, 1]
    assert found(key="bob") == found(reason="small") == found(topic=name, offset=1) == [1]
    assert found(key="bo") == found(cause="delivery_limit") == found(partition=1) == []
    assert found(cause="rejected", topic=name) == [0, 1]
    assert found(before_ms=between_ms) == [0]
    assert found(after_ms=between_ms) == [1]
    (first,) = letters(gateway, name, key="ann", records=True)
    assert first == {
        "topic": name,
        "partition": 0,
        "offset": 0,
        "state": "open",
        "died_at_ms": first["died_at_ms"],
        "delivery_count": 1,
        "cause": "Offset rejected by client.",
        "reason": "too large",
        "letter": {"topic": f"dlq.{name}", "partition": 0, "offset": 0},
        "key": "ann",
        "value": {"n": 1},
        "headers": {"trace": "x"},
    }


def test_dl_103_pages_go_through_the_topic_and_then_the_parked_ones(gateway: Gateway, name: str) -> None:
    gateway.produce(name, *range(5))
    dead(gateway, name, name, 5)
    refusing = f"{name}-refusing"
    gateway.create_topic(refusing)
    gateway.configure(name, errors_deadletterqueue_topic_name=refusing)
    gateway.produce(name, *range(3))
    dead(gateway, name, name, 3)
    gateway.configure(name, errors_deadletterqueue_topic_name=f"dlq.{name}")
    pages, token = [], None
    while token is not None or not pages:
        page = listed(gateway, name, page_size=2, **({"page_token": token} if token else {}))
        pages.append([(letter["offset"], "letter" in letter) for letter in page["dead_letters"]])
        token = page.get("next_page_token")
    assert [*chain(*pages)] == [*((offset, True) for offset in range(5)), *((offset, False) for offset in range(5, 8))]
    assert max(map(len, pages)) == 2
    for offset in (1, 6):
        assert drop(gateway, name, topic=name, offset=offset) == {"matched": 1, "dropped": 1}
    assert gateway.in_flight(name)[0]["parked_dead_letters"] == 2
    tokens = drop(gateway, name, max_records=4)
    assert (tokens["matched"], tokens["dropped"]) == (4, 4)
    assert drop(gateway, name, page_token=tokens["next_page_token"]) == {"matched": 2, "dropped": 2}
    assert letters(gateway, name) == []


def test_dl_104_a_mistaken_topic_is_named(gateway: Gateway, name: str) -> None:
    gateway.produce(name, 1)
    dead(gateway, name, name, 1)
    queue = f"dlq.{name}"
    for answer in (
        gateway.http.post(path(name, "/redrive"), json={"topic": queue}),
        gateway.http.post(path(name, "/drop"), json={"topic": queue}),
        gateway.http.get(path(name), params={"topic": queue}),
    ):
        problem(answer, 422, "INVALID_REQUEST", 42)
        assert "names the topic that their records came from" in answer.json()["detail"]
    problem(gateway.http.post(path(name, "/redrive"), json={"offset": 1}), 422, "INVALID_REQUEST", 42)
    assert len(letters(gateway, name)) == 1


def test_dl_105_a_drop_that_breaks_the_schema_changes_nothing(gateway: Gateway, name: str) -> None:
    gateway.produce(name, 1)
    dead(gateway, name, name, 1)
    for fields in ({"to": "retry"}, {"page_token": "x"}, {"offset": -1}, {"cause": "x"}, {"filter": {}}):
        problem(gateway.http.post(path(name, "/drop"), json={"topic": name, **fields}), 422, "INVALID_REQUEST", 42)
    assert [letter["state"] for letter in letters(gateway, name)] == ["open"]


def test_dl_106_what_the_consumer_group_finishes_is_open_no_more(gateway: Gateway, name: str) -> None:
    desk = f"{name}-desk"
    gateway.configure(name, errors_deadletterqueue_consumer_group=desk)
    gateway.produce(name, 1, 2, 3)
    dead(gateway, name, name, 3)
    gateway.acquire(desk, f"dlq.{name}", max_records=2)
    assert gateway.settle(desk, f"dlq.{name}", 0, 1, "accept") == "applied"
    wait_until(lambda: [letter["offset"] for letter in letters(gateway, name)] == [2], 30)
    (first, second, _) = letters(gateway, name, closed=True)
    assert [(each["state"], each["consumer_group"]) for each in (first, second)] == [("finished", desk)] * 2
    assert redrive(gateway, name) == {"matched": 1, "redriven": 1}


def test_dl_107_a_forged_letter_is_none(gateway: Gateway, name: str) -> None:
    """Whoever may produce to a dead-letter topic may write any header there."""
    gateway.produce(name, 1)
    dead(gateway, name, name, 1)
    forged = {"__dlq.errors.group": name, "__dlq.errors.topic": "x" * 300, "__dlq.errors.reasons": "[1"}
    gateway.produce(f"dlq.{name}", 7, headers={**forged, "__dlq.errors.offset": "9" * 50})
    assert len(letters(gateway, name)) == 1
    assert redrive(gateway, name) == {"matched": 1, "redriven": 1}
    assert drop(gateway, name) == {"matched": 0, "dropped": 0}
