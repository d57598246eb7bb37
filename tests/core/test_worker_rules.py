"""The rules of a worker that need no service: spans, outcomes, payloads by type, when a task slows down or stops."""

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest

from sharequeue.client import Record
from sharequeue.client.consuming.values import DoesNotFit
from sharequeue.protocol.messages.records import ConsumerRecord
from sharequeue.worker import Context, Reject, Retry, Snooze, Worker, group_rules
from sharequeue.worker.judging import MISMATCHES, SLOW_S, WINDOW, Breaker, Mismatches
from sharequeue.worker.outcomes import ACCEPTED, REJECT, RELEASE, Verdict, does_not_fit, verdict_of
from sharequeue.worker.payloads import signature_of
from sharequeue.worker.spans import seconds, when
from tests.fetched import delivery_of

PAGE = Path(__file__).parents[2] / "docs/worker.md"


@pytest.mark.parametrize(
    ("span", "wanted"),
    [(90, 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86_400), ("250ms", 0.25), (timedelta(minutes=1), 60)],
)
def test_spans(span: Any, wanted: float) -> None:
    assert seconds(span) == wanted


@pytest.mark.parametrize("span", ["", "5", "5 weeks", "-5s", -1, float("nan"), float("inf"), True])
def test_what_is_no_span_is_refused(span: Any) -> None:
    with pytest.raises(ValueError, match="no span of time"):
        seconds(span)


def test_the_time_of_a_record_that_is_sent_later() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert [when(None, None), when("1.5s", None), when(None, at)] == [
        {},
        {"delay_ms": 1500},
        {"deliver_at_ms": 1_893_456_000_000},
    ]
    for delay, wrong in (("1s", at), (None, datetime(2030, 1, 1))):
        with pytest.raises(ValueError, match=r"not both|has no time zone"):
            when(delay, wrong)


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        (Reject("no address"), Verdict(REJECT, "no address", kind="Reject")),
        (Retry(), Verdict(RELEASE, "retry", kind="Retry")),
        (Retry("busy", delay="5s"), Verdict(RELEASE, "busy", 5000, kind="Retry")),
        (Snooze("1m"), Verdict(RELEASE, delay_ms=60_000, begun=False)),
        (ValueError("no"), Verdict(RELEASE, "ValueError: no", kind="ValueError")),
        (KeyError(), Verdict(RELEASE, "KeyError", kind="KeyError")),
        (SystemExit(1), Verdict(RELEASE, "SystemExit: 1", kind="SystemExit")),
        (ZeroDivisionError("x"), Verdict(REJECT, "ZeroDivisionError: x", kind="ZeroDivisionError")),
    ],
)
def test_an_exception_says_what_becomes_of_its_record(fault: BaseException, wanted: Verdict) -> None:
    assert verdict_of(fault, reject_on=(ZeroDivisionError,)) == wanted


def test_reasons_are_short_and_may_be_types_alone() -> None:
    assert len(verdict_of(ValueError("x" * 5000)).reason or "") == 500
    assert verdict_of(ValueError("Ada, 12 March"), reasons="type").reason == "ValueError"
    assert verdict_of(Reject("Ada"), reasons="type").reason == "Reject"
    with pytest.raises(ValueError, match="at most 12 hours"):
        Retry(delay="13h")


@dataclasses.dataclass
class Order:
    id: int


class Mail(TypedDict):
    to: str


class Model:
    """Stands for a class of pydantic: what is asked of it is its public method alone."""

    @classmethod
    def model_validate_json(cls, payload: bytes) -> int:
        if payload == b"1":
            return 1
        raise ValueError("to: field required")


def record(value: bytes | None = None, raw: bytes | None = None) -> Record:
    message = ConsumerRecord(offset=0, timestamp_ms=0)
    if value is not None:
        message.value = msgspec.Raw(value)
    if raw is not None:
        message.value_base64 = raw
    return delivery_of(0, 0, [message]).records[0]


def order(payload: Order) -> None: ...
def mail(payload: Mail, context: Context) -> None: ...
def model(payload: Model) -> None: ...
def whole(payload: Record) -> None: ...
def raw(payload: bytes) -> None: ...
def anything(payload) -> None: ...  # type: ignore[no-untyped-def]


def test_a_payload_is_of_the_type_that_the_function_names() -> None:
    assert signature_of(order)[0](record(b'{"id": 1}')) == Order(1)
    decode, count = signature_of(mail)
    assert (decode(record(b'{"to": "a"}')), count) == ({"to": "a"}, 2)
    assert signature_of(model)[0](record(b"1")) == 1
    assert isinstance(signature_of(whole)[0](record(b"{")), Record)
    assert signature_of(raw)[0](record(raw=b"YQ==")) == b"a"
    assert signature_of(anything)[0](record(b'[1, "x"]')) == [1, "x"]


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (order, record(b'{"id": "x"}'), "`$.id`"),
        (order, record(b"{"), "truncated"),
        (order, record(raw=b"YQ=="), "is bytes"),
        (model, record(b"2"), "field required"),
        (raw, record(b"1"), "is JSON"),
        (anything, record(b"1e400"), "cannot be decoded"),
        (order, record(b"[" * 5000), "expected|array|depth|truncated|Expected"),
    ],
)
def test_a_payload_that_does_not_fit_says_where(function: Any, given: Record, said: str) -> None:
    with pytest.raises(DoesNotFit, match=said.replace("$", r"\$")):
        signature_of(function)[0](given)


def test_functions_that_take_something_else_are_refused() -> None:
    def three(a: int, b: Context, c: int) -> None: ...
    def other(a: int, b: int) -> None: ...

    for function in (three, other):
        with pytest.raises(TypeError):
            signature_of(function)


def test_a_task_stops_when_20_of_the_last_50_payloads_do_not_fit() -> None:
    mismatches = Mismatches()
    assert not any(mismatches.note(fits=False) for _ in range(MISMATCHES - 1))
    assert not mismatches.note(fits=True)
    assert mismatches.note(fits=False)
    spread = Mismatches()
    assert not any(spread.note(fits=False) for _ in range(MISMATCHES - 1))
    assert not any(spread.note(fits=True) for _ in range(WINDOW - MISMATCHES + 1))
    assert not spread.note(fits=False)  # the first one has left the window


def test_a_breaker_opens_after_failures_of_one_kind_and_closes_with_a_success() -> None:
    a, b, c = (Verdict(RELEASE, kind=kind) for kind in "abc")
    breaker = Breaker(3)
    for verdict in (a, a, b, b):
        assert not breaker.note(verdict)
    assert breaker.note(b)
    assert breaker.may_start(10.0)
    assert not breaker.may_start(10.0 + SLOW_S / 2)
    assert breaker.may_start(10.0 + SLOW_S)
    breaker.note(c)
    assert breaker.open
    breaker.note(ACCEPTED)
    assert not breaker.open
    assert breaker.may_start(10.0)
    never = Breaker(0)
    assert not any(never.note(a) for _ in range(100))


@pytest.mark.parametrize(
    "verdict",
    [
        verdict_of(Reject("no address")),
        verdict_of(FileNotFoundError(), reject_on=(OSError,)),
        verdict_of(Snooze("1s")),
        does_not_fit("$.id", "release"),
    ],
)
def test_a_breaker_counts_no_record_that_is_itself_at_fault(verdict: Verdict) -> None:
    breaker = Breaker(3)
    failed = verdict_of(OSError("away"))
    assert not any(breaker.note(each) for each in (verdict, verdict, verdict, failed, verdict, failed))
    assert breaker.note(failed)
    breaker.note(verdict)
    assert breaker.open


def test_the_retries_of_a_worker_last_for_four_hours() -> None:
    waits = [int(wait) for wait in group_rules.WAITS.split(",")]
    assert 4 * 3600 <= group_rules.survived_s(waits, group_rules.ATTEMPTS) <= 4.5 * 3600
    assert group_rules.survived_s([1000, 5000, 30_000], 5) == 66
    assert group_rules.survived_s([1000, 5000, 30_000], 2) == 1
    assert group_rules.survived_s([], 5) == 0


def test_the_page_says_how_long_an_outage_may_last() -> None:
    rows = re.findall(
        r"^\| (none|[\d,]+)(: a worker's own)? \| (\d+) \| ([\d.]+) (\w+) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert [(waits, int(limit)) for waits, own, limit, *_ in rows if own] == [(group_rules.WAITS, group_rules.ATTEMPTS)]
    for waits, _, limit, number, unit in rows:
        listed = [] if waits == "none" else [int(wait) for wait in waits.split(",")]
        lasts = group_rules.survived_s(listed, int(limit)) / {"s": 1, "minutes": 60, "hours": 3600}[unit]
        assert round(lasts, len(number.partition(".")[2])) == float(number)
    assert len(rows) == 4


def test_an_app_refuses_what_it_cannot_run() -> None:
    app = Worker()

    @app.task("orders", group="g")
    def fulfil(order: Order) -> None: ...

    assert fulfil(Order(1)) is None
    with pytest.raises(ValueError, match="two tasks"):
        app.task("orders", group="g", name="fulfil")(order)
    with pytest.raises(ValueError, match="needs a topic"):
        app.task(group="g")
    with pytest.raises(ValueError, match="concurrency"):
        app.task("t", group="g", concurrency=0)
    with pytest.raises(ValueError, match="no task"):
        app.pause("nothing", 1)
    with pytest.raises(TypeError):
        app.periodic("* * * * *", payload={1: object()})(order)
    app.task("orders", group="g")(order)
    app.task("orders", group="other", name="third")(order)
    assert [[task.name for task in queue] for queue in app.queues()] == [["fulfil", "order"], ["third"]]
