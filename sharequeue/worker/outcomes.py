"""The outcome of a record, by the end of its function. No IO."""

from typing import Final, Literal, NamedTuple

from sharequeue.protocol.types import MAX_DELAY_MS
from sharequeue.worker.spans import Span, milliseconds

REASON_LENGTH: Final = 500
"""The most characters of an exception's text in a reason."""
NO_TASK_DELAY_MS: Final = 60_000
"""How long a record waits that names a task which this program does not have: another deployment may have it."""
MISMATCH: Final = "mismatch"
"""The kind of a payload that does not fit."""
ACCEPT: Final = "accept"
RELEASE: Final = "release"
REJECT: Final = "reject"


class Reject(Exception):
    """Raised by a function whose record can never work: it becomes a dead letter with this reason."""

    def __init__(self, reason: str = "rejected") -> None:
        super().__init__(reason)


class _Later(Exception):
    def __init__(self, delay: Span | None, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.delay_ms = None if delay is None else milliseconds(delay)
        self.reason = reason
        if self.delay_ms is not None and self.delay_ms > MAX_DELAY_MS:
            raise ValueError(f"a record can be given back for at most {MAX_DELAY_MS // 3_600_000} hours")


class Retry(_Later):
    """Raised by a function whose record failed and is to be tried again, which counts as an attempt.

    `delay`: None: the group's backoff decides.
    """

    def __init__(self, reason: str = "retry", *, delay: Span | None = None) -> None:
        super().__init__(delay, reason)


class Snooze(_Later):
    """Raised by a function that did not begin with its record: it comes again after `delay`, and that is no attempt."""

    def __init__(self, delay: Span) -> None:
        super().__init__(delay)


class Verdict(NamedTuple):
    """An outcome of a record, as `ShareConsumer.acknowledge` takes it. `kind`: of a failure, to compare; "": none."""

    type: Literal["accept", "release", "reject"]
    reason: str | None = None
    delay_ms: int | None = None
    begun: bool = True
    kind: str = ""


ACCEPTED: Final = Verdict(ACCEPT)
NOT_BEGUN: Final = Verdict(RELEASE, begun=False)
NO_TASK: Final = Verdict(RELEASE, delay_ms=NO_TASK_DELAY_MS, begun=False)
STOPPED: Final = Verdict(RELEASE, "worker stopped", 0, kind="stopped")


def verdict_of(
    fault: BaseException, *, reject_on: tuple[type[BaseException], ...] = (), reasons: str = "text"
) -> Verdict:
    """The outcome of a record whose function raised.

    Args:
        reject_on: exceptions that a repeat cannot help.
        reasons: "text": the exception's type and text; "type": its type alone, where texts may hold personal data.
    """
    if isinstance(fault, Snooze):
        return Verdict(RELEASE, delay_ms=fault.delay_ms, begun=False)
    kind = type(fault).__name__
    if isinstance(fault, Reject):
        return Verdict(REJECT, _shown(str(fault), kind, reasons), kind=kind)
    if isinstance(fault, Retry):
        return Verdict(RELEASE, _shown(str(fault), kind, reasons), fault.delay_ms, kind=kind)
    text = f"{kind}: {fault}" if str(fault) else kind
    return Verdict(REJECT if isinstance(fault, reject_on) else RELEASE, _shown(text, kind, reasons), kind=kind)


def does_not_fit(path: str, on_mismatch: str) -> Verdict:
    """The outcome of a record whose payload is not of the function's type."""
    reason = f"the payload does not fit: {path}"[:REASON_LENGTH]
    return Verdict(REJECT if on_mismatch == "reject" else RELEASE, reason, kind=MISMATCH)


def timed_out(timeout_s: float) -> Verdict:
    """The outcome of a record whose function took too long."""
    return Verdict(RELEASE, f"timed out after {timeout_s:g} s", kind="timeout")


def _shown(text: str, kind: str, reasons: str) -> str:
    """A reason, which must not be empty."""
    return kind if reasons == "type" else text[:REASON_LENGTH] or kind
