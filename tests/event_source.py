"""A client of a stream, for tests: it reads events in a thread, and its connection can be cut at any byte.

It follows the HTML standard (9.2): fields are joined at the empty line, an `id` without data moves the last event id,
and an event that is not whole when the connection ends is dropped.
"""

import contextlib
import json
import queue
import socket
import struct
import threading
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

PATIENCE_S = 60.0


class StreamEvent(NamedTuple):
    """One event. `kind`: its name, `message` without one. `data`: decoded."""

    kind: str
    data: Any
    id: str


class EventSource:
    """One connection of a stream. `most_bytes`: the socket takes few bytes until `read` is called."""

    def __init__(
        self,
        url: str,
        group: str,
        topic: str,
        *,
        member: str = "m1",
        last_id: str = "",
        reads: bool = True,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.last_id = last_id
        self.comments = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.events: queue.SimpleQueue[StreamEvent | None] = queue.SimpleQueue()
        self._rest = b""
        self._socket = socket.socket()
        if not reads:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect((parts.hostname, parts.port))
        sent = {"Host": parts.netloc, "Accept": "text/event-stream", **(headers or {})}
        if last_id:
            sent["Last-Event-ID"] = last_id
        path = f"/v1/share-groups/{quote(group, safe='')}/stream?"
        path += urlencode({"topic": topic, "member_id": member, **query})
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._thread = threading.Thread(target=self._run, daemon=True)
        if reads:
            self._read_head()
            self._socket.settimeout(None)
            self._thread.start()

    def read(self) -> None:
        """Begin to read, after `reads=False`."""
        self._read_head()
        self._socket.settimeout(None)
        self._thread.start()

    def next(self, seconds: float = PATIENCE_S) -> StreamEvent:
        """The next event."""
        event = self.events.get(timeout=seconds)
        assert event is not None, "the stream has ended"
        return event

    def ended(self, seconds: float = PATIENCE_S) -> bool:
        """Whether the stream ends without another event."""
        return self.events.get(timeout=seconds) is None

    def silent(self, seconds: float) -> bool:
        """Whether no event comes for some time."""
        try:
            event = self.events.get(timeout=seconds)
        except queue.Empty:
            return True
        raise AssertionError(f"not silent: {event}")

    def cut(self, *, reset: bool = False) -> None:
        """End the connection: with FIN, or with RST."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):  # wakes the reader: a socket that is read from is not closed
            self._socket.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)
        self._socket.close()

    # Inside

    def _read_head(self) -> None:
        while b"\r\n\r\n" not in self._rest:
            self._rest += self._receive()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        assert self.status == 200, (self.status, self._rest)
        assert self.headers["transfer-encoding"] == "chunked"

    def _receive(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise EOFError
        return data

    def _line(self) -> bytes:
        while b"\r\n" not in self._rest:
            self._rest += self._receive()
        line, _, self._rest = self._rest.partition(b"\r\n")
        return line

    def _run(self) -> None:
        text = b""
        with contextlib.suppress(EOFError, OSError):
            while size := int(self._line(), 16):
                while len(self._rest) < size + 2:
                    self._rest += self._receive()
                text += self._rest[:size]
                self._rest = self._rest[size + 2 :]
                *blocks, text = text.split(b"\n\n")
                for block in blocks:
                    self._dispatch(block.decode())
        self.events.put(None)

    def _dispatch(self, block: str) -> None:
        kind, data = "message", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not field:
                self.comments += 1
            elif field == "id":
                self.last_id = value
            elif field == "event":
                kind = value
            elif field == "data":
                data.append(value)
        if data:
            self.events.put(StreamEvent(kind, json.loads("\n".join(data)), self.last_id))
