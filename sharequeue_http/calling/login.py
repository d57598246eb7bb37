"""The credentials that a caller shows: its token, and further headers for a proxy.

No token and no value of a header is in an error or in the text of an object.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypedDict

from sharequeue_http.calling.connections import CannotConnect

Token = str | Callable[[], str]
"""A token, or a function that returns it. The function is called for each request, so it must not wait."""

_TOKEN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", re.ASCII)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*", re.ASCII)
_OURS: Final = frozenset(
    (
        *("accept", "connection", "content-encoding", "content-length", "content-type", "expect", "host", "upgrade"),
        *("idempotency-key", "idempotency-retention-ms", "last-event-id", "te", "traceparent", "transaction-id"),
        *("transfer-encoding", "x-request-id"),
    )
)
"""Headers that calls set themselves."""


class LoginOptions(TypedDict, total=False):
    """Arguments of the classes of `sharequeue.client`: what `Login` takes, and a file of authorities."""

    token: Token | None
    headers: Mapping[str, str] | None
    ca: str | None


class Login:
    """The headers that every request of a caller has.

    Args:
        token: sent as `Authorization: Bearer`. headers: further ones, for a proxy before the gateway.
    Raises: ValueError: a token or a header that cannot be sent, or a header that the calls set themselves.
    """

    def __init__(self, token: Token | None = None, headers: Mapping[str, str] | None = None) -> None:
        self.token = token
        self.changes = callable(token)
        """Whether a function has the token of each request. Otherwise all requests have the headers `fixed`."""
        self.fixed = dict(headers or {})
        for name, value in self.fixed.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ValueError(f"the header {name!r} cannot be sent: it must be one line of printable ASCII")
            if name.lower() in _OURS or (name.lower() == "authorization" and token is not None):
                raise ValueError(f"the header {name!r} is set by the client itself: leave it out")
        if isinstance(token, str):
            self.fixed["Authorization"] = _bearer(token)

    def headers(self) -> Mapping[str, str]:
        """The headers of the next request. Raises: CannotConnect: the function has no token now."""
        if not callable(self.token):
            return self.fixed
        try:
            token = self.token()
        except OSError as fault:
            raise CannotConnect(f"there is no token: {fault}") from fault
        except Exception as fault:  # of the program's own function; its text may have the secret
            raise CannotConnect(f"there is no token: the function raised {type(fault).__name__}") from fault
        try:
            return {**self.fixed, "Authorization": _bearer(token)}
        except ValueError as fault:
            raise CannotConnect(str(fault)) from None


def token_of_file(path: str) -> Callable[[], str]:
    """A token that is read from a file for each request, so that a new one counts at once."""
    return lambda: Path(path).read_text().strip()


def _bearer(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token must be one line of printable ASCII without spaces at its ends, and not empty")
    return f"Bearer {token}"
