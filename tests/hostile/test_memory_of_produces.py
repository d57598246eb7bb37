"""The memory of a produce of the largest size, as the first large request of its gateway's process."""

import base64

import httpx
import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until

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
