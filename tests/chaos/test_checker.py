"""The checker itself: sound histories pass, and each rule notices its violation."""

import pytest

from tests.chaos.checker import check, report
from tests.chaos.stories import history_of

SOUND = {
    "accepted at once": "produce 10 11 12; fetch a 0-2 1; accept a 0-2 1",
    "released": "produce 10 11; fetch a 0-1 1; release+accept a 0-1 1; fetch b 0-0 2; accept b 0-0 2",
    "again after the lock": "produce 10; fetch a 0-0 1; wait 2; fetch b 0-0 2; accept a 0-0 1 failed; accept b 0-0 2",
    "again after the session": "produce 10; fetch a 0-0 1; close a; fetch b 0-0 2; accept b 0-0 2",
    "a fetch is repeated": """
        produce 10; fetch a 0-0 1 id=f; fetch a 0-0 1 id=f; accept a 0-0 1 unknown; accept a 0-0 1 ignored""",
    # the repeat is answered with the records of the first fetch, whose lock ends that much earlier
    "the lock is of the fetch that got no answer": """
        produce 10; ask a id=f; wait 1; fetch a 0-0 1 id=f; wait 1; accept a 0-0 1 failed
        fetch b 0-0 2; accept b 0-0 2""",
    # b's comes when it is accepted already
    "an acknowledgement is repeated": """
        produce 10; fetch a 0-0 1; accept a 0-0 1 unknown; accept a 0-0 1; accept b 0-0 1""",
    # the leader died with the answer; the gateway that was asked repeated it where the record was finished by then
    "an accept is repeated on the way": "produce 10; fetch a 0-0 1; accept a 0-0 1 ignored",
    "dead after the limit": """
        produce 10 11; fetch m1 0-0 1; release m1 0-0 1; fetch m2 0-0 2; release m2 0-0 2; fetch m3 0-0 3
        release m3 0-0 3; dead 0 3; fetch a 1-1 1; reject a 1-1 1; dead 1 1""",
    "requests without an answer": """
        produce 10 11 unknown; produce 12 unknown lost; produce 13 refused lost; fetch a 0-1 1; accept a 0-1 1""",
    "after a reset": """
        produce 10 11; fetch a 0-1 1; accept a 0-1 1; reset 1; fetch a 1-1 1; accept a 1-1 1""",
    "locks lost without redis": "produce 10; no_redis 0.25 0.5; fetch a 0-0 1; fetch b 0-0 1; accept b 0-0 1",
    # another gateway leads, which could not read the lock: it delivers the record with the count that it knows
    "a later count is lost without redis": """
        produce 10; fetch a 0-0 1; wait 2; fetch b 0-0 2; wait 0.2; no_redis -0.2; fetch c 0-0 1; accept c 0-0 1""",
    # Redis goes away between the fetch that gets the lower count and its answer
    "a later count is lost while a fetch waits": """
        produce 10; fetch a 0-0 1; wait 2; fetch b 0-0 2; fetch c 0-0 1; no_redis -0.05; accept c 0-0 1""",
    # a renewed record is delivered to another member under the same count, long after the renewal
    "a renewed count is lost without redis": """
        produce 10; fetch a 0-0 1; renew a 0-0 1; wait 2; wait 0.2; no_redis -0.2; fetch b 0-0 1; accept b 0-0 1""",
    # the lock of a range has ended; another member finished its first record, the second was delivered again
    "finished records are passed over": """
        produce 10 11; fetch a 0-1 1; wait 2; fetch b 0-0 2; accept b 0-0 2; release a 0-1 1
        fetch b 1-1 2; accept b 1-1 2""",
    # the lock of the last delivery of the first record ended, which finished it; the second one is held still
    "a dead record is passed over": """
        produce 10 11; fetch a 0-1 2; wait 2; fetch b 0-0 3; wait 2; dead 0 3; release a 0-1 2
        fetch b 1-1 3; accept b 1-1 3""",
    "trimmed as far as it is finished": """
        produce 10 11 12; fetch a 0-2 1; accept+reject+accept a 0-2 1; dead 1 1; trim 3""",
    # the first try of the release got no answer, and was in effect: the delay counts from there
    "delivered when its delay is over": """
        produce 10; fetch a 0-0 1; release a 0-0 1 unknown delay=1000; wait 0.5; release a 0-0 1 delay=1000
        wait 0.15; fetch b 0-0 2; accept b 0-0 2""",
    # after a release, after a lock that ended, and at once after a delivery that was never begun
    "delivered when its backoff is over": """
        backoff 1; produce 10; fetch a 0-0 1; release a 0-0 1; wait 1; fetch b 0-0 2; release b 0-0 2 unbegun
        fetch c 0-0 3; wait 3; fetch d 0-0 4; accept d 0-0 4""",
    "given back by a session without a backoff": "backoff 1; as again after the session",
    # 0: plain, 1 and 2: of T, 3: its marker
    "committed": """
        levels; produce 10; produce 11 12 in=T; end T commit unknown; end T commit committed 0; finish 0-2; read 0 4""",
    # 0: of T, 1: plain, 2: the marker of T, 3: plain
    "aborted": """
        levels; produce 10 in=T; finish 0-0 uncommitted; read 0 0; produce 11; end T commit aborted 0; produce 12
        finish 1-1; finish 3-3; read 0 4 0""",
    # the producer died with a lost answer; what became of the transaction is found out later
    "timed out": """
        levels; produce 10 unknown in=T; end T describe open; end T describe aborted 0; finish 0-0 uncommitted
        read 0 2 0""",
    "wrote nothing": "levels; produce 10; produce 11 refused lost in=T; end T describe forgotten; finish 0-0",
    # another open transaction holds back one of them
    "two partitions": """
        levels; produce 9 in=U @1; produce 10 in=T; produce 11 in=T @1; end T commit committed 0 1; read 0 2
        read 0 0 @1; end U abort aborted 1; read 0 4 0 @1; finish 0-0; finish 1-1 g @1; finish 0-1 uncommitted @1""",
}


@pytest.mark.parametrize("text", SOUND.values(), ids=SOUND.keys())
def test_a_sound_history_passes(text: str) -> None:
    history = history_of(SOUND, text)
    violations = check(history)
    assert not violations, report(history, violations)


PLANTED = (  # the rule that must notice the violation
    ("durable", "as accepted at once; produce 13 lost"),
    ("durable", "as accepted at once; log 3=99; fetch a 3-3 1; accept a 3-3 1"),
    ("refused", "produce 10 refused; fetch a 0-0 1; accept a 0-0 1"),
    ("atomic", "produce 10 11 unknown; log 1; fetch a 0-0 1; accept a 0-0 1"),
    ("once", "as accepted at once; log 3=12; fetch a 3-3 1; accept a 3-3 1"),
    ("dense", "as accepted at once; log 5=12 2"),
    ("identical", "as accepted at once; answer 10 12 11"),
    ("whole", "as accepted at once; answer 10 11"),
    ("rising", "produce 10; fetch a 0-0 1; wait 2; fetch b 0-0 1; accept b 0-0 1"),
    ("rising", "produce 10; fetch a 0-0 2; wait 2; fetch b 0-0 1; accept b 0-0 1"),
    ("limit", "produce 10; fetch a 0-0 4; accept a 0-0 4"),
    # a delivery count may repeat around a window without Redis, but once for each window
    (
        "limit",
        "produce 10; "
        + "".join(f"fetch m{number} 0-0 {1 + number % 3}; wait 2; " for number in range(5))
        + "no_redis 0; fetch a 0-0 3; accept a 0-0 3",
    ),
    ("exclusive", "produce 10; fetch a 0-0 1; fetch b 0-0 2; accept b 0-0 2"),
    ("exclusive", "produce 10; fetch a 0-0 1; wait 1.5; renew a 0-0 1; wait 1; fetch b 0-0 2; accept b 0-0 2"),
    ("holder", "produce 10; fetch a 0-0 1; accept a 0-0 1 failed; wait 2; fetch b 0-0 2; accept b 0-0 2"),
    (
        "holder",
        "produce 10; ask a id=f; fetch a 0-0 1 id=f; wait 1; accept a 0-0 1 failed; wait 2; "
        "fetch b 0-0 2; accept b 0-0 2",
    ),
    ("stale", "produce 10; fetch a 0-0 1; wait 2; fetch b 0-0 2; accept b 0-0 2; accept a 0-0 1"),
    ("settled", "as accepted at once; wait 2; fetch b 0-0 2"),
    ("owner", "produce 10; fetch a 0-0 1; accept b 0-0 1"),
    ("stale", "produce 10; fetch a 0-0 1; wait 2; fetch b 0-0 2; release a 0-0 1; accept b 0-0 2"),
    ("finished", "as accepted at once; produce 13"),
    ("finished", "as accepted at once; lag 1"),
    ("finished", "as accepted at once; groups g h"),
    ("dead", "produce 10; fetch a 0-0 1; release a 0-0 1; dead 0 1"),
    ("dead", "as dead after the limit; dead 1 1"),
    ("dead", "as accepted at once; dead 0 3"),
    ("dead", "produce 10; fetch a 0-0 1; reject a 0-0 1; accept a 0-0 1 unknown"),
    ("reset", "as after a reset; fetch b 0-0 1"),
    ("trimmed", "produce 10 11 12; fetch a 0-2 1; accept a 0-1 1; trim 3; accept a 2-2 1"),
    ("trimmed", "as accepted at once; hold 10; trim 1"),
    # by two tenths of a second: more than clocks may differ
    ("early", "produce 10; fetch a 0-0 1; release a 0-0 1 delay=1000; wait 0.5; fetch b 0-0 2; accept b 0-0 2"),
    # a redelivery by the second leader comes in time; by the third it is early, and brings the next count
    (
        "early",
        "produce 10; fetch a 0-0 1; release a 0-0 1 unknown delay=5000; release a 0-0 1 delay=5000; "
        "fetch b 0-0 3; accept b 0-0 3",
    ),
    ("early", "backoff 1; as released"),
    ("outcome", "as committed; end T describe aborted"),
    ("outcome", "as committed; end T describe forgotten"),
    ("outcome", "levels; produce 10 in=T; log_end 2; finish 0-0 uncommitted"),
    ("outcome", "levels; produce 10 in=T; end T describe committed 0; finish 0-0"),
    ("late", "as committed; produce 13 in=T; finish 4-4"),
    ("dense", "levels; produce 10 in=T; end T commit committed; finish 0-0"),
    ("aborted", "as aborted; finish 0-0 g"),
    ("undecided", "levels; produce 10 in=T; finish 0-0; end T commit committed 0"),
    ("finished", "levels; produce 10 in=T; end T commit committed 0; finish 0-0 uncommitted"),
    ("aborted", "as aborted; read 0 4"),
    ("torn", "as committed; read 0 4 2"),
    ("undecided", "levels; produce 10 in=T; read 0 1; end T commit committed 0; finish 0-0"),
    # the other partition still ends where the transaction begins
    (
        "torn",
        "levels; produce 10 in=T; produce 11 in=T @1; end T commit committed 0 1; read 0 2; read 0 0 @1; finish 0-0",
    ),
)


@pytest.mark.parametrize(("rule", "text"), PLANTED)
def test_a_planted_violation_is_noticed(rule: str, text: str) -> None:
    assert rule in {violation.rule for violation in check(history_of(SOUND, text))}


def test_a_report_lists_every_event_of_its_record_and_the_end_of_its_transaction() -> None:
    text = next(text for rule, text in PLANTED if rule == "holder" and "ask" in text)
    history = history_of(SOUND, text)
    told = report(history, check(history)[:1])
    assert "asked for by a via gateway-0 fetch_id=f: unknown" in told
    assert "delivered to a via gateway-0" in told
    assert "accept by b via gateway-1" in told
    text = next(text for rule, text in PLANTED if rule == "undecided" and "read" in text)
    history = history_of(SOUND, text)
    told = report(history, check(history))
    assert "commit of transaction T: committed" in told
    assert "read as committed: 0 to 1" in told
