"""Servers with the real edge, one with the usual limits and one whose limits a test reaches within seconds."""

from collections.abc import Iterator

import pytest

from sharequeue_http.limits import HttpLimits
from tests.sharequeue_http.edge_server import EdgeServer, edge_server

STRICT = HttpLimits(
    max_head_bytes=8192,
    max_request_line_bytes=1024,
    max_headers=20,
    head_timeout_ms=800,
    body_grace_ms=800,
    min_body_bytes_per_s=1000,
    idle_timeout_ms=2400,
)


@pytest.fixture(scope="module")
def server() -> Iterator[EdgeServer]:
    """An edge with the usual limits."""
    with edge_server() as server:
        yield server


@pytest.fixture(scope="module")
def strict() -> Iterator[EdgeServer]:
    """An edge with the limits above."""
    with edge_server(STRICT) as server:
        yield server
