"""The memory of a produce of the largest size, as the first large request of its gateway's process."""

import base64
from collections.abc import Callable

import httpx
import pyarrow as pa
import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.protocol.apis import ARROW_STREAM
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until

pytestmark = pytest.mark.soak  # bars of memory

MIB = 1 << 20
SIZE = 10 * MIB - 1024
"""A little less than max_request_bytes, as it is by default."""
MOST = 6
"""How many times its size a request may cost."""
RECORD = b'{"value":"%b"}'
KEYED = b'{"key":"%b","value":1}'

BODIES = {
    "raw": b"\xff" * SIZE,
    "JSON": RECORD % (b"x" * SIZE),
    "JSON beyond ASCII": RECORD % (b"x" * SIZE + "😀".encode()),
    "base64": b'{"value_base64":"%b"}' % base64.b64encode(b"\xff" * (SIZE // 4 * 3)),
    "key beyond ASCII": KEYED % (b"x" * SIZE + "😀".encode()),
    "key with escapes": KEYED % (b"x" * SIZE + rb"\ud83d\ude00"),
    "key of escapes": KEYED % (rb"\ud83d\ude00" * (SIZE // 12)),
    "10,000 records": b",".join([RECORD % (b"x" * 1024)] * 10_000),
    "10,000 values in base64": b",".join([b'{"value_base64":"%b"}' % (b"QUFB" * 256)] * 9_900),
    "10,000 keys in base64": b",".join([b'{"key_base64":"%b","value":1}' % (b"QUFB" * 256)] * 9_900),
    "10,000 keys beyond ASCII": b",".join([KEYED % (b"x" * 1000 + "😀".encode())] * 10_000),
}


def arrow(value: list[str] | list[bytes], compression: str | None = None, **columns: list[str]) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"value": pa.array(value), **{name: pa.array(each) for name, each in columns.items()}})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


STREAMS: dict[str, Callable[[], bytes]] = {
    "one text": lambda: arrow(["x" * SIZE]),
    "one text with escapes": lambda: arrow(["x" * (SIZE - 8) + '"\U0001f600']),
    "bytes": lambda: arrow([b"\xff" * SIZE]),
    "10,000 texts": lambda: arrow(["x" * 1024] * 10_000),
    "10,000 texts with escapes": lambda: arrow(["x" * 1000 + '"\U0001f600'] * 10_000),
    "10,000 values in bytes": lambda: arrow([b"\xff" * 1024] * 10_000),
    "one text, compressed": lambda: arrow(["x" * SIZE], "lz4"),
    "10,000 texts, compressed": lambda: arrow(["x" * 1000] * 10_000, "lz4"),
    "10,000 keys": lambda: arrow(["x"] * 10_000, key=["x" * 1000] * 10_000),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_an_arrow_stream_costs_at_most_six_times_its_size(
    stack: Stack, own_gateway: Gateway, name: str, kind: str
) -> None:
    """Arrow itself, which the first small stream loads, is not counted. Bytes are stored in base64, a third larger.

    The size of a compressed stream is what it becomes.
    """
    service = stack.service("gateway")
    service.stop()
    service.start()
    wait_until(service.ready)
    own_gateway.create_topic(name, max_message_bytes=50 * MIB)
    url, headers, body = f"{stack.url}/v1/topics/{name}/records/arrow", {"Content-Type": ARROW_STREAM}, STREAMS[kind]()
    good(httpx.post(url, content=arrow(["first"]), headers=headers, timeout=60))
    reset_peak(service.pid)
    before = resident_bytes(service.pid)
    good(httpx.post(url, content=body, headers=headers, timeout=60))
    stored = SIZE if "compressed" in kind else len(body) * 4 // 3 if "bytes" in kind else len(body)
    assert peak_resident_bytes(service.pid) - before <= MOST * stored
    assert own_gateway.log_ends(name) == [1 + (10_000 if kind.startswith("10,000") else 1)]


@pytest.mark.parametrize("known", [False, True], ids=["first append", "known partition"])
@pytest.mark.parametrize("kind", BODIES)
def test_a_produce_costs_at_most_six_times_its_size(
    stack: Stack, own_gateway: Gateway, name: str, kind: str, known: bool
) -> None:
    service = stack.service("gateway")
    service.stop()
    service.start()
    wait_until(service.ready)
    own_gateway.create_topic(name, max_message_bytes=50 * MIB)
    if known:
        own_gateway.produce(name, 1)
    url, body, media_type = f"{stack.url}/v1/topics/{name}/records", BODIES[kind], "application/octet-stream"
    if kind == "raw":
        url += "/raw"
    else:
        body, media_type = b'{"records":[%b]}' % body, "application/json"
    reset_peak(service.pid)
    before = resident_bytes(service.pid)
    good(httpx.post(url, content=body, headers={"Content-Type": media_type}, timeout=60))
    assert peak_resident_bytes(service.pid) - before <= MOST * len(body)
    records = body.count(b'"value') if kind.startswith("10,000") else 1
    assert own_gateway.log_ends(name) == [records + known]
