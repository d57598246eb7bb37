"""The head of a request: its rules and its largest size. Sources: RFC 9110 7 and 10.1.1, RFC 9112 3 and 6."""

import re
from collections.abc import Sequence
from typing import Final

from sharequeue.http.exchange import Headers
from sharequeue.http.limits import HttpLimits
from sharequeue.protocol.errors import InvalidRequest

UPGRADE_HEADERS: Final = frozenset({b"upgrade", b"http2-settings"})
ABSOLUTE_TARGET: Final = re.compile(rb"https?://([!-\"$-.0->A-~]+?)((?:[/?][!-~]*)?)", re.IGNORECASE)
"""Host and port, then path and query."""
LINE_BYTES: Final = len(b"  HTTP/1.1\r\n")
"""A request line without its method and target."""


def check_head(
    limits: HttpLimits,
    method: bytes,
    target: bytes,
    version: str,
    headers: Headers,
    codings: Sequence[bytes],
    received: int,
) -> None:
    """Check a whole head.

    Args:
        codings: the values of its headers Transfer-Encoding, in lower case.
        received: bytes that the head cannot be larger than.
        Its size is computed only if they are more than it may have.
    Raises: InvalidRequest (400, 414, 431, 501, 505).
    """
    if len(method) + len(target) + LINE_BYTES > limits.max_request_line_bytes:
        raise line_too_long(limits)
    if len(headers) > limits.max_headers:
        raise too_many_headers(limits)
    if received > limits.max_head_bytes and _size(target, headers) > limits.max_head_bytes:
        raise head_too_large(limits)
    if version not in ("1.1", "1.0"):
        raise InvalidRequest(f"this service does not speak HTTP/{version}; use HTTP/1.1", status=505)
    if method == b"CONNECT":
        raise InvalidRequest("this service is not a proxy and does not serve CONNECT", status=501)
    if codings and (list(codings) != [b"chunked"] or version == "1.0"):
        detail = "the only Transfer-Encoding that this service takes is chunked, in HTTP/1.1"
        raise InvalidRequest(detail, status=501)
    if target.startswith(b"/") and not target.isascii():
        raise InvalidRequest("the target of the request has bytes that are not ASCII; percent-encode them", status=400)


def without_host(target: bytes, headers: Headers) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The path of a target `http://host/path`, and the headers with its host: that one counts (RFC 9112 3.2.2).

    Raises: InvalidRequest (400): the target is not of that form.
    """
    found = ABSOLUTE_TARGET.fullmatch(target)
    if found is None:
        raise InvalidRequest("the target of the request is neither a path nor an http URL", status=400)
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


def _size(target: bytes, headers: Headers) -> int:
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)


def line_too_long(limits: HttpLimits) -> InvalidRequest:
    most = limits.max_request_line_bytes
    return InvalidRequest(f"the request line is longer than {most} bytes", status=414, limit=most)


def too_many_headers(limits: HttpLimits) -> InvalidRequest:
    most = limits.max_headers
    return InvalidRequest(f"the request has more than {most} headers", status=431, limit=most)


def head_too_large(limits: HttpLimits) -> InvalidRequest:
    most = limits.max_head_bytes
    return InvalidRequest(f"the request line and headers are larger than {most} bytes", status=431, limit=most)
