"""The limits of HTTP connections: settings that all three services share.

A request line, a head, a body and a pause each have a bound, so no client holds memory or a file that it does not use.
`sharequeue_http.wire.protocol` enforces the limits of one connection,
`sharequeue_http.wire.edge` those of all together.
Sources: RFC 9110 15.5, RFC 9112 3 and 9.5.
"""

from typing import Annotated

from msgspec import Meta, Struct

Milliseconds = Annotated[int, Meta(ge=100, le=3_600_000)]


class HttpLimits(Struct, frozen=True, kw_only=True):
    """Sizes in bytes, durations in milliseconds."""

    max_head_bytes: Annotated[int, Meta(ge=4096, le=1_048_576)] = 65_536
    """Request line and headers. A larger head gets 431."""
    max_request_line_bytes: Annotated[int, Meta(ge=1024, le=65_536)] = 8192
    """Method, target and version. A longer line gets 414."""
    max_headers: Annotated[int, Meta(ge=20, le=1000)] = 100
    """A request with more headers gets 431."""
    head_timeout_ms: Milliseconds = 30_000
    """A head that is not complete by then gets 408. A new connection that has sent nothing by then is closed."""
    body_grace_ms: Milliseconds = 10_000
    """When a body takes longer than this, its average speed must be at least `min_body_bytes_per_s`."""
    min_body_bytes_per_s: Annotated[int, Meta(ge=1, le=1_048_576)] = 1024
    """A slower body gets 408."""
    idle_timeout_ms: Milliseconds = 75_000
    """A connection without a request is closed after that time, and so is one whose client takes nothing of its
    answer. A client that waits for its answer is never cut off. Most clients and proxies use a shorter time, so they
    close first."""
    max_receiving_bytes: Annotated[int, Meta(ge=1_048_576)] = 134_217_728
    """Bytes of request bodies that are arriving, over all connections. Above it, the body that has been arriving
    longest gets 429. A single body never does."""
    max_unsent_bytes: Annotated[int, Meta(ge=1_048_576)] = 268_435_456
    """Bytes of answers that clients have not taken yet, over all connections. Above it, the connection that has taken
    nothing for longest is closed; a single one never is. A gateway also reads at most this many bytes from the log's
    database at a time: each read counts as the largest batch so far, and further reads wait. Two things are not
    counted: records that a fetch holds until their locks are in Redis, and records from another gateway until the
    answer is complete. Until then a record takes about five times its bytes. With 4 MiB, 100 clients that asked for
    10 MiB each and took nothing cost a gateway 72 MiB for a moment, a single one 50 MiB."""
    max_connections: Annotated[int, Meta(ge=16, le=1_000_000)] = 15_000
    """Open connections. Above it, the connection that is idle longest is closed; if none is idle, a new one gets 503.
    The limit of open files may lower it: each service raises its soft limit to the hard one."""
