"""The head of a request: its forms, and the refusals of those that are too large. Sources: RFC 9110 7, RFC 9112 3."""

import re
from typing import Final

from sharequeue_http.exchange import Headers
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.limits import HttpLimits

UPGRADE_HEADERS: Final = frozenset({b"upgrade", b"http2-settings"})
ABSOLUTE_TARGET: Final = re.compile(rb"https?://([!-\"$-.0->A-~]+?)((?:[/?][!-~]*)?)", re.IGNORECASE)
"""Host and port, then path and query."""


def without_host(target: bytes, headers: Headers) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The path of a target `http://host/path`, and the headers with its host: that one counts (RFC 9112 3.2.2).

    Raises: InvalidRequest (400): the target is not of that form.
    """
    found = ABSOLUTE_TARGET.fullmatch(target)
    if found is None:
        raise bad_target()
    host, path = found.groups()
    path = path if path.startswith(b"/") else b"/" + path
    return path, [(name, host if name == b"host" else value) for name, value in headers]


def without_offer(method: bytes, target: bytes, version: str, headers: Headers) -> bytes:
    """The bytes of a head without its offer to upgrade."""
    lines = [b"%b %b HTTP/%b\r\n" % (method, target, version.encode())]
    for name, value in headers:
        if name == b"connection":
            options = [option.strip() for option in value.split(b",")]
            value = b", ".join(option for option in options if option.lower() not in UPGRADE_HEADERS)  # noqa: PLW2901
        if name not in UPGRADE_HEADERS:
            lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)


def size_of(target: bytes, headers: Headers) -> int:
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)


def bad_target() -> InvalidRequest:
    detail = "the target of the request must be a path or an http URL, of visible ASCII characters other than #"
    return InvalidRequest(f"{detail}; percent-encode all others", status=400)


def head_too_large(limits: HttpLimits) -> InvalidRequest:
    most = limits.max_head_bytes
    return InvalidRequest(f"the request line and headers are larger than {most} bytes", status=431, limit=most)
