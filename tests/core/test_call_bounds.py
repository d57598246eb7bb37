"""How many acknowledgements our clients send in one call: no call of theirs is refused for its size."""

import pytest

from sharequeue.protocol.bounds import acknowledgements_in_a_call
from sharequeue.protocol.messages.records import Acknowledgement, FetchRequest
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, MAX_NAME_LENGTH, MAX_REASON_LENGTH, MAX_TOPICS_NAMED, Reason
from sharequeue_http.forms.codec import encode

NAME = "n" * MAX_NAME_LENGTH


def request(reasons: list[str | None]) -> FetchRequest:
    """A fetch with the longest topic names and the longest acknowledgements."""
    acknowledgements = [
        Acknowledgement(
            topic=NAME,
            topic_id="00000000-0000-0000-0000-000000000000",
            partition=MAX_INT32,
            first_offset=MAX_INT64,
            last_offset=MAX_INT64,
            type="release",
            delivery_count=MAX_INT32,
            reason=None if reason is None else Reason(reason),
            delay_ms=MAX_INT32,
            begun=False,
            lock_duration_ms=MAX_INT32,
        )
        for reason in reasons
    ]
    return FetchRequest(topics=[NAME] * MAX_TOPICS_NAMED, acknowledgements=acknowledgements)


@pytest.mark.parametrize("character", ["", "x", "\x01", '"', "€", "😀"])
def test_what_goes_into_a_call_has_at_most_a_mebibyte(character: str) -> None:
    reasons: list[str | None] = [character * MAX_REASON_LENGTH or None] * 2000
    count = acknowledgements_in_a_call(reasons)
    assert count == (1000 if not character else 103)
    assert len(encode(request(reasons[:count]))) <= 1 << 20


def test_a_call_carries_at_least_one() -> None:
    assert [acknowledgements_in_a_call(reasons) for reasons in ([], [None], ["x" * 1_000_000, None])] == [0, 1, 1]
