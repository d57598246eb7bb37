"""The edge behind TLS, which uvicorn ends: an exchange knows its connection's TLS object.
The key is for these tests alone."""

import ssl
from pathlib import Path

import httpx

from tests.sharequeue_http.edge_server import MAX_REQUEST_BYTES, edge_server

HERE = Path(__file__).parent
CERTIFICATE = HERE / "localhost.pem"
KEY = HERE / "localhost.key.pem"


def test_an_exchange_knows_its_tls_object_and_its_scheme() -> None:
    trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
    with (
        edge_server(ssl_certfile=str(CERTIFICATE), ssl_keyfile=str(KEY)) as server,
        httpx.Client(base_url=f"https://localhost:{server.port}", verify=trusted, timeout=60) as client,
    ):
        assert client.get("/connection").text == "https TLSv1.3"
        assert client.post("/echo", content=b"x" * MAX_REQUEST_BYTES).content == b"x" * MAX_REQUEST_BYTES
        assert len(client.get("/stream").content) == 20_000_000
        assert client.post("/echo", content=b"x" * (MAX_REQUEST_BYTES + 1)).status_code == 413


def test_without_tls_the_scheme_is_http() -> None:
    with edge_server() as server:
        assert httpx.get(f"http://127.0.0.1:{server.port}/connection", timeout=60).text == "http None"
