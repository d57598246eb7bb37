"""The form of an error, the errors that HTTP itself has, and the registry of all that a process knows.

Two statuses ask the caller to change the request: 400 says that the service cannot read it (its HTTP, JSON or UTF-8),
422 that the service refuses something it says.

A protocol defines further rows and exceptions, and adds them to `KNOWN`. Then a service answers them with members of
the protocol's own, and the calling end makes exceptions of them again. The codes are Kafka's names where Kafka has one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NamedTuple


class Error(NamedTuple):
    """One row of a table of errors.

    `retriable`: the same request may succeed later. `definite`: the request surely had no effect; otherwise a retry
    may do the work twice.
    """

    code: str
    status: int
    title: str
    retriable: bool = False
    definite: bool = True


class ApiError(Exception):
    """A request, a partition or an acknowledgement that failed, and why.

    `detail` tells people what was wrong and what to do. `pointers` are the faulty places of the body, each as
    (JSON pointer, detail). `status` replaces the row's for a code that has several (INVALID_REQUEST: 400, 415, …).
    `extra`: members of the problem document besides those of its form.
    """

    error: ClassVar[Error] = Error("UNKNOWN_SERVER_ERROR", 500, "Unexpected server error", definite=False)
    own_code: ClassVar[str] = ""
    """A code that no service answers: of what a caller finds out itself."""

    def __init__(
        self,
        detail: str,
        *,
        error: Error | None = None,
        status: int | None = None,
        definite: bool | None = None,
        retry_after_s: float | None = None,
        limit: int | None = None,
        pointers: Sequence[tuple[str, str]] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        if error is not None:
            self.error = error  # type: ignore[misc]  # an instance may stand for any row of the table
        self.detail = detail
        self.status = self.error.status if status is None else status
        self.definite = self.error.definite if definite is None else definite
        self.retry_after_s = retry_after_s
        self.limit = limit
        self.pointers = tuple(pointers)
        self.extra = extra or {}
        self.problem: Any = None
        """The problem document that another service answered, if the error came from there: of the type that `KNOWN`
        has."""

    @property
    def code(self) -> str:
        """The code of the row, or `own_code`."""
        return self.own_code or self.error.code

    @property
    def retriable(self) -> bool:
        """Return whether the same call may succeed later."""
        return self.error.retriable


@contextmanager
def in_parts(done: Callable[[], int]) -> Iterator[None]:
    """The parts of a call. An error that comes once something is `done` is no definite one."""
    try:
        yield
    except ApiError as error:
        error.definite = error.definite and not done()
        raise


class UnexpectedAnswer(ApiError):
    """The answer is not one of the call's: its status or content type is another one, as with a login page. The call
    may have had its effect."""

    own_code = "UNEXPECTED_ANSWER"


class LoginWanted(UnexpectedAnswer):
    """A 401 or 403 that is not a gateway's: a proxy before the gateway wants a login."""

    own_code = "LOGIN_WANTED"


class RequestTimedOut(ApiError):
    error = Error("REQUEST_TIMED_OUT", 503, "Request timed out", retriable=True, definite=False)


class TooLarge(ApiError):
    error = Error("MESSAGE_TOO_LARGE", 413, "Record or request too large")


class CoordinatorNotAvailable(ApiError):
    error = Error("COORDINATOR_NOT_AVAILABLE", 503, "Coordinator not available", retriable=True)


class Unreachable(CoordinatorNotAvailable):
    """There is no connection to the service: the call was not sent."""

    own_code = "UNREACHABLE"


class AuthenticationFailed(ApiError):
    error = Error("SASL_AUTHENTICATION_FAILED", 401, "Not authenticated")


class InvalidRequest(ApiError):
    error = Error("INVALID_REQUEST", 422, "Invalid request")


class UnknownPath(ApiError):
    error = Error("UNKNOWN_PATH", 404, "Unknown path")


class HostNotAllowed(ApiError):
    error = Error("HOST_NOT_ALLOWED", 421, "Host is not this service's")


class OriginNotAllowed(ApiError):
    error = Error("ORIGIN_NOT_ALLOWED", 403, "Pages of this origin may not call")


class Throttled(ApiError):
    error = Error("THROTTLING_QUOTA_EXCEEDED", 429, "Throttled", retriable=True)


MEMBERS: Final = frozenset(
    {"type", "title", "status", "detail", "code", "retriable", "definite", "request_id", "errors", "limit"}
)
"""Of the form of all problem documents."""


class Known:
    """The errors that this process knows: those of this module, and what a protocol has added.

    `members`: what the problem documents of an error have besides the form of all. `problem`: the type of a document in
    `ApiError.problem`.
    """

    def __init__(self) -> None:
        self.members: dict[Error, Mapping[str, Any]] = {}
        self.by_code: dict[str, Error] = {}
        self.classes: dict[Error, type[ApiError]] = {}
        self.add({ApiError.error: {}, **{kind.error: {} for kind in ApiError.__subclasses__()}}, dict)

    def add(self, errors: Mapping[Error, Mapping[str, Any]], problem: Any) -> None:
        """Make the errors of a protocol known, when their exceptions are defined.

        Args:
            errors: each with the members of its problem documents. problem: the type of its problem documents.
        """
        self.problem = problem
        self.members.update(errors)
        self.by_code.update({error.code: error for error in errors})
        self.classes.update({kind.error: kind for kind in ApiError.__subclasses__() if "error" in vars(kind)})


KNOWN: Final = Known()


def exception_type(error: Error) -> type[ApiError]:
    """The exception class of a row; ApiError for rows without a class of their own."""
    return KNOWN.classes.get(error, ApiError)
