"""The admission of requests by their bytes."""

import pytest

from sharequeue_http.application.endpoint import Admission
from sharequeue_http.forms.errors import Throttled


def admission_of(max_bytes: int, in_hand: int) -> Admission:
    admission = Admission(max_bytes, "that produce", "max_produce_bytes")
    admission.bytes = in_hand
    return admission


def test_requests_are_admitted_up_to_the_byte_limit() -> None:
    admission_of(10, 4).check(6)
    with pytest.raises(Throttled, match=r"that produce.*max_produce_bytes"):
        admission_of(10, 4).check(7)


def test_a_single_request_may_exceed_the_limit() -> None:
    """Waiting would never make room for it."""
    admission_of(10, 0).check(11)
    with pytest.raises(Throttled):
        admission_of(10, 11).check(1)


def test_a_single_request_may_grow_beyond_the_limit() -> None:
    """A request that grows keeps its room. Beside another request the growth is refused."""
    admission_of(10, 1).check(11, in_hand=1)
    with pytest.raises(Throttled):
        admission_of(10, 4).check(7, in_hand=1)


def test_one_principal_has_half_of_the_bytes_while_another_one_sends() -> None:
    admission = Admission(10, "that produce", "max_produce_bytes", percent=50)
    admission.take(4, "User:a")
    admission.check(6, principal="User:a")
    admission.take(1, "User:b")
    with pytest.raises(Throttled, match=r"User:a has 4 bytes .*one principal has 5 at this gateway"):
        admission.check(2, principal="User:a")
    admission.check(1, principal="User:a")
    admission.give(1, "User:b")
    admission.check(6, principal="User:a")
