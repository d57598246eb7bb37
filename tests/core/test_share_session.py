"""Share sessions: epochs, the set of partitions, the limit, the idle time. Scenarios SS."""

from collections.abc import Callable

import pytest
from sharequeue_gateway.share_partition.session import ShareSession, ShareSessionCache, next_epoch

from sharequeue.protocol.errors import (
    KAFKA_CODES,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from sharequeue.protocol.types import MAX_INT32, MAX_PARTITIONS_NAMED
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.errors import ApiError, InvalidRequest

P0, P1, BAR = ("foo", 0), ("foo", 1), ("bar", 0)
M1, M2, M3 = ("g", "m1"), ("g", "m2"), ("g", "m3")


def cache(max_sessions: int = 10, idle_ms: int = 60_000) -> ShareSessionCache:
    return ShareSessionCache(idle_ms, Ceiling(max_sessions, 50, "share sessions", lambda: 0.0))


def partitions(session: ShareSession) -> list[tuple[str, int]]:
    return list(session.partitions)


def test_ss_001_each_accepted_request_takes_the_next_epoch() -> None:
    sessions = cache()
    sessions.open(M1, [P0, P1], 0)
    for epoch in (1, 2, 3):
        assert partitions(sessions.advance(M1, epoch, 0)) == [P0, P1]


@pytest.mark.parametrize(
    "request_of", [lambda cache: cache.advance(M1, 5, 0), lambda cache: cache.close(M1), lambda cache: cache.find(M1)]
)
def test_ss_003_a_request_without_a_session_is_refused(request_of: Callable[[ShareSessionCache], object]) -> None:
    with pytest.raises(ShareSessionNotFound) as raised:
        request_of(cache())
    assert KAFKA_CODES[raised.value.error] == 122


@pytest.mark.parametrize("epoch", [0, 2, 3, -1, MAX_INT32])
def test_ss_005_an_epoch_other_than_the_next_is_refused(epoch: int) -> None:
    sessions = cache()
    sessions.open(M1, [P0], 0)
    with pytest.raises(InvalidShareSessionEpoch) as raised:
        sessions.advance(M1, epoch, 0)
    assert KAFKA_CODES[raised.value.error] == 123
    assert sessions.advance(M1, 1, 0).epoch == 2


def test_a_fetch_that_is_repeated_by_its_fetch_id_is_accepted_again() -> None:
    sessions = cache()
    sessions.open(M1, [P0], 0)
    sessions.advance(M1, 1, 0, fetch_id="f1")
    assert sessions.advance(M1, 1, 0, fetch_id="f1").epoch == 2
    assert sessions.advance(M1, 1, 0, fetch_id="f1").epoch == 2
    assert sessions.advance(M1, 2, 0, fetch_id="f2").epoch == 3
    for epoch, fetch_id in ((1, "f1"), (2, "f1"), (1, "f2")):
        with pytest.raises(InvalidShareSessionEpoch):
            sessions.advance(M1, epoch, 0, fetch_id=fetch_id)


def test_a_new_fetch_under_an_old_fetch_id_takes_the_next_epoch() -> None:
    sessions = cache()
    sessions.open(M1, [P0], 0)
    sessions.advance(M1, 1, 0, fetch_id="f1")
    assert sessions.advance(M1, 2, 0, fetch_id="f1").epoch == 3


def test_ss_009_a_request_adds_and_forgets_partitions() -> None:
    sessions = cache()
    sessions.open(M1, [P0, P1], 0)
    session = sessions.advance(M1, 1, 0)
    session.change([BAR], [P0])
    assert partitions(sessions.advance(M1, 2, 0)) == [P1, BAR]


def test_the_partitions_of_a_session_are_limited() -> None:
    sessions = cache()
    many = [("foo", number) for number in range(MAX_PARTITIONS_NAMED)]
    sessions.open(M1, many, 0)
    sessions.check_room(M1, many)
    with pytest.raises(InvalidRequest) as raised:
        sessions.check_room(M1, [BAR])
    assert (raised.value.status, raised.value.limit) == (422, MAX_PARTITIONS_NAMED)
    session = sessions.advance(M1, 1, 0)
    assert partitions(session) == many
    session.change([], [many[0]])
    sessions.check_room(M1, [BAR])


def test_ss_011_a_session_without_partitions_still_exists() -> None:
    sessions = cache()
    sessions.open(M1, [P0, P1], 0)
    sessions.advance(M1, 1, 0).change([], [P0, P1])
    assert partitions(sessions.advance(M1, 2, 0)) == []
    assert len(sessions) == 1


def test_ss_015_forgetting_an_absent_partition_is_allowed() -> None:
    sessions = cache()
    sessions.open(M1, [P0], 0)
    session = sessions.advance(M1, 1, 0)
    session.change([P0], [BAR])
    assert partitions(session) == [P0]


def test_a_full_gateway_lets_a_member_replace_its_own_session() -> None:
    sessions = cache(max_sessions=1)
    sessions.open(M1, [P0, P1], 0)
    sessions.advance(M1, 1, 0)
    sessions.open(M1, [BAR], 0)
    assert partitions(sessions.advance(M1, 1, 0)) == [BAR]


def test_a_session_in_use_is_not_idle() -> None:
    sessions = cache(idle_ms=60_000)
    sessions.open(M1, [P0], 0)
    sessions.open(M2, [P0], 1)
    sessions.advance(M1, 1, 50_000)
    assert sessions.drop_idle(100_000) == 1
    assert sessions.find(M1).epoch == 2
    assert sessions.drop_idle(110_000) == 1
    assert len(sessions) == 0


def test_a_refused_request_does_not_keep_a_session_alive() -> None:
    sessions = cache(idle_ms=60_000)
    sessions.open(M1, [P0], 0)
    with pytest.raises(ApiError):
        sessions.advance(M1, 7, 59_000)
    assert sessions.drop_idle(60_000) == 1


def test_ss_021_sessions_and_their_partitions_are_counted() -> None:
    sessions = cache()
    for member, count in (("m1", 1), ("m2", 2), ("m3", 3)):
        sessions.open(("g", member), [("foo", partition) for partition in range(count)], 0)
    assert (len(sessions), sessions.partition_count()) == (3, 6)
    sessions.close(M1)
    assert (len(sessions), sessions.partition_count()) == (2, 5)
    sessions.open(("g", "m4"), [("foo", partition) for partition in range(4)], 0)
    assert (len(sessions), sessions.partition_count()) == (3, 9)


def test_ss_023_a_session_closes_once() -> None:
    sessions = cache()
    sessions.open(M1, [P0], 0)
    assert partitions(sessions.close(M1)) == [P0]
    with pytest.raises(ShareSessionNotFound):
        sessions.close(M1)
    assert sessions.drop_idle(10**9) == 0


def test_ss_025_a_member_id_in_two_groups_has_two_sessions() -> None:
    sessions = cache()
    sessions.open(("g1", "m"), [P0], 0)
    sessions.open(("g2", "m"), [P1], 0)
    sessions.advance(("g1", "m"), 1, 0)
    assert partitions(sessions.advance(("g2", "m"), 1, 0)) == [P1]
    sessions.close(("g1", "m"))
    assert sessions.find(("g2", "m")).epoch == 2


def test_the_epoch_after_the_last_is_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, MAX_INT32 - 1, MAX_INT32)] == [1, 2, MAX_INT32, 1]
    sessions = cache()
    sessions.open(M1, [P0], 0).epoch = MAX_INT32
    assert sessions.advance(M1, MAX_INT32, 0, fetch_id="f").epoch == 1
    assert sessions.advance(M1, MAX_INT32, 0, fetch_id="f").epoch == 1
    assert sessions.advance(M1, 1, 0).epoch == 2


def test_a_session_follows_a_bounded_number_of_topics() -> None:
    """Also of topics that do not exist yet, and so bring no partitions."""
    sessions = cache()
    session = sessions.open(M1, [], 0)
    for number in range(MAX_PARTITIONS_NAMED + 2):
        session.follow(f"t{number}", ("", 0))
    session.follow("t0", ("id", 1))
    assert (len(session.followed), session.followed["t0"]) == (MAX_PARTITIONS_NAMED, ("id", 1))


def test_only_sessions_that_follow_a_topic_are_behind_when_it_grows() -> None:
    sessions = cache()
    follows, other = sessions.open(M1, [P0], 0), sessions.open(M2, [P0], 0)
    follows.follow("foo", ("foo", 1))
    sessions.topic_has_grown("bar")
    assert not follows.behind
    sessions.topic_has_grown("foo")
    assert (follows.behind, other.behind) == (True, False)


def test_a_session_above_the_ceiling_is_opened_again_and_no_other() -> None:
    sessions = cache(4)
    for key in (M1, M2, M3):
        sessions.open(key, [P0], 0, "User:a")
    sessions.open(("g", "m4"), [P0], 0, "User:b")
    assert partitions(sessions.open(M1, [P1], 0, "User:a")) == [P1]
    with pytest.raises(ShareSessionLimitReached, match=r"User:a has 3 share sessions"):
        sessions.open(("g", "m5"), [P0], 0, "User:a")
    assert sessions.find(M1)
