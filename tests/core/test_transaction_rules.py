"""What a call on a transaction is answered, cell by cell; and the bound of a transaction's bytes."""

import pytest
from sharequeue_gateway.record_log.transactions.transaction_rules import (
    ABORT,
    COMMIT,
    MOST_PARTITIONS,
    TERMINATE,
    Reason,
    State,
    Transaction,
    Wish,
    append_refusal,
    check_commit,
    check_epoch,
    check_whole,
    end_answer,
    still_open,
)
from sharequeue_gateway.record_log.transactions.transaction_sizes import MOST, TransactionSizes

from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue_http.forms.errors import ApiError

BY_NAME = {
    "committed": (State.COMMITTED, Reason.CLIENT),
    "aborted": (State.ABORTED, Reason.CLIENT),
    "timed out": (State.ABORTED, Reason.TIMED_OUT),
    "fenced": (State.ABORTED, Reason.FENCED),
    "terminated": (State.ABORTED, Reason.ADMINISTRATOR),
}


def transaction(name: str) -> Transaction:
    state, reason = BY_NAME[name]
    return Transaction("t", "x", 3, "", state, reason, 1000, None, 2000, 2)


ANSWERS: dict[tuple[str, Wish], int | None] = {
    ("committed", COMMIT): None,
    ("committed", ABORT): 48,
    ("committed", TERMINATE): 48,
    ("aborted", COMMIT): 48,
    ("aborted", ABORT): None,
    ("aborted", TERMINATE): None,
    ("timed out", COMMIT): 48,
    ("timed out", ABORT): None,
    ("timed out", TERMINATE): None,
    ("fenced", COMMIT): 90,
    ("fenced", ABORT): 90,
    ("fenced", TERMINATE): None,
    ("terminated", COMMIT): 48,
    ("terminated", ABORT): None,
    ("terminated", TERMINATE): None,
}


@pytest.mark.parametrize(("cell", "code"), ANSWERS.items(), ids=lambda value: str(value)[:60])
def test_each_end_of_what_has_ended(cell: tuple[str, Wish], code: int | None) -> None:
    found = transaction(cell[0])
    if code is None:
        assert end_answer(cell[1], "t", found) is found
        return
    with pytest.raises(ApiError) as refused:
        end_answer(cell[1], "t", found)
    assert (KAFKA_CODES[refused.value.error], refused.value.definite) == (code, True)
    assert refused.value.extra == {
        "transaction_id": "t",
        "state": found.state.name.lower(),
        "reason": found.reason.name.lower(),
        "ended_at_ms": 2000,
    }


@pytest.mark.parametrize(("first", "again"), [(b"a", b"b"), (b"a", None), (None, b"b")])
def test_a_commit_with_other_acknowledgements_is_refused(first: bytes | None, again: bytes | None) -> None:
    found = transaction("committed")._replace(settled=first)
    assert end_answer(COMMIT, "t", found, first) is found
    with pytest.raises(ApiError, match="other acknowledgements") as refused:
        end_answer(COMMIT, "t", found, again)
    assert (KAFKA_CODES[refused.value.error], refused.value.definite) == (48, True)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("appended", [True, False])
def test_an_append_to_what_has_ended(name: str, appended: bool) -> None:
    error = append_refusal("t", transaction(name), appended)
    assert (KAFKA_CODES[error.error], error.definite) == (90 if name == "fenced" else 48, True)
    assert error.extra.get("appended") == (True if appended else None)


def test_what_is_not_known() -> None:
    with pytest.raises(ApiError, match="no transaction 't' is known") as refused:
        end_answer(COMMIT, "t", None)
    assert (KAFKA_CODES[refused.value.error], refused.value.definite) == (105, False)
    error = append_refusal("t", None, False)
    assert (KAFKA_CODES[error.error], error.definite) == (105, True), "it has no batch"


def test_an_open_one_says_no_reason() -> None:
    error = still_open(transaction("committed")._replace(state=State.OPEN, ended_at_ms=None))
    assert KAFKA_CODES[error.error] == 48
    assert error.extra == {"transaction_id": "t", "state": "open"}


@pytest.mark.parametrize(("current", "given", "code"), [(None, 0, 105), (3, 2, 90), (3, 4, 47), (3, 3, None)])
def test_epochs(current: int | None, given: int, code: int | None) -> None:
    if code is None:
        check_epoch("x", current, given)
        return
    with pytest.raises(ApiError) as refused:
        check_epoch("x", current, given)
    assert KAFKA_CODES[refused.value.error] == code
    assert not refused.value.error.retriable


def test_bytes_are_bounded_for_each_transaction() -> None:
    sizes = TransactionSizes(100)
    sizes.take(("a", ""), 100)
    sizes.take(("b", ""), 40)
    for size in (61, 1000):
        with pytest.raises(ApiError, match="max_transaction_bytes") as refused:
            sizes.take(("b", ""), size)
        assert refused.value.limit == 100
    sizes.take(("b", ""), 60)


def test_what_appended_nothing_is_not_counted() -> None:
    sizes = TransactionSizes(100)
    sizes.take("a", 60)
    sizes.take("a", 40)
    sizes.give_back("a", 40)
    sizes.take("a", 40)
    with pytest.raises(ApiError):
        sizes.take("a", 1)
    sizes.take("b", 1)
    sizes.give_back("b", 1)
    sizes.give_back("b", 1)
    sizes.take("b", 100)
    with pytest.raises(ApiError):
        sizes.take("b", 1)


def test_the_transactions_that_are_counted_are_bounded() -> None:
    sizes = TransactionSizes(100)
    sizes.take("first", 90)
    for number in range(MOST - 1):
        sizes.take(str(number), 1)
    with pytest.raises(ApiError):
        sizes.take("first", 11)
    sizes.take("first", 1)
    sizes.take("one more", 1)
    sizes.take("0", 100)  # forgotten: it was used least recently
    with pytest.raises(ApiError):
        sizes.take("first", 10)


OPEN = Transaction("t", "x", 3, "", State.OPEN, Reason.CLIENT, 1000, 60_000)


def test_which_parts_a_commit_takes() -> None:
    check_commit(OPEN, [], (), 2000)
    check_commit(OPEN, ["a", "b"], {"a", "b"}, MOST_PARTITIONS)
    with pytest.raises(ApiError, match=r"^b is not an open part of transaction t") as refused:
        check_commit(OPEN, ["a", "b"], {"a"}, 1)
    assert (KAFKA_CODES[refused.value.error], refused.value.extra["state"]) == (48, "open")
    with pytest.raises(ApiError, match="more than 1000 partitions") as wide:
        check_commit(OPEN, ["a"], {"a"}, MOST_PARTITIONS + 1)
    assert wide.value.limit == MOST_PARTITIONS
    with pytest.raises(ApiError, match="the commit of w names the parts") as alone:
        check_commit(OPEN._replace(part_of="w"), [], (), 1)
    assert KAFKA_CODES[alone.value.error] == 48


def test_when_a_part_begins() -> None:
    check_whole("t", OPEN, past=False)
    for whole, past, code, state in (
        (None, False, 105, None),
        (transaction("committed"), False, 48, "committed"),
        (transaction("fenced"), False, 90, "aborted"),
        (OPEN, True, 48, "aborted"),
        (OPEN._replace(part_of="w"), False, 48, "open"),
    ):
        with pytest.raises(ApiError) as refused:
            check_whole("t", whole, past)
        assert (KAFKA_CODES[refused.value.error], refused.value.extra.get("state")) == (code, state)
