"""The admission of produce requests, by their bytes."""

import pytest
from sharequeue_gateway.producing.admission import ProduceAdmission

from sharequeue.protocol.errors import Throttled


def test_requests_are_admitted_up_to_the_byte_limit() -> None:
    admission = ProduceAdmission(10)
    admission.take(4)
    admission.check(6)
    admission.take(6)
    for refuse in admission.check, admission.take:
        with pytest.raises(Throttled, match="max_produce_bytes"):
            refuse(1)
    admission.release(4)
    admission.take(4)
    admission.release(4)
    admission.release(6)
    assert admission.bytes == 0


def test_a_single_request_may_exceed_the_limit() -> None:
    """Waiting would never make room for it."""
    admission = ProduceAdmission(10)
    admission.check(11)
    admission.take(11)
    with pytest.raises(Throttled):
        admission.take(1)
    admission.release(11)
    admission.take(1)


def test_a_single_request_may_grow_beyond_the_limit() -> None:
    """A request that grows keeps its room. Beside another request the growth is refused, and takes no room."""
    admission = ProduceAdmission(10)
    admission.take(1)
    admission.take(11, in_hand=1)
    admission.release(12)
    admission.take(3)
    admission.take(1)
    with pytest.raises(Throttled):
        admission.take(7, in_hand=1)
    assert admission.bytes == 4
