"""What a consumer gives back as an attempt, and what as never begun, when a value of its records cannot be decoded."""

import pytest
from msgspec import Raw

from sharequeue.client import ValueUndecodable
from sharequeue.client.consuming.deliveries import Delivery, give_back, releases
from sharequeue.client.consuming.outcomes import ACCEPT
from sharequeue.protocol.messages.records import ConsumerRecord
from tests.fetched import delivery_of


def delivery() -> Delivery:
    """Five records, the second of which has a number that Python has not."""
    values = (b"0", b"1e400", b"2", b"3", b"4")
    records = [ConsumerRecord(offset=offset, timestamp_ms=0, value=Raw(value)) for offset, value in enumerate(values)]
    return delivery_of(0, 4, records)


@pytest.mark.parametrize(
    ("read_last", "begun"),
    [(1, [(0, 0, False), (1, 1, True), (2, 4, False)]), (2, [(0, 2, True), (3, 4, False)])],
    ids=["the program ends there", "it goes on to the next record"],
)
def test_an_undecodable_value_is_the_only_attempt_if_the_program_ends_there(
    read_last: int, begun: list[tuple[int, int, bool]]
) -> None:
    held = delivery()
    for offset in range(read_last + 1):
        if offset == 1:
            with pytest.raises(ValueUndecodable, match=r"t-0 offset 1 cannot be decoded: .*Record.json"):
                held.records[1].value  # noqa: B018 - reading it is what fails
        else:
            assert held.records[offset].value == offset
    assert [(run.first_offset, run.last_offset, run.outcome.begun) for run in releases({held: None})] == begun


def test_what_the_program_has_chosen_stays_when_the_rest_is_given_back() -> None:
    held = delivery()
    assert held.records[0].value == 0
    held.choose(0, ACCEPT)
    give_back({held: None})
    assert [(run.first_offset, run.last_offset, run.outcome.begun) for run in held.take_given_back()] == [(1, 4, False)]
    assert (held.chosen, held.take_given_back()) == ({0: ACCEPT}, [])
