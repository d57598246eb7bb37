"""The admission of requests by their bytes: the pool of those that are read and not answered."""

import pytest

from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.errors import Throttled


def admission_of(in_hand: int) -> Ceiling:
    admission = Ceiling(10, 50, "bytes in hand (max_produce_bytes)", lambda: 0.0)
    admission.take("", in_hand)
    return admission


def check(admission: Ceiling, size: int, principal: str = "") -> None:
    admission.check(principal, admission.used, size=size)


def test_requests_are_admitted_up_to_the_byte_limit() -> None:
    check(admission_of(4), 6)
    with pytest.raises(Throttled, match=r"at most 10 bytes in hand \(max_produce_bytes\)"):
        check(admission_of(4), 7)


def test_a_single_request_may_exceed_the_limit() -> None:
    """Waiting would never make room for it."""
    check(admission_of(0), 11)
    with pytest.raises(Throttled):
        check(admission_of(11), 1)


def test_one_principal_has_half_of_the_bytes_while_another_one_sends() -> None:
    admission = admission_of(0)
    admission.take("User:a", 4)
    check(admission, 6, "User:a")
    admission.take("User:b", 1)
    with pytest.raises(Throttled, match=r"User:a has 4 bytes .*one principal has 5 at this gateway"):
        check(admission, 2, "User:a")
    check(admission, 1, "User:a")
    admission.give("User:b", 1)
    check(admission, 6, "User:a")
