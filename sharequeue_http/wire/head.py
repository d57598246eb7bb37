"""The head of a request: its check, and its forms. Sources: RFC 9110 7, RFC 9112 3."""

import re
from collections.abc import Sequence
from typing import Final

from sharequeue_http.exchange import Headers
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.limits import HttpLimits

UPGRADE_HEADERS: Final = frozenset({b"upgrade", b"http2-settings"})
ABSOLUTE_TARGET: Final = re.compile(rb"https?://([!-\"$-.0->A-~]+?)((?:[/?][!-~]*)?)", re.IGNORECASE)
"""Host and port, then path and query."""
LINE_BYTES: Final = len(b"  HTTP/1.1\r\n")
"""A request line without its method and target."""


def check_head(
    limits: HttpLimits,
    method: bytes,
    target: bytes,
    headers: Headers,
    version: str = "1.1",
    codings: Sequence[bytes] = (),
    received: int = 0,
) -> None:
    """Check a head, or the part of it that has come in.

    Args:
        codings: the values of its headers Transfer-Encoding, in lower case.
        received: bytes that the head cannot be larger than.
        Its size is computed only if they are more than it may have.
    Raises: InvalidRequest (400, 414, 431, 501, 505).
    """
    if len(method) + len(target) + LINE_BYTES > (most := limits.max_request_line_bytes):
        raise InvalidRequest(f"the request line is longer than {most} bytes", status=414, limit=most)
    if len(headers) > (most := limits.max_headers):
        raise InvalidRequest(f"the request has more than {most} headers", status=431, limit=most)
    if received > limits.max_head_bytes and size_of(target, headers) > limits.max_head_bytes:
        raise head_too_large(limits)
    if version not in ("1.1", "1.0"):
        raise InvalidRequest(f"this service does not speak HTTP/{version}; use HTTP/1.1", status=505)
    if method == b"CONNECT":
        raise InvalidRequest("this service is not a proxy and does not serve CONNECT", status=501)
    if codings and (list(codings) != [b"chunked"] or version == "1.0"):
        detail = "the only Transfer-Encoding that this service takes is chunked, in HTTP/1.1"
        raise InvalidRequest(detail, status=501)
    if b"#" in target:  # httptools refuses all other characters that a target may not have
        raise bad_target()


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
