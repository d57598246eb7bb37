"""Records on stdout, and the signals that end a command in order."""

import asyncio
import base64
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final, cast

import msgspec

from sharequeue.client import Record

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def json_line(record: Record) -> bytes:
    """A record as one JSON object on one line. Bytes are base64; a JSON value is printed as it was produced."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "headers": record.headers,
    }
    if record.delivery_count:  # 0: it was read without a group
        fields["delivery_count"] = record.delivery_count
        fields["attempt"] = record.attempt
    if isinstance(record.key, bytes):
        fields["key_base64"] = base64.b64encode(record.key).decode()
    else:
        fields["key"] = record.key
    if record.json is None:
        fields["value_base64"] = base64.b64encode(record.value).decode()
    else:
        fields["value"] = msgspec.Raw(_on_one_line(record.json))
    return msgspec.json.encode(fields)


def _on_one_line(json: bytes) -> bytes:
    """JSON without its line ends, which are outside of its strings."""
    return json.replace(b"\n", b" ").replace(b"\r", b" ")


def value_line(record: Record) -> bytes:
    """A record's value: text and bytes as they are, anything else as its JSON."""
    if record.json is None:
        return bytes(record.value)
    if not record.json.startswith(b'"'):
        return _on_one_line(record.json)
    try:
        return cast(str, record.value).encode()
    except ValueError:  # half a surrogate pair
        return record.json


class Printer:
    """Prints records to stdout, flushes each, and counts them. `print` runs in a thread, because stdout may be slow."""

    def __init__(self, *, as_json: bool) -> None:
        self._line = json_line if as_json else value_line
        self._stdout = cast(BinaryIO, sys.stdout.buffer)
        self.broken = False
        """The reader of stdout closed it."""
        self.stop = threading.Event()

    def print(self, records: Sequence[Record]) -> int:
        """Returns: how many were printed."""
        for number, record in enumerate(records):
            if self.stop.is_set():
                return number
            try:
                self._stdout.write(self._line(record) + b"\n")
                self._stdout.flush()
            except (BrokenPipeError, ConnectionResetError):
                self.broken = True
                return number
        return len(records)

    def close(self) -> None:
        """Close a broken stdout, or Python would print an error when it flushes stdout at its end."""
        if self.broken:
            with contextlib.suppress(OSError):
                sys.stdout = None
                self._stdout.close()


@contextlib.contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[None]:
    """The first SIGINT or SIGTERM calls `stop` in the event loop; the second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def stop_once() -> None:
        for number in SIGNALS:
            _ignore_in_loop(loop, number)
            signal.signal(number, signal.SIG_DFL)
        stop()

    for number in SIGNALS:
        try:
            loop.add_signal_handler(number, stop_once)
        except NotImplementedError:  # Windows: Python's own handler wakes the event loop
            signal.signal(number, lambda _, __: loop.call_soon_threadsafe(stop_once))
    try:
        yield
    finally:
        for number in SIGNALS:
            _ignore_in_loop(loop, number)


def _ignore_in_loop(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    try:
        loop.remove_signal_handler(number)
    except NotImplementedError:
        signal.signal(number, signal.SIG_DFL)
