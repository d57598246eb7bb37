"""The faults of a request, of one of its partitions, or of one acknowledgement."""

from sharequeue.protocol.messages.fields import AnyInt64, Response
from sharequeue.protocol.types import Int32


class AcknowledgementResult(Response):
    """`applied`, `ignored` (below the start offset: finished before), `failed`, `unknown` (may be durable: repeat)."""

    status: str
    code: str | None = None
    kafka_code: Int32 | None = None
    detail: str | None = None
    retriable: bool | None = None


class PartitionError(Response):
    """A partition that failed; −1: the whole topic."""

    topic: str
    partition: Int32
    code: str
    kafka_code: Int32
    detail: str


class PointedDetail(Response):
    """A faulty place of the request: an RFC 6901 pointer into the body, or `/` and a query parameter."""

    pointer: str
    detail: str


class Problem(Response):
    """RFC 9457 problem document, the body of every error."""

    type: str
    title: str
    status: Int32
    detail: str
    code: str
    kafka_code: Int32
    retriable: bool
    definite: bool
    """True: the request surely had no effect. False: it may have had one; repeat it only if twice does no harm."""
    request_id: str
    errors: list[PointedDetail] = []
    limit: AnyInt64 | None = None
    current_leader: str | None = None
    results: list[AcknowledgementResult] = []
    """The result of each acknowledgement, if all of them failed."""
    failed_count: Int32 = 0
