"""The requests of one connection as their bytes come in: what has come of them, how much and how fast (RFC 9112).

                  on_request_begins     on_request          add(part)      on_request_whole
    first byte ──────────▶ head ───────────▶ body ─────────────▶ body ─────────────▶ first byte of the next
                           │ in_head         │ incoming

httptools parses, and calls this class. `Connection` gets the requests and decides about them.

- A head is checked when it is whole (`head`), and by its size so far after each read that ends in it.
- A body goes to its exchange part by part. The framing of its chunks has a bound.
- An offer to upgrade is ignored (RFC 9110 7.8). httptools would drop the body of such a request, so it gets the head
  again without the offer.
- Trailers are dropped (RFC 9110 6.5.1): nothing behind a body counts as a header.
"""

from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from sharequeue.http.exchange import Headers
from sharequeue.http.limits import HttpLimits
from sharequeue.http.wire.connection_exchange import ConnectionExchange
from sharequeue.http.wire.head import (
    check_head,
    head_too_large,
    line_too_long,
    too_many_headers,
    without_host,
    without_offer,
)
from sharequeue.protocol.errors import ApiError, InvalidRequest


class Connection(Protocol):
    """The connection that the requests belong to."""

    def on_request_begins(self) -> None:
        """The first byte of a request has come in."""

    def on_request(
        self, method: bytes, target: bytes, version: str, headers: Headers, *, keep_alive: bool, expects: bool
    ) -> ConnectionExchange:
        """A head is whole, and may be served. Returns: the exchange that gets the body.

        `expects`: the client waits for `100 Continue`.
        """

    def on_request_whole(self, exchange: ConnectionExchange) -> None:
        """The body of a request is whole."""


class _Refused(Exception):
    """Raised in a callback of httptools to stop it. `RequestParser._refusal` is the reason."""


class RequestParser:
    """Parses what one connection sends. A method that returns a refusal is the last one to be called."""

    def __init__(self, connection: Connection, limits: HttpLimits) -> None:
        self._connection: Connection | None = connection
        self._limits = limits
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self.in_head = False
        self.incoming: ConnectionExchange | None = None
        """The request whose body is coming in."""
        self._method = b""
        self._target = b""
        self._version = ""
        self._headers: list[tuple[bytes, bytes]] = []
        self._codings: list[bytes] = []
        """The values of the headers Transfer-Encoding, in lower case."""
        self._expects = False
        self._refusal: ApiError | None = None
        """Why a callback of httptools stopped it."""
        self._read_size = 0
        """Bytes of the read that is parsed now."""
        self._fed = 0
        """Bytes parsed since the last request was whole."""
        self._since = 0.0
        """When the clock of the head or body began, in seconds of the loop; 0: it does not run."""
        self._fed_then = 0
        """`_fed` at that moment."""

    def release(self) -> None:
        """The connection is lost. The parser, this object and the connection refer to one another; without this, only
        the collector would free them."""
        self._connection = self._parser = self.incoming = None

    # Bytes

    def feed(self, data: bytes) -> ApiError | None:
        assert self._parser is not None
        self._read_size = len(data)
        self._fed += self._read_size
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as offer:
            return self._feed_without_offer(memoryview(data)[offer.args[0] :])
        except HttpParserError as fault:
            return self._malformed(fault)
        return None

    def _feed_without_offer(self, rest: memoryview) -> ApiError | None:
        """Parse the head again without its offer to upgrade, then the rest."""
        while True:
            self._parser = HttpRequestParser(self)
            try:
                self._parser.feed_data(without_offer(self._method, self._target, self._version, self._headers))
                self._parser.feed_data(rest)
            except HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
            except HttpParserError as fault:
                return self._malformed(fault)
            else:
                return None

    def _malformed(self, fault: HttpParserError) -> ApiError:
        refusal, self._refusal = self._refusal, None
        return refusal or InvalidRequest(f"this is not HTTP/1.1: {fault}", status=400)

    # A request that is not whole

    def oversized(self) -> ApiError | None:
        """Check the size of the incomplete head, or of the framing of the incomplete body."""
        limits = self._limits
        if self.in_head:
            if len(self._target) > limits.max_request_line_bytes:
                return line_too_long(limits)
            if self._fed > limits.max_head_bytes:
                return head_too_large(limits)
            return too_many_headers(limits) if len(self._headers) > limits.max_headers else None
        received = 0 if self.incoming is None else self.incoming.received
        framing = self._fed - received
        if framing > received // 4 + 2 * limits.max_head_bytes:  # allows chunks of about 30 bytes on average
            free = 2 * limits.max_head_bytes
            detail = (
                f"the framing of the body is larger than {free} bytes and a quarter of the body: send larger chunks"
            )
            return InvalidRequest(detail, status=400)
        return None

    @property
    def clock_runs(self) -> bool:
        return self._since > 0

    def restart_clock(self, now: float) -> None:
        """Start the clock of the head or body. `now`: seconds of the loop's clock."""
        self._since = now
        self._fed_then = self._fed

    def too_slow(self, now: float) -> ApiError | None:
        """Check the time of the incomplete head, or the speed of the incomplete body."""
        limits = self._limits
        elapsed = now - self._since
        if self.in_head:
            if elapsed > limits.head_timeout_ms / 1000:
                return _too_slow(f"the head of the request was not complete after {limits.head_timeout_ms} ms")
            return None
        slow = self._fed - self._fed_then < limits.min_body_bytes_per_s * elapsed
        if slow and elapsed > limits.body_grace_ms / 1000 and self.incoming is not None and not self.incoming.expects:
            return _too_slow(f"the body arrived at less than {limits.min_body_bytes_per_s} bytes a second")
        return None

    # The callbacks of httptools

    def on_message_begin(self) -> None:
        self.in_head = True
        self._target = b""
        self._headers = []
        self._codings = []
        self._expects = False
        assert self._connection is not None
        self._connection.on_request_begins()

    def on_url(self, target: bytes) -> None:
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:
            return  # a trailer
        name = name.lower()
        value = value.strip(b" \t")
        self._headers.append((name, value))
        if name == b"transfer-encoding":
            self._codings.append(value.lower())
        elif name == b"expect":
            self._expects = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        parser, connection = self._parser, self._connection
        assert parser is not None
        assert connection is not None
        self.in_head = False
        method = self._method = parser.get_method()
        version = self._version = parser.get_http_version()
        if parser.should_upgrade() and method != b"CONNECT":
            return  # the head is parsed again, without its offer
        target, headers = self._target, self._headers
        try:
            received = max(self._fed, self._read_size)
            check_head(self._limits, method, target, version, headers, self._codings, received)
            if not target.startswith(b"/"):
                target, headers = without_host(target, headers)
        except ApiError as error:
            self._refusal = error
            raise _Refused(error.detail) from None
        self._headers = []
        self.incoming = connection.on_request(
            method,
            target,
            version,
            headers,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            expects=self._expects and version == "1.1",
        )

    def on_body(self, body: bytes) -> None:
        if self.incoming is not None:
            self.incoming.add(body)

    def on_message_complete(self) -> None:
        incoming, self.incoming = self.incoming, None
        if incoming is not None:  # otherwise the head is parsed again, without its offer to upgrade
            self._fed = 0
            self._since = 0.0
            assert self._connection is not None
            self._connection.on_request_whole(incoming)


def _too_slow(detail: str) -> InvalidRequest:
    return InvalidRequest(f"{detail}; send it again on another connection", status=408)
