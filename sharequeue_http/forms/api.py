"""The form of a row, and the path of a call with its parameters filled in."""

import functools
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final
from urllib.parse import quote

NO_BODY: Final = None
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
RECORD_RUNS: Final = "application/vnd.sharequeue.record-runs.v1"
"""See `sharequeue.protocol.record_runs`."""
TOPIC_ERRORS: Final = ("INVALID_TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PARTITION")
GROUP_ERRORS: Final = ("INVALID_GROUP_ID",)


@dataclass(frozen=True, slots=True)
class Api:
    """One call. `path` holds `{parameters}`; `request` is the type of the body (GET, DELETE: the query),
    `response` the answer's.

    `errors`: the codes that are particular to this call. Every call may also answer 42, 413, 415, -1 and 503.
    `idempotent`: two equal calls have the effect of one, so a call whose answer was lost may be made again.
    """

    operation_id: str
    method: str
    path: str
    summary: str
    _: KW_ONLY
    description: str = ""
    """What the summary leaves out: consequences, bounds, what to do next. Every call of clients has one."""
    request: Any = NO_BODY
    response: Any = NO_BODY
    status: int = 200
    tag: str = "Internal"
    errors: tuple[str, ...] = ()
    idempotent: bool = False
    acquires: bool = False
    """Whether it acquires although its method is GET."""
    streams: bool = False
    """Whether the answer is a stream of Server-Sent Events that ends with its connection alone."""
    raw_body: bool = False
    """Whether the body is bytes and not JSON."""
    media_type: str = "application/octet-stream"
    """The type of such a body, in the document and from our clients."""
    headers: tuple[tuple[str, str], ...] = ()
    """Request headers this call understands, as (name, meaning)."""
    also: tuple[int, ...] = ()
    """Further statuses that come with `response` and not with a problem."""
    check_body: Callable[[bytes], None] | None = None
    """Called with a client's body before it is decoded. Raises: TooMany. None: any body of its size may be decoded."""
    large: bool = False
    """Whether a body may have `max_request_bytes`: it carries records, or commits a transaction. Others have at most
    MAX_CALL_BYTES."""
    query_parameters: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        if self.method in ("GET", "DELETE") and self.request is not NO_BODY:
            object.__setattr__(self, "query_parameters", self.request.__struct_fields__)

    @property
    def takes_body(self) -> bool:
        return self.raw_body or (self.request is not NO_BODY and not self.query_parameters)

    @property
    def changes(self) -> bool:
        """Whether this call changes something or acquires, so that pages of foreign origins may not make it."""
        return self.method != "GET" or self.acquires

    @property
    def acknowledges(self) -> bool:
        """Whether its answer counts acknowledgements that failed, in a header too."""
        return "failed_count" in getattr(self.response, "__struct_fields__", ()) and self.tag == "Records"

    @property
    def protected(self) -> bool:
        """Whether operators make this call, with the cluster token."""
        return self.tag == "Audit"

    @property
    def internal(self) -> bool:
        """Whether only services make this call, with the cluster token."""
        return self.tag == "Internal"


_LONGEST_KNOWN: Final = 256
"""Longer names are not cached, because clients choose them."""
_known_segment: Final = functools.lru_cache(1024)(functools.partial(quote, safe=""))


def path_of(api: Api, **parameters: Any) -> str:
    """The path with its parameters filled in, percent-encoded."""
    return api.path.format(**{name: _segment(str(value)) for name, value in parameters.items()})


def _segment(text: str) -> str:
    return _known_segment(text) if len(text) <= _LONGEST_KNOWN else quote(text, safe="")
