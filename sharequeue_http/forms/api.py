"""The form of a row, and the path of a call with its parameters filled in."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final
from urllib.parse import quote

NO_BODY: Final = None
MAX_CALL_BYTES: Final = 1 << 20
"""Of a client's body whose call is not `large`."""
ALWAYS_FITS: Final = 10_000
"""Bytes: a body of no more is not checked before it is decoded. Its values take little memory."""


@dataclass(frozen=True, slots=True)
class Api:
    """One call. `route`: its method and its path, which holds `{parameters}`. `request` is the type of the body (GET,
    DELETE: the query), `response` the answer's.

    `errors`: the codes that are particular to this call. Every call may also answer those of HTTP.
    `idempotent`: two equal calls have the effect of one, so a call whose answer was lost may be made again. A call that
    changes nothing is.
    """

    operation_id: str
    route: str
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
    unsafe: bool = False
    """Whether it changes something although its method is GET."""
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
    """Called with a client's body of more than ALWAYS_FITS before it is decoded. Raises: TooMany. None: any body of its
    size may be decoded."""
    large: bool = False
    """Whether a body may have `max_request_bytes`. Others have at most MAX_CALL_BYTES."""
    access: Any = None
    """What a caller needs for this call, in the words of the protocol. A `Guard` reads it."""
    needs: Callable[[Any], Iterable[str]] | None = None
    """What the service must be able to do for a call, by name: a function of the `Call`. None: what every one can."""
    method: str = field(init=False, default="")
    path: str = field(init=False, default="")
    query_parameters: tuple[str, ...] = field(init=False, default=())
    internal: bool = field(init=False, default=False)
    """Whether only services make this call, with the cluster token."""

    def __post_init__(self) -> None:
        for name, part in zip(("method", "path"), self.route.split(" "), strict=True):
            object.__setattr__(self, name, part)
        object.__setattr__(self, "internal", self.tag == "Internal")
        if not self.changes:
            object.__setattr__(self, "idempotent", True)
        if self.method in ("GET", "DELETE") and self.request is not NO_BODY:
            object.__setattr__(self, "query_parameters", self.request.__struct_fields__)

    @property
    def takes_body(self) -> bool:
        return self.raw_body or (self.request is not NO_BODY and not self.query_parameters)

    @property
    def changes(self) -> bool:
        """Return whether this call changes something, so that pages of foreign origins may not make it."""
        return self.method != "GET" or self.unsafe


_LONGEST_KNOWN: Final = 256
"""Longer names are not cached, because clients choose them."""
_known_segment: Final = functools.lru_cache(1024)(functools.partial(quote, safe=""))


def path_of(api: Api, **parameters: Any) -> str:
    """The path with its parameters filled in, percent-encoded."""
    return api.path.format(**{name: _segment(str(value)) for name, value in parameters.items()})


def _segment(text: str) -> str:
    return _known_segment(text) if len(text) <= _LONGEST_KNOWN else quote(text, safe="")
