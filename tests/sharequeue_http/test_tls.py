"""The edge behind TLS: an exchange knows its connection's TLS object, and who does not shake hands keeps nobody out.
The key is for these tests alone."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from sharequeue_http.calling.connections import ConnectionLost, Connections
from sharequeue_http.limits import HttpLimits
from sharequeue_http.wire.handshake import Handshake
from tests.http.calls import wait_until
from tests.sharequeue_http.edge_server import MAX_REQUEST_BYTES, edge_server
from tests.sharequeue_http.test_client import get

HERE = Path(__file__).parent
CERTIFICATE = HERE / "localhost.pem"
KEY = HERE / "localhost.key.pem"


def certified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    return context


def test_a_connection_of_tls_takes_and_answers_large_bodies() -> None:
    trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
    with (
        edge_server(tls=certified()) as server,
        httpx.Client(base_url=f"https://localhost:{server.port}", verify=trusted, timeout=60) as client,
    ):
        assert client.get("/connection").text == "TLSv1.3"
        assert client.post("/echo", content=b"x" * MAX_REQUEST_BYTES).content == b"x" * MAX_REQUEST_BYTES
        assert len(client.get("/stream").content) == 20_000_000
        assert client.post("/echo", content=b"x" * (MAX_REQUEST_BYTES + 1)).status_code == 413


def test_a_connection_without_tls_has_no_tls_object() -> None:
    with edge_server() as server:
        assert httpx.get(f"http://127.0.0.1:{server.port}/connection", timeout=60).text == "None"


def test_a_silent_crowd_before_the_handshake_keeps_nobody_out() -> None:
    """It counts among the connections: its oldest ones give way, and the others are closed when a head would be."""
    trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
    limits = HttpLimits(head_timeout_ms=1000)
    with contextlib.ExitStack() as crowd, edge_server(limits, connections=16, tls=certified()) as server:
        silent = [
            crowd.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20)) for _ in range(40)
        ]
        silent[-1].sendall(b"\x16\x03\x01")  # it begins, and goes no further
        with httpx.Client(base_url=f"https://localhost:{server.port}", verify=trusted, timeout=60) as client:
            for _ in range(3):
                assert client.get("/connection").status_code == 200
        for each in silent[:24]:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b"", "an old one gives way"
        assert len(server.server.server_state.connections) <= 16
        for each in silent[24:]:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b"", "it is closed, though it said nothing"


def test_a_client_that_speaks_no_tls_is_closed() -> None:
    with edge_server(tls=certified()) as server:
        for sent in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b""):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as plain:
                plain.sendall(sent)
                plain.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):
                    assert b"HTTP/" not in plain.recv(100)
        with pytest.raises(ConnectionLost, match="its URL begins with https://"):
            asyncio.run(get(Connections(f"http://localhost:{server.port}", 1)))
        trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
        url = f"https://localhost:{server.port}/connection"
        assert httpx.get(url, verify=trusted, timeout=60).status_code == 200
        wait_until(lambda: not server.server.server_state.connections)


def test_bytes_that_come_just_before_tls_begins_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's hello may arrive in the turn of the loop in which its connection has asked for TLS."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello, made = outgoing.read(), Handshake.connection_made

    def connection_made(self: Handshake, transport: asyncio.Transport) -> None:
        made(self, transport)
        asyncio.get_running_loop().call_soon(self.data_received, hello)

    monkeypatch.setattr(Handshake, "connection_made", connection_made)
    with (
        edge_server(HttpLimits(head_timeout_ms=2000), tls=certified()) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as plain,
    ):
        assert plain.recv(2) == b"\x16\x03", "the server's part of the handshake"
