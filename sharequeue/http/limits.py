"""What one HTTP connection may ask of a service: settings that all three services share.

A request line, a head, a body and a pause each have a bound, so that no client holds memory or a file for longer than it
uses them. `sharequeue.http.protocol` keeps them. Sources: RFC 9110 15.5, RFC 9112 3 and 9.5.
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
    """A head must be whole by then (408); so must the first one of a connection that says nothing at all."""
    body_grace_ms: Milliseconds = 10_000
    """From then on the average speed of a body counts."""
    min_body_bytes_per_s: Annotated[int, Meta(ge=1, le=1_048_576)] = 1024
    """A slower body is refused with 408."""
    idle_timeout_ms: Milliseconds = 75_000
    """A connection without a request is closed then. Longer than clients and proxies commonly keep theirs, so that they
    close it. An answer of which the client takes nothing for that long ends its connection too."""
    max_receiving_bytes: Annotated[int, Meta(ge=1_048_576)] = 134_217_728
    """Bodies on their way, over all connections; above it the one that has been coming in for longest is refused with 429.
    One alone is never refused."""
    max_unsent_bytes: Annotated[int, Meta(ge=1_048_576)] = 268_435_456
    """Answers that clients have not taken yet, over all connections; above it the connection that has taken nothing for
    longest is closed."""
    max_connections: Annotated[int, Meta(ge=16, le=1_000_000)] = 15_000
    """Above it the connection that is idle longest is closed; with none idle the new one is refused with 503. The
    process's limit of open files may lower it."""
