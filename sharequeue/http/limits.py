"""The limits of HTTP connections: settings that all three services share.

A request line, a head, a body and a pause each have a bound, so no client holds memory or a file that it does not use.
`sharequeue.http.protocol` enforces the limits of one connection, `sharequeue.http.edge` those of all together.
Sources: RFC 9110 15.5, RFC 9112 3 and 9.5.
"""

from typing import Annotated

from msgspec import Meta, Struct

Milliseconds = Annotated[int, Meta(ge=100, le=3_600_000)]


class HttpLimits(Struct, frozen=True, kw_only=True):
    """Sizes in bytes, durations in milliseconds."""

    max_head_bytes: Annotated[int, Meta(ge=4096, le=1_048_576)] = 65_536
    """Request line and headers; a larger head is refused with 431."""
    max_request_line_bytes: Annotated[int, Meta(ge=1024, le=65_536)] = 8192
    """Method, target and version; a longer line is refused with 414."""
    max_headers: Annotated[int, Meta(ge=20, le=1000)] = 100
    """More headers are refused with 431."""
    head_timeout_ms: Milliseconds = 30_000
    """A head that is incomplete after this time is refused with 408. A new connection without a byte is closed."""
    body_grace_ms: Milliseconds = 10_000
    """After this time, the average speed of a body must reach `min_body_bytes_per_s`."""
    min_body_bytes_per_s: Annotated[int, Meta(ge=1, le=1_048_576)] = 1024
    """A slower body is refused with 408."""
    idle_timeout_ms: Milliseconds = 75_000
    """A connection without a request is closed after this time. Most clients and proxies use a shorter time, so they
    close first. A connection whose client takes nothing of an answer for this time is closed too."""
    max_receiving_bytes: Annotated[int, Meta(ge=1_048_576)] = 134_217_728
    """Bytes of arriving bodies, over all connections. Above it, the body that began first is refused with 429. A single
    body is never refused."""
    max_unsent_bytes: Annotated[int, Meta(ge=1_048_576)] = 268_435_456
    """Bytes of answers that clients have not taken yet, over all connections. Above it, the connection whose client has
    taken nothing for longest is closed. A single one never is."""
    max_connections: Annotated[int, Meta(ge=16, le=1_000_000)] = 15_000
    """Above it, the connection that is idle longest is closed; if none is idle, the new one is refused with 503. The
    process's limit of open files may lower it."""
