"""A proxy in front of the gateway, which can ask for a token or answer in the gateway's place."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import httpx


class Instead(NamedTuple):
    """An answer of the proxy itself. `after`: the gateway handles the request first, and its answer is lost."""

    status: int
    headers: dict[str, str]
    body: bytes = b"from the proxy"
    after: bool = False


Rule = Callable[[str, str, dict[str, str]], Instead | None]
"""From method, path and headers (lower case): an answer in the gateway's place, or None."""


class Proxy:
    """Tests may change `rule` at any time. `requests`: (method, path, headers) of all requests so far."""

    def __init__(self, url: str) -> None:
        self.rule: Rule = lambda method, path, headers: None
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self._http = httpx.Client(base_url=url, timeout=60)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.reply(*proxy.answer(self.command, self.path, headers, body))

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any

            def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.requests.append((method, path, headers))
        instead = self.rule(method, path, headers)
        if instead is None or instead.after:
            passed = {name: value for name, value in headers.items() if name not in ("host", "content-length")}
            response = self._http.request(method, path, headers=passed, content=body)
            if instead is None:
                kept = ("content-type", "retry-after")
                return (
                    response.status_code,
                    {name: value for name, value in response.headers.items() if name in kept},
                    response.content,
                )
        return instead.status, instead.headers, instead.body

    @contextmanager
    def running(self) -> Iterator["Proxy"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._http.close()
            thread.join()
