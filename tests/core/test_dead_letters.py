"""Scenarios of dead letters: family DQ on the pure machine."""

import pytest

from sharequeue.protocol.errors import InvalidRecordState
from sharequeue.protocol.types import GivenReason, Reason
from tests.core.share_partition_driver import Driver, fetched
from tests.core.states import annotations

REJECTED = "Offset rejected by client."
LIMIT = "Offset delivery count exceeded the threshold."


# DQ: dead letters


def dead(d: Driver) -> list[tuple[int, int, int, str, GivenReason | None]]:
    return [tuple(letter[:5]) for letter in d.dead_letters]  # type: ignore[misc]


def with_dead_letters(*batches: str, **config: object) -> Driver:
    return fetched(*batches, dead_letter_topic_name="dlq", **config)


def test_dq_001_rejected_records_wait_for_their_dead_letters() -> None:
    d = with_dead_letters("[0-4]")
    d.ack("0-4 Rej", reason="malformed")
    assert d.written == [[(0, 4, 3, 1)]]
    assert str(annotations(d.writes[0].state)[0].reason) == "malformed"
    assert dead(d) == [(0, 4, 1, REJECTED, GivenReason(Reason("malformed"), d.now_ms))]
    assert (d.states(), d.where(), d.machine.held_count) == ("0-4 ARCHIVING×1", (0, 4, 5, 0), 5)
    d.archived(0, 4)
    assert d.written[-1] == [(0, 4, 4, 1)]
    assert (d.where(), d.machine.held_count) == ((5, 5, 5, 0), 0)


def test_dq_003_rejected_records_and_those_released_at_the_limit_become_dead_letters() -> None:
    d = with_dead_letters("[0-5]", delivery_count_limit=2)
    d.ack("0-5 Rej Rel Acc Rej Rel Acc")
    d.fetch("[0-5]")
    d.ack("1 Rel", "4 Rel")
    assert sorted(dead(d)) == [
        (0, 0, 1, REJECTED, None),
        (1, 1, 2, LIMIT, None),
        (3, 3, 1, REJECTED, None),
        (4, 4, 2, LIMIT, None),
    ]


def test_dq_013_only_rejected_records_of_a_batch_become_dead_letters() -> None:
    d = with_dead_letters("[0-4]", "[5-9]")
    d.ack("0-4 Acc Acc Acc Rej Rej")
    # One range with one cause is one entry; Kafka enqueues offsets one by one once a batch is split.
    assert dead(d) == [(3, 4, 1, REJECTED, None)]
    assert d.where() == (3, 9, 10, 0)
    d.archived(3, 4)
    assert d.where() == (5, 9, 10, 0)


def test_dq_015_a_lock_that_ends_at_the_limit_makes_dead_letters() -> None:
    d = with_dead_letters("[0-9]", delivery_count_limit=2)
    d.later()
    assert d.fetch("[0-9]", max=5, rl=True) == "0-4×2"
    d.ack("0-4 Acc")
    assert d.fetch("[0-9]") == "5-9×2"
    d.hold_writes = True
    assert d.later() == 5
    assert dead(d) == [(5, 9, 2, LIMIT, None)]
    assert d.written[-1] == [(5, 9, 3, 2)]
    d.finish(ok=False)
    assert d.states() == "5-9 ARCHIVING×2"
    for offset in range(5, 10):
        d.archived(offset, offset)
        d.finish()
    assert d.where() == (10, 10, 10, 0)


def test_dq_017_an_archiving_record_is_neither_delivered_nor_finished() -> None:
    d = with_dead_letters("[0-4]")
    d.ack("0-4 Rej")
    assert d.fetch("[0-4]", at=0) == ""
    assert d.where()[0] == 0
    with pytest.raises(InvalidRecordState):
        d.ack("0-4 Acc")
    assert d.later() == 0
    assert d.states() == "0-4 ARCHIVING×1"


def test_dq_017_a_dead_letter_is_due_when_the_first_phase_is_durable() -> None:
    d = with_dead_letters("[0-4]", hold_writes=True)
    d.ack("0-4 Rej")
    assert d.dead_letters == []
    assert d.machine.complete_dead_letter(0, 4, d.now_ms) is None
    d.finish(ok=False)
    assert (d.dead_letters, d.states()) == ([], "0-4 AQ×1")
    d.ack("0-4 Rej")
    d.finish()
    assert dead(d) == [(0, 4, 1, REJECTED, None)]


def test_dq_021_a_load_resumes_archiving() -> None:
    d = Driver([(5, 9, 0, 2), (10, 14, 3, 5)], start=5, dead_letter_topic_name="dlq")
    assert dead(d) == [(10, 14, 5, LIMIT, None)]
    assert d.where() == (5, 14, 5, 0)
    d.archived(10, 14)
    assert d.written == [[(10, 14, 4, 5)]]
    assert d.where() == (5, 14, 5, 5)


def test_dq_023_a_load_infers_the_causes_of_dead_letters() -> None:
    d = Driver([(0, 4, 0, 1), (5, 9, 3, 2), (10, 14, 3, 5)])
    assert dead(d) == [(5, 9, 2, REJECTED, None), (10, 14, 5, LIMIT, None)]
    d.archived(5, 9)
    d.archived(10, 14)
    assert len(d.written) == 2
    assert d.where() == (0, 14, 0, 10)


@pytest.mark.parametrize("event", ["0-4 Acc", "0-4 Rel", "0-4 Rej", "close"])
def test_a_refused_write_of_the_last_delivery_makes_dead_letters_after_its_lock(event: str) -> None:
    d = with_dead_letters("[0-4]", delivery_count_limit=1, hold_writes=True)
    d.close() if event == "close" else d.ack(event)
    d.later()
    d.finish(ok=False)
    assert (d.states(), dead(d)) == ("0-4 ARCHIVING×1", [(0, 4, 1, LIMIT, None)])
    d.finish()
    d.archived(0, 4)
    d.finish()
    assert d.where()[0] == 5


def test_closing_at_the_limit_makes_dead_letters() -> None:
    d = with_dead_letters("[0-4]", delivery_count_limit=1)
    d.close()
    assert dead(d) == [(0, 4, 1, LIMIT, None)]
