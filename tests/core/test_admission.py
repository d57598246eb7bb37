"""Which produce requests are let in, by their bytes."""

import pytest
from sharequeue_gateway.admission import ProduceAdmission

from sharequeue.protocol.errors import Throttled


def test_what_fits_is_let_in_until_it_is_released() -> None:
    admission = ProduceAdmission(10)
    first, second = admission.room_for(4), admission.room_for(6)
    with pytest.raises(Throttled, match="max_produce_bytes"):
        admission.room_for(1)
    second.settle(2)
    third = admission.room_for(4)
    for room in (first, second, third):
        room.release()
    assert admission.bytes == 0


def test_one_alone_may_be_larger_than_all_the_room() -> None:
    """There is nothing to wait for that would make room for it."""
    admission = ProduceAdmission(10)
    room = admission.room_for(11)
    with pytest.raises(Throttled):
        admission.room_for(1)
    room.release()
    admission.room_for(1)
